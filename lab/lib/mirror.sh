# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# shellcheck shell=bash
#
# Where Debian's packages come from.

# Prints the address of the Debian archive that this machine's apt uses already, so that a local
# mirror stays the one in use; ER_MIRROR overrides it. Fails where apt knows none.
debian_mirror() {
	local uri=${ER_MIRROR:-}
	# shellcheck disable=SC2016 # apt expands it
	[[ -n $uri ]] || uri=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' \
		'Label: Debian' 'Created-By: Packages' 2>/dev/null | head -n 1)
	# before the first update apt knows the addresses, not yet whose they are
	# shellcheck disable=SC2016
	[[ -n $uri ]] || uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
		2>/dev/null | grep -m 1 '/debian/\?$')
	if [[ -z $uri ]]; then
		printf 'no Debian archive among the sources of apt; name one in ER_MIRROR\n' >&2
		return 1
	fi
	printf '%s' "$uri"
}

# debian_tree FOLDER SUITE PACKAGE...: unpacks packages, with all that they depend on, into a folder of
# their own. Where packages of SUITE-backports are newer, those are taken; apt checks the signatures.
debian_tree() {
	local dir=$1 suite=$2 mirror packages
	shift 2
	mirror=$(debian_mirror) || return
	packages=$(IFS=, && printf '%s' "$*")
	rm -rf "$dir"
	mmdebstrap --variant=extract --include="$packages" --aptopt='Acquire::Retries "3"' \
		--aptopt="APT::Default-Release \"$suite-backports\"" "$suite" "$dir" \
		"deb $mirror $suite main" "deb $mirror $suite-backports main"
}
