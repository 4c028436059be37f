# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# shellcheck shell=bash disable=SC2034
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

# private_apt FOLDER SUITE TYPES: an apt that reads and writes in FOLDER only, so it works for any user, and the
# system's own keeps its sources and lists. Sets apt_options; the signed index is checked as ever.
private_apt() {
	local dir=$1 keyring mirror
	for keyring in /usr/share/keyrings/debian-archive-keyring.{pgp,gpg}; do
		[[ -e $keyring ]] && break
	done
	[[ -e $keyring ]] || { echo "$keyring is missing: is this Debian?"; return 1; }
	mirror=$(debian_mirror) || return
	mkdir -p "$dir"/lists/partial "$dir"/cache/archives/partial || return
	printf '%s\n' "Types: $3" "URIs: $mirror" "Suites: $2" 'Components: main' \
		"Signed-By: $keyring" >"$dir/source.sources" || return
	apt_options=(-q -o "Dir::Etc::sourcelist=$dir/source.sources" -o Dir::Etc::sourceparts=/dev/null
		-o "Dir::State::lists=$dir/lists" -o "Dir::Cache=$dir/cache" -o Debug::NoLocking=1
		-o "APT::Sandbox::User=$(id -un)" -o Acquire::Languages=none -o Acquire::Retries=3)
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
