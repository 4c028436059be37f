# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# shellcheck shell=bash disable=SC2154
#
# The distribution's kernel, and those of its drivers that it does not build. All of it is kept in
# $cache/VERSION: vmlinux, root (the unpacked package, with the extra modules in it), src.

# Drivers that are in the kernel's source and not in its package: NAME=FOLDER.
readonly extra_modules="siw=sw/siw erdma=hw/erdma vmw_pvrdma=hw/vmw_pvrdma"

# download PACKAGE DIR: the package's file, in the version apt would install. Prints its path.
download() {
	local dir=$2
	mkdir -p "$dir"
	(cd "$dir" && apt-get -q -o Acquire::Retries=3 download "$1" >>"$logs/lab-build.log" 2>&1) ||
		die "apt could not download $1, see $logs/lab-build.log"
	find "$dir" -name "$1_*.deb" -print -quit
}

newest_kernel() {
	apt-cache depends linux-image-amd64 2>/dev/null |
		awk '/Depends: linux-image/ { sub("linux-image-", "", $2); print $2; exit }'
}

# Sets kver and kernel: the one that was fetched, or else the newest of this release.
find_kernel() {
	kver=$(cat "$cache/release-kernel" 2>/dev/null || true)
	if [[ -z $kver || ! -e $cache/$kver/vmlinux ]]; then
		[[ -n ${ER_NO_INSTALL:-} ]] || update_apt
		kver=$(newest_kernel)
	fi
	[[ -n $kver ]] || die "apt knows no linux-image-amd64, and none is in $cache"
	kernel=$cache/$kver
}

unpack_kernel() {
	local deb
	rm -rf "$kernel"
	deb=$(download "linux-image-$kver" "$kernel/debs")
	dpkg-deb -x "$deb" "$kernel/root"
	# The compressed image unpacks itself for six seconds each time when emulated.
	python3 - "$kernel/root/boot/vmlinuz-$kver" "$kernel/vmlinux.new" <<-'PY'
	import lzma, sys
	data = open(sys.argv[1], "rb").read()
	at = -1
	while True:
	    at = data.find(b"\xfd7zXZ\x00", at + 1)
	    if at < 0:
	        sys.exit("no xz stream with a kernel in " + sys.argv[1])
	    try:
	        image = lzma.LZMADecompressor().decompress(data[at:])
	    except lzma.LZMAError:
	        continue
	    if image[:4] == b"\x7fELF":
	        break
	open(sys.argv[2], "wb").write(image)
	PY
	rm -rf "$kernel/debs"
	depmod -b "$kernel/root" "$kver"
	mv "$kernel/vmlinux.new" "$kernel/vmlinux"
}

need_kernel() {
	find_kernel
	[[ -e $kernel/vmlinux ]] || step "fetch Linux $kver" unpack_kernel
	echo "$kver" >"$cache/release-kernel"
}

# The drivers, unmodified, against the packages' headers. A siw that asks for CRCs is built too: in
# this kernel its switch is a constant.
build_extra_modules() {
	local src=$kernel/src package deb dir headers series=${kver%%.*} entry
	series=$series.$(cut -d. -f2 <<<"$kver")
	rm -rf "$src"
	for package in "linux-headers-$kver" "linux-headers-${kver%-*}-common" "linux-kbuild-$series" \
		linux-compiler-gcc-12-x86; do
		deb=$(download "$package" "$src/debs")
		dpkg-deb -x "$deb" "$src/root"
	done
	headers=$src/root/usr/src/linux-headers-$kver
	# The one absolute path in them.
	sed -i "s|^include /usr/src/|include $src/root/usr/src/|" "$headers/Makefile"
	deb=$(download "linux-source-$series" "$src/debs")
	dpkg-deb --fsys-tarfile "$deb" | tar -xO "./usr/src/linux-source-$series.tar.xz" |
		tar -xJ -C "$src" --strip-components=1 --wildcards \
			"linux-source-$series/drivers/infiniband/*"
	rm -rf "$src/debs"
	mkdir "$src/extra"
	for entry in $extra_modules; do
		dir=$src/extra/${entry%%=*}
		cp -r "$src/drivers/infiniband/${entry#*=}" "$dir"
		printf 'obj-m += %s/\n' "${entry%%=*}" >>"$src/extra/Kbuild"
	done
	cp -r "$src/extra/siw" "$src/extra/siw_crc"
	sed -i 's/^const bool mpa_crc_required;/const bool mpa_crc_required = true;/' \
		"$src/extra/siw_crc/siw_main.c"
	sed -i 's/siw\.o/siw_crc.o/; s/siw-y/siw_crc-y/' "$src/extra/siw_crc/Makefile"
	printf 'obj-m += siw_crc/\n' >>"$src/extra/Kbuild"
	make -j"$jobs" -C "$headers" M="$src/extra" CONFIG_RDMA_SIW=m CONFIG_INFINIBAND_ERDMA=m \
		CONFIG_INFINIBAND_VMWARE_PVRDMA=m modules
	mkdir -p "$kernel/root/lib/modules/$kver/extra"
	find "$src/extra" -name '*.ko' -exec strip --strip-debug {} \; \
		-exec cp {} "$kernel/root/lib/modules/$kver/extra/" \;
	depmod -b "$kernel/root" "$kver"
	rm -rf "$src"
	touch "$kernel/extra-built"
}

need_extra_modules() {
	[[ ! -e $kernel/extra-built ]] || return 0
	need make gcc-12 xz-utils
	step "build the kernel's siw, erdma and vmw_pvrdma drivers" build_extra_modules
}
