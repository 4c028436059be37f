#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#
#   boot.sh TEST-FOLDER WORK-FOLDER KERNEL-FOLDER GUEST-LOG HOST-LOG [PEER-KERNEL-FOLDER]
#
# Boots a test's machine and runs the host side of the test beside it. lab/run calls it as the first
# process of network, mount and process namespaces of its own: the machine and the programs on the
# host side reach each other and nothing else, and nothing outlives the test.
#
# The host side is an optional file `host` in the test's folder. It may set
#   qemu_version=new    a QEMU that has vfio-user
#   machine=(...)       options for QEMU beside the usual ones
#   memory=1G
#   reboots=1           the machine may reboot, where that of other tests ends
#   network=1           a virtio-net in the machine ($guest_ip/24, which its test sets), whose
#                       other end is tap0 here ($host_ip)
# and define
#   before()            runs before the machine starts
#   during()            runs beside it
#   after()             runs when it has ended
# which use: point, check, guest, wait_guest and $work. A test with two machines starts the other one
# itself, by start_peer.
#
# shellcheck disable=SC2034,SC2154 # of or for the files it reads
set -uo pipefail
# shellcheck source=lab/lib/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=lab/lib/qemu.sh
. "$top/lab/lib/qemu.sh"

test=$1 work=$2 kernel=$3 guest_log=$4 host_log=$5 peer_kernel=${6:-}
host_ip=10.77.0.1 guest_ip=10.77.0.2
qemu_version=old machine=() memory=768M network='' reboots=''
before() { :; }
during() { :; }
after() { :; }

exec >>"$host_log" 2>&1

# point STATUS WHAT
point() {
	if (($1 == 0)); then echo "LAB PASS $2"; else echo "LAB FAIL $2"; fi
}

# check WHAT COMMAND...
check() {
	local what=$1 rc=0
	shift
	timeout -k 5 60 "$@" >"$work/check.out" 2>&1 </dev/null || rc=$?
	if ((rc)); then
		echo "$* : exit code $rc"
		cat "$work/check.out"
	fi
	point $rc "$what"
	return $rc
}

# guest COMMAND-LINE: runs it in the machine, with its output and exit code.
guest() {
	local out
	out=$(timeout -k 5 "${guest_seconds:-70}" busybox nc "$guest_ip" 7000 <<<"$1")
	sed '/^lab-rc /d' <<<"$out"
	return "$(sed -n 's/^lab-rc //p' <<<"${out:-lab-rc 124}" | tail -n 1 | grep . || echo 124)"
}

# wait_guest SECONDS: until the machine's serve_host is up.
wait_guest() {
	local until=$((SECONDS + $1))
	until grep -q 'LAB READY' "$guest_log" 2>/dev/null &&
		timeout 5 busybox nc "$guest_ip" 7000 <<<true 2>/dev/null | grep -q lab-rc; do
		((SECONDS < until)) || return 1
		sleep 0.2
	done
}

# start_peer LOG OPTION...: a second machine with the test's other kernel, if it has one; the kernel's
# command line says lab_role=peer. Sets peer to its process.
start_peer() {
	local log=$1 root=$work/peer
	shift
	[[ -n $peer_kernel ]] || root=$work/root
	qemu_command $qemu_version
	# shellcheck disable=SC2086,SC2116 # lists of words
	"${qemu[@]}" -no-reboot -m $memory -serial "file:$log" \
		-kernel "${peer_kernel:-$kernel}/vmlinux" -initrd "$root.cpio" \
		-append "$(echo $kernel_arguments) lab_role=peer" "$@" &
	peer=$!
}

mount -t sysfs sysfs /sys
ip link set lo up
host=${ER_LAB_HOST:-$test/host}
if [[ -e $host ]]; then
	# shellcheck source=/dev/null
	. "$host"
fi
if [[ -n $network ]]; then
	ip tuntap add tap0 mode tap
	ip addr add "$host_ip/24" dev tap0
	ip link set tap0 up
	# shellcheck disable=SC2054 # QEMU's commas
	machine+=(-netdev tap,id=net0,ifname=tap0,script=no,downscript=no
		-device "virtio-net-pci,netdev=net0,mac=52:54:00:00:77:02,romfile=,speed=10000,duplex=full")
fi
before
qemu_command $qemu_version
# shellcheck disable=SC2086,SC2116,SC2206 # lists of words
qemu+=(-m $memory -serial "file:$guest_log" -kernel "$kernel/vmlinux" -initrd "$work/root.cpio"
	-append "$(echo $kernel_arguments)")
[[ -n $reboots ]] || qemu+=(-no-reboot)
"${qemu[@]}" "${machine[@]}" &
machine_pid=$!
during &
during_pid=$!
wait $machine_pid
# A host side that waits for a machine that is gone waits in vain.
for ((i = 0; i < 50; i++)); do
	kill -0 $during_pid 2>/dev/null || break
	sleep 0.2
done
kill $during_pid 2>/dev/null
after
exit 0
