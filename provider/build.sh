#!/bin/bash
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#
# Builds the ERDMA provider inside an rdma-core source tree, as a plug-in for libibverbs.
#
# usage: build.sh RDMA_CORE_DIR OUT_DIR [PROVIDER_DIR]
#
# RDMA_CORE_DIR  an unpacked rdma-core source tree; it is only read
# OUT_DIR        receives liberdma-rdmavNN.so and erdma.driver, NN being the tree's private ABI;
#                OUT_DIR/build keeps the objects, so that a second run builds what changed
# PROVIDER_DIR   the provider; default: the folder "erdma" beside this script
#
# BUILD_TYPE=... sets the CMake build type (default RelWithDebInfo), CFLAGS and CC work as usual.
# JOBS=...       parallel jobs (default: one per CPU).

set -euo pipefail

die()
{
	echo "build.sh: $*" >&2
	exit 1
}

[ $# -ge 2 ] || die "usage: build.sh RDMA_CORE_DIR OUT_DIR [PROVIDER_DIR]"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
core=$(cd "$1" 2>/dev/null && pwd) || die "no such folder: $1"
mkdir -p "$2"
out=$(cd "$2" && pwd)
provider=$(cd "${3:-$here/erdma}" 2>/dev/null && pwd) || die "no such folder: ${3:-$here/erdma}"

[ -f "$core/libibverbs/driver.h" ] || die "$core is not an rdma-core source tree: it has no libibverbs/driver.h"
[ -f "$provider/CMakeLists.txt" ] || die "$provider has no CMakeLists.txt"

abi=$(sed -n 's/^set(IBVERBS_PABI_VERSION "\([0-9]*\)")/\1/p' "$core/CMakeLists.txt")
version=$(sed -n 's/^set(PACKAGE_VERSION "\(.*\)")/\1/p' "$core/CMakeLists.txt")
[ -n "$abi" ] || die "$core/CMakeLists.txt does not tell IBVERBS_PABI_VERSION"

# A tree of links to the given one, in which only providers/erdma is ours.
src=$out/src
mkdir -p "$src/providers"
link()
{
	[ "$(readlink "$2" 2>/dev/null)" = "$1" ] || { rm -f "$2"; ln -s "$1" "$2"; }
}
for entry in "$core"/* "$core"/.[a-z]*; do
	name=${entry##*/}
	[ -e "$entry" ] && [ "$name" != providers ] && link "$entry" "$src/$name"
done
for entry in "$core"/providers/*; do
	name=${entry##*/}
	[ "$name" != erdma ] && link "$entry" "$src/providers/$name"
done
link "$provider" "$src/providers/erdma"

build=$out/build
target=erdma-rdmav$abi
if [ ! -f "$build/build.ninja" ]; then
	echo "build.sh: configuring rdma-core $version (private ABI $abi) in $build"
	cmake -G Ninja -S "$src" -B "$build" -DCMAKE_BUILD_TYPE="${BUILD_TYPE:-RelWithDebInfo}" \
		-DNO_PYVERBS=1 -DNO_MAN_PAGES=1 >"$out/configure.log" 2>&1 ||
		{ cat "$out/configure.log" >&2; die "configuring rdma-core failed (see above)"; }
fi

echo "build.sh: building $target"
ninja -C "$build" -j "${JOBS:-$(nproc)}" "$target" >"$out/build.log" 2>&1 ||
	{ cat "$out/build.log" >&2; die "building $target failed (see above)"; }

# Under another name first: a running program may have the old file mapped.
lib=liberdma-rdmav$abi.so
if ! cmp -s "$build/lib/$lib" "$out/$lib"; then
	cp "$build/lib/$lib" "$out/.$lib.new"
	mv "$out/.$lib.new" "$out/$lib"
fi
printf 'driver %s/liberdma\n' "$out" >"$out/erdma.driver"
echo "build.sh: $out/$lib is ready"
