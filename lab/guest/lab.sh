# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# shellcheck shell=sh
#
# What a test can use inside its machine. A point of a test is one line, "LAB PASS what" or
# "LAB FAIL what" (short: "ok what", "FAIL what").

# Not busybox's own, which its shell prefers.
ip() { /real/ip "$@"; }
modprobe() { /real/modprobe "$@"; }

# point STATUS WHAT
point() {
	if [ "$1" = 0 ]; then echo "LAB PASS $2"; else echo "LAB FAIL $2"; fi
}

# check WHAT COMMAND...: passes if COMMAND exits with 0 within 120 s; its output is shown if not.
check() {
	lab_what=$1
	shift
	if timeout 120 "$@" >/tmp/check.out 2>&1 </dev/null; then
		point 0 "$lab_what"
	else
		lab_rc=$?
		echo "$* : exit code $lab_rc"
		cat /tmp/check.out
		point 1 "$lab_what"
		return 1
	fi
}

# wait_for SECONDS COMMAND...: until COMMAND succeeds.
wait_for() {
	lab_tries=$(($1 * 10))
	shift
	while [ "$lab_tries" -gt 0 ]; do
		"$@" >/dev/null 2>&1 && return 0
		usleep 100000
		lab_tries=$((lab_tries - 1))
	done
	return 1
}

# netdev MAC: the network device that has it.
netdev() {
	grep -lix "$1" /sys/class/net/*/address | cut -d / -f 5
}

# has_netdev MAC
has_netdev() {
	[ -n "$(netdev "$1")" ]
}

# address MAC ADDRESS/BITS: waits for the network device and gives it the address.
address() {
	wait_for 60 has_netdev "$1"
	ip addr add "$2" dev "$(netdev "$1")"
	ip link set "$(netdev "$1")" up
}

# rdma_nodes: the device files of the RDMA devices that are there. No udev makes them.
rdma_nodes() {
	mkdir -p /dev/infiniband
	for dev in /sys/class/infiniband_verbs/uverbs* /sys/class/misc/rdma_cm; do
		[ -e "$dev/dev" ] || continue
		node=/dev/infiniband/$(basename "$dev")
		rm -f "$node"
		# shellcheck disable=SC2046 # two words
		mknod "$node" c $(tr : ' ' <"$dev/dev")
	done
}

# provider ours|debian: which of them libibverbs loads from now on.
provider() {
	for file in /providers/"$1"/*; do
		cp "$file" /tmp/provider.new
		mv /tmp/provider.new "/usr/lib/x86_64-linux-gnu/libibverbs/${file##*/}"
	done
}

# kernel_is_quiet [PATTERN]: a point on the kernel's log: no warning or worse since the test started,
# but for what it says of every driver from outside its package and of slow emulation,
# and PATTERN.
kernel_is_quiet() {
	dmesg -r | grep -E '^<[0-4]>' | grep -vE \
		'module taints kernel|module verification failed|tainting kernel|hrtimer: interrupt took'"${1:+|$1}" >/tmp/dmesg.bad
	dmesg | grep -E 'BUG|WARNING|Oops|Call Trace|stall' >>/tmp/dmesg.bad
	if [ -s /tmp/dmesg.bad ]; then
		cat /tmp/dmesg.bad
		point 1 "the kernel's log is free of warnings"
	else
		point 0 "the kernel's log is free of warnings"
	fi
}

# serve_host PORT: the host side of the test may run commands in this machine (lib/boot.sh, guest),
# or another machine (pairs.sh, at), until it says "lab_done".
serve_host() {
	nc -ll -p "$1" -e /bin/serve &
	lab_server=$!
	echo "LAB READY"
	while [ ! -e /run/lab-done ]; do
		usleep 200000
	done
	kill $lab_server
}

lab_done() {
	touch /run/lab-done
}
