# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# shellcheck shell=bash disable=SC2034,SC2054,SC2154
#
# QEMU: this release's own, or a newer one that has vfio-user, unpacked into the cache.

readonly qemu_new_suite=trixie-backports

need_qemu() {
	need qemu-system-x86 seabios
}

unpack_qemu_new() {
	local mirror
	mirror=$(debian_mirror)
	rm -rf "$cache/qemu" "$cache/qemu.new"
	mmdebstrap --variant=extract --include=qemu-system-x86,seabios \
		--aptopt="APT::Default-Release \"$qemu_new_suite\"" trixie "$cache/qemu.new" \
		"deb $mirror trixie main" "deb $mirror $qemu_new_suite main"
	rm -rf "$cache/qemu.new"/{boot,var,usr/share/doc,usr/share/locale}
	mv "$cache/qemu.new" "$cache/qemu"
}

need_qemu_new() {
	[[ ! -e $cache/qemu ]] || return 0
	need mmdebstrap
	step "fetch a QEMU with vfio-user from $qemu_new_suite" unpack_qemu_new
}

# qemu_command OLD-OR-NEW: sets the array qemu. A device node of KVM says nothing about whether a
# guest comes up on it, so the lab always emulates.
qemu_command() {
	case $1 in
	new)
		qemu=("$cache/qemu/usr/lib64/ld-linux-x86-64.so.2"
			--library-path "$cache/qemu/usr/lib/x86_64-linux-gnu"
			"$cache/qemu/usr/bin/qemu-system-x86_64"
			-L "$cache/qemu/usr/share/qemu" -L "$cache/qemu/usr/share/seabios")
		;;
	*)
		qemu=(qemu-system-x86_64)
		;;
	esac
	qemu+=(-accel tcg,thread=multi -cpu max -smp 2 -nodefaults -nographic -no-reboot)
}

readonly kernel_arguments="console=ttyS0 panic=-1 quiet mitigations=off nokaslr audit=0 apparmor=0
	lsm= noreplace-smp random.trust_cpu=on no_timer_check tsc=reliable cryptomgr.notests"
