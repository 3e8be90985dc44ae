#!/bin/sh
# Installs the binary, its manual pages and shell completions (the binary prints both), and the unit and user of the service.
# Usage: install.sh [BINARY]. Packagers set DESTDIR and run the last three commands on the target.
# To remove it: `systemctl disable --now dwell`, and the files that this script lists.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-$here/../../target/release/dwell}
root=${DESTDIR:-}

[ -x "$binary" ] || { echo "install.sh: no binary at $binary: build it with 'cargo build --release -p dwell-cli'" >&2; exit 1; }
put() { install -D -m "$1" "$2" "$root$3" && echo "$root$3"; }
put 0755 "$binary" /usr/bin/dwell
printed=$(mktemp)
trap 'rm -f "$printed"' EXIT
# Runs the binary with arguments and installs its output as a file: print FILE ARGUMENT…
print() {
  to=$1
  shift
  "$binary" "$@" >"$printed"
  put 0644 "$printed" "$to"
}
print /usr/share/man/man1/dwell.1 man
for verb in $("$binary" --help | sed -n '/^Commands:/,/^Options:/s/^  \([a-z-]\{1,\}\) .*/\1/p'); do
  [ "$verb" = help ] || print "/usr/share/man/man1/dwell-$verb.1" man "$verb"
done
print /usr/share/bash-completion/completions/dwell completions bash
print /usr/share/zsh/vendor-completions/_dwell completions zsh
print /usr/share/fish/vendor_completions.d/dwell.fish completions fish
put 0644 "$here/dwell.service" /usr/lib/systemd/system/dwell.service
put 0644 "$here/dwell-push.service" /usr/lib/systemd/system/dwell-push.service
put 0644 "$here/dwell-push.timer" /usr/lib/systemd/system/dwell-push.timer
put 0644 "$here/sysusers.conf" /usr/lib/sysusers.d/dwell.conf
put 0644 "$here/tmpfiles.conf" /usr/lib/tmpfiles.d/dwell.conf
[ -z "$root" ] || exit 0
systemd-sysusers /usr/lib/sysusers.d/dwell.conf
systemd-tmpfiles --create /usr/lib/tmpfiles.d/dwell.conf
systemctl daemon-reload
echo "start it with: systemctl enable --now dwell"
