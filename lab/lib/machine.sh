# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# shellcheck shell=bash disable=SC2154
#
# Makes the initramfs of a test: busybox, iproute2, and what the test's lists ask for. Programs and
# libraries are this system's, or those of the release unpacked in $userland.

# find_program NAME: its path; this project's own come first.
find_program() {
	local dir
	[[ $1 != /* ]] || { printf '%s' "${userland:-}$1"; return; }
	for dir in "$build/bin" "$build/lib" "$build/lab/bin" "${userland:-}"/{usr/,}{sbin,bin}; do
		[[ ! -e $dir/$1 ]] || { printf '%s' "$dir/$1"; return; }
	done
	die "there is no program $1"
}

# add_libraries ROOT FILE: all that FILE is linked with.
add_libraries() {
	local lib to
	linked_with "$2" | awk '{ for (i = 1; i <= NF; i++) if ($i ~ /^\//) print $i }' |
		while read -r lib; do
			to=$1${lib#"${userland:-}"}
			# This project's, which its programs find beside themselves.
			[[ $lib != "$build"/* ]] || to=$1/lib/x86_64-linux-gnu/${lib##*/}
			[[ -e $to ]] || install -D "$lib" "$to"
		done
}

linked_with() {
	if [[ -z ${userland:-} ]]; then
		ldd "$1" 2>/dev/null
	else
		"$userland/lib64/ld-linux-x86-64.so.2" --library-path \
			"$userland/usr/lib/x86_64-linux-gnu" --list "$1" 2>/dev/null |
			sed 's|^[[:space:]]*/lib64/ld-linux.* => ||'
		# The loader itself, where programs look for it.
		echo "$userland/lib64/ld-linux-x86-64.so.2"
	fi
}

add_program() {
	local root=$1 path
	path=$(find_program "$2")
	install -D "$path" "$root/${3:-bin}/$(basename "$path")"
	add_libraries "$root" "$path"
}

# add_provider ROOT NAME [FILE]: libibverbs's provider NAME, or FILE in its place. The other ones
# stay away, as each without its library is complained about by every program.
add_provider() {
	local root=$1 name=$2 dir=/usr/lib/x86_64-linux-gnu/libibverbs file
	file=${3:-${userland:-}$dir/lib$name-rdmav34.so}
	[[ -e $file ]] || die "there is no provider $file"
	install -D "$file" "$root$dir/lib$name-rdmav34.so"
	add_libraries "$root" "$file"
	mkdir -p "$root/etc/libibverbs.d"
	echo "driver $name" >"$root/etc/libibverbs.d/$name.driver"
	# pthread_exit() loads it by name.
	install -D "${userland:-}/lib/x86_64-linux-gnu/libgcc_s.so.1" \
		"$root/lib/x86_64-linux-gnu/libgcc_s.so.1"
}

# add_both_providers ROOT NAME: lets the machine's function `provider` choose.
add_both_providers() {
	local root=$1 name=$2 file=lib$2-rdmav34.so
	add_provider "$root" "$name"
	add_libraries "$root" "$build/lib/$file"
	install -D "$root/usr/lib/x86_64-linux-gnu/libibverbs/$file" "$root/providers/debian/$file"
	install -D "$build/lib/$file" "$root/providers/ours/$file"
}

# add_module ROOT NAME: a module with those it depends on.
add_module() {
	local root=$1 path rel list
	list=$(modprobe -d "$kernel/root" -S "$kver" --show-depends "$2") ||
		die "Linux $kver has no module $2"
	awk '$1 == "insmod" { print $2 }' <<<"$list" | while read -r path; do
		rel=${path#"$kernel/root"}
		[[ -e $root$rel ]] || install -D -m 644 "$path" "$root$rel"
	done
}

# compile TEST-FOLDER: programs that only this test needs, into $build/lab/bin, also for its host side.
compile() {
	local source program
	for source in "$1"/*.c; do
		[[ -e $source ]] || return 0
		program=$build/lab/bin/$(basename "$source" .c)
		[[ ! $program -nt $source ]] || continue
		mkdir -p "$build/lab/bin"
		gcc -std=gnu17 -O2 -g -Wall -Wextra -Werror -o "$program.$$" "$source" \
			-lrdmacm -libverbs || return
		mv "$program.$$" "$program"
	done
}

# each_line FILE: its lines but comments and empty ones.
each_line() {
	sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$1"
}

# make_machine ROOT TEST-FOLDER: fills ROOT and packs it into ROOT.cpio.
make_machine() {
	local root=$1 test=$2 word name modules
	mkdir -p "$root"/{bin,real,dev,proc,sys,run,tmp,etc,var}
	# As the release has it, whose modprobe looks below /usr.
	if [[ -n ${userland:-} ]]; then
		mkdir -p "$root"/usr/{lib,lib64}
		ln -s usr/lib usr/lib64 "$root"
	fi
	ln -s ../run "$root/var/run"
	install /bin/busybox "$root/bin/busybox"
	for name in $(/bin/busybox --list); do
		[[ $name == busybox ]] || ln -sf busybox "$root/bin/$name"
	done
	# busybox's shell runs its own programs of these names, whatever PATH says; guest/lab.sh has
	# functions for them.
	add_program "$root" ip real
	add_program "$root" modprobe real
	rm -f "$root/bin/rdma"
	add_program "$root" rdma
	each_line "$test/programs" | while read -r word name; do
		rm -f "$root/bin/$word"
		case $word in
		provider) add_provider "$root" "$name" ;;
		both-providers) add_both_providers "$root" "$name" ;;
		our-provider) add_provider "$root" "$name" "$build/lib/lib$name-rdmav34.so" ;;
		*) add_program "$root" "$word" ;;
		esac
	done
	# rxe and siw ask for these without saying so. Newer kernels have neither.
	for name in crc32c_generic crc32_generic; do
		modprobe -d "$kernel/root" -S "$kver" -qn "$name" && add_module "$root" "$name"
	done
	mapfile -t modules < <(each_line "$test/modules")
	for name in "${modules[@]}"; do
		add_module "$root" "$name"
	done
	cp "$kernel/root/lib/modules/$kver"/modules.{order,builtin,builtin.modinfo} \
		"$root/lib/modules/$kver/"
	depmod -b "$root" "$kver"
	printf 'root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n' >"$root/etc/passwd"
	printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
	printf '127.0.0.1 localhost lab\n' >"$root/etc/hosts"
	install "$top/lab/guest/init" "$root/init"
	install -m 644 "$top/lab/guest/lab.sh" "$root/etc/lab.sh"
	install -m 644 "$top/lab/guest/pairs.sh" "$root/etc/pairs.sh"
	install "$top/lab/guest/serve" "$root/bin/serve"
	install "$test/test" "$root/test"
	(cd "$root" && find . | cpio -o -H newc --quiet) >"$root.cpio"
}
