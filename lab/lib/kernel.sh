# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# shellcheck shell=bash disable=SC2034,SC2154
#
# Two kernels of the distribution: this release's, and its newest, which is the next release's backport. With
# them those of their drivers that the packages leave out, built from the packaged source without a
# change. All of it is kept in $cache/VERSION: vmlinux, and root with the modules.

# Drivers that are in the kernel's source and not in its package: NAME=FOLDER.
readonly extra_modules="siw=sw/siw erdma=hw/erdma vmw_pvrdma=hw/vmw_pvrdma"
readonly extra_config="CONFIG_RDMA_SIW=m CONFIG_INFINIBAND_ERDMA=m CONFIG_INFINIBAND_VMWARE_PVRDMA=m"

# choose_kernel release|newest: which one the functions of machine.sh take: sets kver, kernel, and
# userland, the folder of the release whose programs go with it, empty for this one.
choose_kernel() {
	kver=$(cat "$cache/$1-kernel" 2>/dev/null || true)
	kernel=$cache/${kver:-none}
	userland=
	[[ $1 == release ]] || userland=$cache/$next_release
}

# download PACKAGE DIR: the package's file, in the version apt would install. Prints its path.
download() {
	local dir=$2
	mkdir -p "$dir"
	(cd "$dir" && apt-get -q -o Acquire::Retries=3 download "$1" >>"$logs/lab-build.log" 2>&1) ||
		lack "apt could not download $1, see $logs/lab-build.log"
	find "$dir" -name "$1_*.deb" -print -quit
}

# decompress_kernel FROM TO: a compressed image unpacks itself for six seconds each time when emulated.
decompress_kernel() {
	python3 - "$1" "$2" <<-'PY'
	import lzma, subprocess, sys
	data = open(sys.argv[1], "rb").read()
	def xz(packed):
	    try:
	        return lzma.LZMADecompressor().decompress(packed)
	    except lzma.LZMAError:
	        return b""
	def zstd(packed):
	    # What follows the stream makes it fail at the end.
	    return subprocess.run(["zstd", "-dcq"], input=packed, stdout=subprocess.PIPE,
	                          stderr=subprocess.DEVNULL).stdout
	for magic, unpack in ((b"\xfd7zXZ\x00", xz), (b"\x28\xb5\x2f\xfd", zstd)):
	    at = data.find(magic)
	    while at >= 0:
	        image = unpack(data[at:])
	        if image[:4] == b"\x7fELF":
	            open(sys.argv[2], "wb").write(image)
	            sys.exit()
	        at = data.find(magic, at + 1)
	sys.exit("no compressed kernel in " + sys.argv[1])
	PY
}

# copy_drivers SOURCE-TREE FOLDER: the extra drivers side by side, ready for make. A siw that asks for
# CRCs is among them: its switch is a constant.
copy_drivers() {
	local entry dir
	mkdir -p "$2"
	for entry in $extra_modules; do
		dir=$2/${entry%%=*}
		cp -r "$1/drivers/infiniband/${entry#*=}" "$dir"
		printf 'obj-m += %s/\n' "${entry%%=*}" >>"$2/Kbuild"
	done
	cp -r "$2/siw" "$2/siw_crc"
	sed -i 's/^const bool mpa_crc_required;/const bool mpa_crc_required = true;/' \
		"$2/siw_crc/siw_main.c"
	sed -i 's/siw\.o/siw_crc.o/; s/siw-y/siw_crc-y/' "$2/siw_crc/Makefile"
	printf 'obj-m += siw_crc/\n' >>"$2/Kbuild"
}

# install_drivers FOLDER ROOT VERSION: as the packages have their modules.
install_drivers() {
	mkdir -p "$2/lib/modules/$3/extra"
	find "$1" -name '*.ko' -exec strip --strip-debug {} \; \
		-exec cp {} "$2/lib/modules/$3/extra/" \;
	depmod -b "$2" "$3"
}

# --------------------------------------------------------------------------------------------
# This release's

newest_of_release() {
	apt-cache depends linux-image-amd64 2>/dev/null |
		awk '/Depends: linux-image/ { sub("linux-image-", "", $2); print $2; exit }'
}

