#!/usr/bin/env bash
# Runs Emacs 30.1 beside the machine's own Emacs: Debian's backport of it, unpacked in a cache, never installed.
#   emacs30.sh ARGS...    exit 77 and one line `SKIPPED emacs-30: reason` where it cannot be had
set -euo pipefail

cache=${DWELL_EMACS30_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/dwell-test/emacs30}
version='1:30.1+1-6~bpo12+1'

skip() { echo "SKIPPED emacs-30: $1" >&2; exit 77; }

fetch() {
  command -v apt-get >/dev/null && command -v dpkg >/dev/null || skip 'no apt here'
  [ "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" = bookworm ] || skip 'not Debian 12, the backport is made for it'
  # The mirror is whatever apt already uses for Debian itself.
  local mirror key
  mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' | awk '$1 == "bookworm" { print $2; exit }')
  [ -n "$mirror" ] || skip 'apt has no Debian 12 source'
  key=/usr/share/keyrings/debian-archive-keyring.gpg
  rm -rf "$cache"
  mkdir -p "$cache"/{lists/partial,archives/partial,debs,root}
  printf "deb [signed-by=$key] $mirror %s main\n" bookworm bookworm-backports > "$cache/sources.list"
  local apt=(apt-get -qq -o Dir::Etc::sourcelist="$cache/sources.list" -o Dir::Etc::sourceparts=/dev/null
    -o Dir::State::lists="$cache/lists" -o Dir::Cache="$cache" -o Acquire::Languages=none -o APT::Sandbox::User="$(id -un)")
  "${apt[@]}" update >&2 || skip 'the backports index did not download'
  # libtree-sitter0 is the one library that Debian 12's own Emacs does without.
  (cd "$cache/debs" && "${apt[@]}" download {emacs-nox,emacs-bin-common,emacs-common,emacs-el}="$version" libtree-sitter0 >&2) ||
    skip "emacs-nox $version did not download"
  for deb in "$cache"/debs/*.deb; do dpkg -x "$deb" "$cache/root"; done
  rm -rf "$cache"/{debs,lists,archives} "$cache"/*.bin
  touch "$cache/.complete"
}

mkdir -p "$(dirname "$cache")"
exec 9> "$cache.lock"
flock 9 # two runs must not unpack at once
[ -e "$cache/.complete" ] || fetch
exec 9>&-

usr=$cache/root/usr
share=$usr/share/emacs/30.1
LD_LIBRARY_PATH=$(dirname "$usr"/lib/*/libtree-sitter.so.0)
export LD_LIBRARY_PATH
# The other libraries are those of Debian's own emacs-nox: same names on Debian 12.
absent=$(ldd "$usr/bin/emacs-nox" | awk '/not found/ { print $1 }' | paste -sd' ')
[ -z "$absent" ] || skip "it needs $absent: install emacs-nox"
# It was built to live in /usr: tell it where it lies.
EMACSDATA=$share/etc
EMACSDOC=$share/etc
EMACSPATH=$(dirname "$usr"/libexec/emacs/30.1/*/*.pdmp)
EMACSLOADPATH=$(find "$share/lisp" -type d ! -path '*/obsolete*' -printf '%p:' | sed 's/:$//')
export EMACSDATA EMACSDOC EMACSPATH EMACSLOADPATH
exec "$usr/bin/emacs-nox" --dump-file="$(ls "$EMACSPATH"/*.pdmp)" "$@"
