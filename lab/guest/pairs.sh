# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# shellcheck shell=sh
#
# Programs of two sides, each in this machine (`here`) or in another one, whose address is given and which has
# called serve_host.

lab_port=7100
# How long a program may take: emulated machines on a busy host are slow, and a hang is one at any length.
lab_pair_seconds=120
export LAB_SERVE_SECONDS=$lab_pair_seconds

# at SIDE COMMAND-LINE: runs it there, with its output and exit code.
at() {
	if [ "$1" = here ]; then
		timeout -k 5 $lab_pair_seconds sh -c ". /etc/lab.sh; . /etc/pairs.sh; $2" </dev/null
		return
	fi
	lab_out=/tmp/at.$(echo "$2" | md5sum | cut -c 1-8)
	echo ". /etc/pairs.sh; $2" | timeout -k 5 $((lab_pair_seconds + 10)) nc "$1" 7000 >"$lab_out" 2>&1
	sed '/^lab-rc /d' "$lab_out"
	return "$(sed -n 's/^lab-rc //p' "$lab_out" | tail -n 1 | grep . || echo 124)"
}

# listens PORT: a program waits for connections there.
listens() {
	netstat -ltn | grep -q ":$1 .*LISTEN"
}

# pair WHAT SERVER-SIDE CLIENT-SIDE ADDRESS SERVER CLIENT: a point, made if both command lines end with 0.
# In them @ is the server's address ADDRESS and % a free port.
pair() {
	lab_what=$1
	lab_tries=1
	until pair_once "$2" "$3" "$4" "$5" "$6"; do
		echo "== $1, server $lab_server: $lab_rc_s"
		cat /tmp/server.out
		echo "== client $lab_client: $lab_rc_c"
		cat /tmp/client.out
		[ $lab_tries -lt 6 ] && known_race || break
		lab_tries=$((lab_tries + 1))
		lab_what="$1 ($lab_tries tries: $lab_race)"
	done
	[ "$lab_rc_s$lab_rc_c" = 00 ]
	point $? "$lab_what"
	grep -h -A1 -E 'BW average|t_typical' /tmp/client.out
}

pair_once() {
	lab_port=$((lab_port + 1))
	lab_server=$(echo "$4" | sed "s/@/$3/g; s/%/$lab_port/g")
	lab_client=$(echo "$5" | sed "s/@/$3/g; s/%/$lab_port/g")
	lab_rc_s=0
	lab_rc_c=0
	at "$1" "$lab_server" >/tmp/server.out 2>&1 &
	lab_pid=$!
	at "$1" "wait_for 60 listens $lab_port"
	at "$2" "$lab_client" >/tmp/client.out 2>&1 || lab_rc_c=$?
	# A server whose client failed would wait for another.
	[ $lab_rc_c = 0 ] || at "$1" "killall -q ${lab_server%% *}"
	wait $lab_pid || lab_rc_s=$?
	[ $lab_rc_s = 0 ] && [ $lab_rc_c = 0 ]
}

# Races that have nothing to do with the device, and that machines this slow lose now and then:
# The erdma driver waits 10 s for the MPA reply, then it calls the peer unreachable. It notes that it waits
# only when the request is out, and does not look at a reply that was there before.
# perftest's client with -R makes a second connection before its server listens again; its sides
# leave each other at the end, when all is measured, without waiting for the last message; and it gives up
# when it finds the processor's clock uneven.
known_race() {
	lab_race="the driver missed the MPA reply"
	grep -qE 'UNREACHABLE[;,] error:? -110|Connection timed out' /tmp/client.out && return 0
	lab_race="perftest's own race"
	case $lab_client in
	ib_*) ;;
	*) return 1 ;;
	esac
	grep -qE 'CM event.* 8$|CM_EVENT_REJECTED' /tmp/client.out && return 0
	grep -q 'Correlation coefficient' /tmp/client.out /tmp/server.out && return 0
	grep -qE '^ *(#bytes|[0-9]+ +[0-9]+ +[0-9.]+)' /tmp/client.out &&
		grep -qE 'Failed to close connection|Unable to (write|read).*rdma_cm|Failed to exchange' \
			/tmp/client.out /tmp/server.out
}

# copied SERVER-SIDE CLIENT-SIDE ADDRESS WHAT: a file sent by rcopy is the same at the other side.
copied() {
	lab_what="rcopy of 3 MB, compared, $4"
	at "$2" "dd if=/dev/urandom of=/tmp/sent bs=1000 count=3001 2>/dev/null"
	for _ in 1 2 3; do
		lab_port=$((lab_port + 1))
		at "$1" "rm -f /tmp/got; rcopy -p $lab_port" >/tmp/server.out 2>&1 &
		lab_pid=$!
		at "$1" "wait_for 60 listens $lab_port"
		lab_client="rcopy /tmp/sent $3:/tmp/got -p $lab_port"
		at "$2" "$lab_client" >/tmp/client.out 2>&1
		lab_rc_c=$?
		# It serves until it is ended.
		at "$1" "killall -q rcopy"
		wait $lab_pid
		[ $lab_rc_c != 0 ] && known_race || break
		lab_what="rcopy of 3 MB, compared, $4 (again: $lab_race)"
	done
	lab_sent=$(at "$2" "md5sum </tmp/sent")
	[ $lab_rc_c = 0 ] && [ -n "$lab_sent" ] && [ "$lab_sent" = "$(at "$1" "md5sum </tmp/got")" ]
	lab_rc=$?
	[ $lab_rc = 0 ] || cat /tmp/server.out /tmp/client.out
	point $lab_rc "$lab_what"
}

# all_programs WHAT SERVER-SIDE CLIENT-SIDE ADDRESS: one after the other. rping looks at its data, ucmatose and
# perftest at their completions. Events (-e) are left to reads, beside rping and rcopy, which use nothing
# else: perftest's latency tests post once more for each event, and one comes early when a queue is armed that
# has an entry; its sends wait for credits, which on iWARP the receiver writes, and which are no event.
all_programs() {
	lab_note=$1
	lab_s=$2
	lab_c=$3
	lab_a=$4
	both() {
		pair "$1, $lab_note" "$lab_s" "$lab_c" "$lab_a" "$2" "$3"
	}
	both "rping" "rping -s -a @ -p % -C 50 -v -V" "rping -c -a @ -p % -C 50 -v -V"
	both "rping of 60000 bytes" "rping -s -a @ -p % -C 20 -S 60000 -V" \
		"rping -c -a @ -p % -C 20 -S 60000 -V"
	both "ucmatose, 4 connections" "ucmatose -b @ -p % -C 20 -c 4" \
		"ucmatose -s @ -p % -C 20 -c 4"
	while read -r line; do
		# shellcheck disable=SC2086 # a list of words
		set -- $line
		both "$line" "$1 -R -p % ${line#"$1"}" "$1 -R -p % ${line#"$1"} @"
	done <<-END
		ib_write_bw -n 500 -s 8
		ib_write_bw -n 200 -s 65536 -q 4
		ib_write_bw -n 20 -s 1048576
		ib_read_bw -n 200 -s 4096
		ib_read_bw -n 100 -s 65536 -q 4
		ib_read_bw -n 200 -s 4096 -e
		ib_send_bw -n 200 -s 65536 -q 2
		ib_send_bw -n 200 -s 4096
		ib_write_bw -n 200 -s 4096 -b
		ib_write_lat -n 500 -s 64
		ib_read_lat -n 200 -s 4096
		ib_send_lat -n 500 -s 1024
	END
}