unpack_release_kernel() {
	local deb
	rm -rf "$kernel"
	deb=$(download "linux-image-$kver" "$kernel/debs")
	dpkg-deb -x "$deb" "$kernel/root"
	decompress_kernel "$kernel/root/boot/vmlinuz-$kver" "$kernel/vmlinux.new"
	rm -rf "$kernel/debs" "$kernel/root"/{boot,usr}
	depmod -b "$kernel/root" "$kver"
	mv "$kernel/vmlinux.new" "$kernel/vmlinux"
}

# The one that was fetched, or else the newest of this release.
need_release_kernel() {
	choose_kernel release
	[[ ! -e $kernel/vmlinux ]] || return 0
	[[ -n ${ER_NO_INSTALL:-} ]] || update_apt
	kver=$(newest_of_release)
	[[ -n $kver ]] || lack "apt knows no linux-image-amd64, and none is in $cache"
	kernel=$cache/$kver
	step "fetch Linux $kver" unpack_release_kernel
	echo "$kver" >"$cache/release-kernel"
}

# Against the packages' headers.
build_release_drivers() {
	local src=$kernel/src package deb headers series=${kver%%.*}
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
	copy_drivers "$src" "$src/extra"
	# shellcheck disable=SC2086 # a list of words
	make -j"$jobs" -C "$headers" M="$src/extra" $extra_config modules
	install_drivers "$src/extra" "$kernel/root" "$kver"
	rm -rf "$src"
	touch "$kernel/extra-built"
}

need_release_drivers() {
	choose_kernel release
	[[ ! -e $kernel/extra-built ]] || return 0
	need make gcc-12 xz-utils
	step "build Linux $kver's siw, erdma and vmw_pvrdma drivers" build_release_drivers
}

# --------------------------------------------------------------------------------------------
# The newest

# Its headers want the next release's compiler and libraries, so that is built in there.
readonly newest_packages="base-files dash bash coreutils sed grep mawk findutils diffutils make gcc-14
	linux-image-amd64 linux-headers-amd64 linux-source"

unpack_newest_kernel() {
	local tree=$cache/newest.tree new=$cache/newest.new source as_user=()
	rm -rf "$new"
	# shellcheck disable=SC2086 # a list of words
	debian_tree "$tree" $next_release $newest_packages ||
		lack "no kernel of Debian $next_release-backports, see $logs/lab-build.log"
	kver=$(basename "$tree"/usr/src/linux-headers-*-amd64)
	kver=${kver#linux-headers-}
	mkdir -p "$new/root/lib/modules"
	decompress_kernel "$(find "$tree/boot/vmlinuz-$kver" "$tree/usr/lib/modules/$kver/vmlinuz" \
		2>/dev/null | head -n 1)" "$new/vmlinux"
	source=$(basename "$tree"/usr/src/linux-source-*.tar.xz .tar.xz)
	mkdir "$tree/build"
	tar -xJ -C "$tree/build" --strip-components=1 --wildcards -f "$tree/usr/src/$source.tar.xz" \
		"$source/drivers/infiniband/*"
	copy_drivers "$tree/build" "$tree/build/extra"
	# What the package's scripts would have done.
	ln -sf mawk "$tree/usr/bin/awk"
	((EUID == 0)) || as_user=(--map-root-user)
	# shellcheck disable=SC2086 # a list of words
	unshare "${as_user[@]}" --mount --pid --fork --mount-proc="$tree/proc" chroot "$tree" \
		make -j"$jobs" -C "/usr/src/linux-headers-$kver" M=/build/extra $extra_config modules
	mv "$tree/usr/lib/modules/$kver" "$new/root/lib/modules/"
	rm -f "$new/root/lib/modules/$kver"/{build,source}
	install_drivers "$tree/build/extra" "$new/root" "$kver"
	rm -rf "$tree" "${cache:?}/$kver"
	mv -T "$new" "$cache/$kver"
	echo "$kver" >"$cache/newest-kernel"
}

need_newest_kernel() {
	choose_kernel newest
	[[ ! -e $kernel/vmlinux ]] || return 0
	need mmdebstrap zstd xz-utils binutils kmod
	step "fetch Debian's newest Linux and build its siw, erdma and vmw_pvrdma drivers" \
		unpack_newest_kernel
}
