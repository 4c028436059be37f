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

# check WHAT COMMAND...: passes if COMMAND exits with 0 within 60 s; its output is shown if not.
check() {
	lab_what=$1
	shift
	if timeout 60 "$@" >/tmp/check.out 2>&1 </dev/null; then
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

# serve_host PORT: the host side of the test may run commands in this machine (lib/boot.sh, guest)
# until it says "lab-done".
serve_host() {
	rm -f /run/lab-done
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
