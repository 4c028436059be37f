# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# shellcheck shell=bash disable=SC2034,SC2054,SC2154
#
# QEMU: this release's own, or a newer one that has vfio-user. The newer one is unpacked into the cache
# with the next release's RDMA programs, which the machines with the newest kernel use.

readonly next_release=trixie
readonly next_packages="qemu-system-x86 seabios base-files ibverbs-providers ibverbs-utils
	rdmacm-utils perftest iproute2 kmod e2fsprogs libgcc-s1"

need_qemu() {
	need qemu-system-x86 seabios
}

unpack_next_release() {
	# shellcheck disable=SC2086 # a list of words
	debian_tree "$cache/$next_release.new" $next_release $next_packages ||
		lack "no packages of Debian $next_release, see $logs/lab-build.log"
	rm -rf "$cache/$next_release.new"/{boot,var,usr/share/doc,usr/share/locale,usr/share/man}
	mv -T "$cache/$next_release.new" "$cache/$next_release"
}

need_next_release() {
	[[ ! -e $cache/$next_release ]] || return 0
	need mmdebstrap
	step "fetch a QEMU with vfio-user and the RDMA programs of Debian $next_release" \
		unpack_next_release
}

# qemu_command OLD-OR-NEW: sets the array qemu. A device node of KVM says nothing about whether a
# guest comes up on it, so the lab always emulates.
qemu_command() {
	local tree=$cache/$next_release/usr
	case $1 in
	new)
		qemu=("$tree/lib64/ld-linux-x86-64.so.2" --library-path "$tree/lib/x86_64-linux-gnu"
			"$tree/bin/qemu-system-x86_64" -L "$tree/share/qemu" -L "$tree/share/seabios")
		;;
	*)
		qemu=(qemu-system-x86_64)
		;;
	esac
	qemu+=(-accel tcg,thread=multi -cpu max -smp 2 -nodefaults -nographic)
}

readonly kernel_arguments="console=ttyS0 panic=-1 quiet mitigations=off nokaslr audit=0 apparmor=0
	lsm= noreplace-smp random.trust_cpu=on no_timer_check tsc=reliable cryptomgr.notests
	${ER_LAB_TSC:+tsc_early_khz=$ER_LAB_TSC}"
