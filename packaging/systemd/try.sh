#!/bin/bash
# Tests the service under a real systemd, on a temporary copy of this machine's file system: `try.sh BINARY`, as root.
# systemd runs in namespaces of its own, so dwell samples through rings there. Ends with 0 if the service starts as its own user
# with the documented capabilities, begins an epoch on reload, restarts after kill -9, and stops.
set -eu
binary=$(realpath "${1:?the binary to try}")
here=$(cd "$(dirname "$0")" && pwd)
if [ "${2:-}" != inside ]; then
  work=$(mktemp -d)
  trap 'umount "$work"; rmdir "$work"' EXIT
  mount -t tmpfs tmpfs "$work"
  mkdir "$work/upper" "$work/scratch" "$work/root"
  timeout -s KILL 120 unshare -mpuiCf --kill-child "$0" "$binary" inside "$work" >"$work/log" 2>&1 || true
  cat "$work/upper/probe.out" || { cat "$work/log"; exit 1; }
  grep -q '^ALL WELL$' "$work/upper/probe.out"
  exit
fi

root=$3/root
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=/,upperdir=$3/upper,workdir=$3/scratch" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
rm -rf "$root"/etc/systemd/system/*.wants "$root"/lib/systemd/system/*.wants
DESTDIR=$root "$here/install.sh" "$binary"
cat >"$root/probe.sh" <<'PROBE'
set -eu
trap 'echo "FAILED after: $step"' EXIT
step=setup
systemd-sysusers /usr/lib/sysusers.d/dwell.conf
systemd-tmpfiles --create /usr/lib/tmpfiles.d/dwell.conf
dwell() { /usr/bin/dwell --db /var/lib/dwell "$@"; }
step=start; systemctl start dwell; sleep 5
systemctl --no-pager status dwell; dwell status; ls -ld /var/lib/dwell
pid=$(systemctl show -p MainPID --value dwell)
step=user; [ "$(stat -c %U "/proc/$pid")" = dwell ]
step=capabilities; grep -E '^(Cap|NoNewPrivs|Seccomp)' "/proc/$pid/status"
grep -qx 'CapEff:	000001c400080004' "/proc/$pid/status"
step=reload; systemctl reload dwell; sleep 3; [ "$(dwell epoch list | grep -c ^epoch)" = 2 ]
step=restart; kill -9 "$pid"; sleep 14; systemctl is-active dwell; [ "$(systemctl show -p MainPID --value dwell)" != "$pid" ]
[ "$(dwell epoch list | grep -c ^epoch)" = 3 ]
step=stop; systemctl stop dwell; dwell epoch list | grep ^epoch
trap - EXIT
echo 'ALL WELL'
PROBE
cat >"$root/usr/lib/systemd/system/probe.service" <<'UNIT'
[Unit]
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
ExecStart=/bin/sh /probe.sh
StandardOutput=file:/probe.out
StandardError=file:/probe.out
UNIT
cat >"$root/usr/lib/systemd/system/probe.target" <<'UNIT'
[Unit]
Requires=probe.service
UNIT
exec env -i container=probe PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" /lib/systemd/systemd --unit=probe.target --show-status=0
