# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# shellcheck shell=bash disable=SC2034
#
# What all parts of the lab share: where things are, saying what happens, packages.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${ER_BUILD:-$top/build}
cache=${ER_CACHE:-$top/.cache}/lab
logs=${ER_LAB_LOGS:-$build/lab}
jobs=${ER_JOBS:-$(nproc)}
# How long a machine may live, in seconds, unless its test sets another limit.
limit=${ER_LAB_SECONDS:-300}

# Exit code of what fails because something cannot be had here: a download, a package, a right. Its
# reason is in $logs/reason. Tests that need it are skipped.
readonly unavailable=75

die() {
	printf 'lab: %s\n' "$*" >&2
	printf '%s\n' "$*" >"$logs/reason"
	exit 1
}

lack() {
	printf 'lab: %s\n' "$*" >&2
	printf '%s\n' "$*" >"$logs/reason"
	exit $unavailable
}

say() {
	printf '%s\n' "$*"
}

# need PACKAGE...: installs those that are missing, and only those.
need() {
	local missing=() package
	for package; do
		[[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
			missing+=("$package")
	done
	((${#missing[@]})) || return 0
	[[ -z ${ER_NO_INSTALL:-} ]] || lack "these packages are missing: ${missing[*]}"
	say "  installing ${missing[*]}"
	update_apt
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Acquire::Retries=3 \
		-o DPkg::Lock::Timeout=300 install --no-install-recommends "${missing[@]}" \
		>>"$logs/lab-build.log" 2>&1 ||
		lack "apt could not install ${missing[*]}, see $logs/lab-build.log"
}

# Is there somebody who can be asked for a password?  Later the output may go to a log.
terminal=
[[ ! -t 0 || ! -t 1 ]] || terminal=1

as_root() {
	if ((EUID == 0)); then
		"$@"
	elif ! command -v sudo >/dev/null; then
		lack "as root, run: $*"
	elif [[ -z $terminal ]] && ! sudo -n true 2>/dev/null; then
		# nobody is there to be asked
		lack "sudo wants a password; as root, run: $*"
	else
		sudo "$@"
	fi
}

# Old lists name packages that are gone.  A mirror that is away may not be needed after all.
update_apt() {
	as_root apt-get -q -o DPkg::Lock::Timeout=300 update >>"$logs/lab-build.log" 2>&1 || true
}

# step TEXT COMMAND...: runs it with its output in the build log, and says how long it took. Ends the
# shell with the exit code of a COMMAND that fails. In the background, as bash ignores errors in the
# middle of a function whose result is looked at.
step() {
	local text=$1 start=$SECONDS rc=0
	shift
	printf '  %s ... ' "$text"
	rm -f "$logs/reason"
	(
		set -euo pipefail
		"$@"
	) >>"$logs/lab-build.log" 2>&1 </dev/null &
	wait $! || rc=$?
	if ((rc)); then
		printf 'FAILED\n'
		tail -n 20 "$logs/lab-build.log" | sed 's/^/    | /'
		[[ -e $logs/reason ]] || printf 'could not %s\n' "$text" >"$logs/reason"
		exit $rc
	fi
	printf '%d s\n' $((SECONDS - start))
}
