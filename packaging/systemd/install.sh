#!/bin/sh
# Installs the service: the binary, its manual pages (which it prints), its unit, its user. `install.sh [BINARY]`; DESTDIR for packagers, who then run the
# last three commands on the target. Remove it with `systemctl disable --now dwell` and the files that this lists.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
binary=${1:-$here/../../target/release/dwell}
root=${DESTDIR:-}

[ -x "$binary" ] || { echo "install.sh: no binary at $binary: build it with 'cargo build --release -p dwell-cli'" >&2; exit 1; }
put() { install -D -m "$1" "$2" "$root$3" && echo "$root$3"; }
put 0755 "$binary" /usr/bin/dwell
page=$(mktemp)
trap 'rm -f "$page"' EXIT
for verb in '' daemon; do
  "$binary" man $verb >"$page"
  put 0644 "$page" "/usr/share/man/man1/dwell${verb:+-$verb}.1"
done
put 0644 "$here/dwell.service" /usr/lib/systemd/system/dwell.service
put 0644 "$here/sysusers.conf" /usr/lib/sysusers.d/dwell.conf
put 0644 "$here/tmpfiles.conf" /usr/lib/tmpfiles.d/dwell.conf
[ -z "$root" ] || exit 0
systemd-sysusers /usr/lib/sysusers.d/dwell.conf
systemd-tmpfiles --create /usr/lib/tmpfiles.d/dwell.conf
systemctl daemon-reload
echo "start it with: systemctl enable --now dwell"
