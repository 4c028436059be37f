# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# shellcheck shell=bash
#
# What all parts of the lab share: where things are, saying what happens, packages.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${ER_BUILD:-$top/build}
cache=${ER_CACHE:-$top/.cache}/lab
logs=$build/logs
jobs=${ER_JOBS:-$(nproc)}
# How long a machine may live, in seconds, unless its test sets another limit.
limit=${ER_LAB_SECONDS:-300}

die() {
	printf 'lab: %s\n' "$*" >&2
	exit 1
}

say() {
	printf '%s\n' "$*"
}

# need PACKAGE...: installs those that are missing, and only those.
need() {
	local missing=() package as_root=()
	for package; do
		[[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
			missing+=("$package")
	done
	((${#missing[@]})) || return 0
	[[ -z ${ER_NO_INSTALL:-} ]] || die "these packages are missing: ${missing[*]}"
	if ((EUID)); then
		command -v sudo >/dev/null ||
			die "as root, run: apt-get install --no-install-recommends ${missing[*]}"
		as_root=(sudo)
	fi
	say "  installing ${missing[*]}"
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
		install --no-install-recommends "${missing[@]}" >>"$logs/lab-apt.log" 2>&1 ||
		die "apt could not install ${missing[*]}, see $logs/lab-apt.log"
}

# step TEXT COMMAND...: runs it with its output in the build log, and says how long it took.
step() {
	local text=$1 start=$SECONDS
	shift
	printf '  %s ... ' "$text"
	if ! "$@" >>"$logs/lab-build.log" 2>&1 </dev/null; then
		printf 'FAILED\n'
		tail -n 20 "$logs/lab-build.log" | sed 's/^/    | /'
		exit 1
	fi
	printf '%d s\n' $((SECONDS - start))
}
