# boot.sh PACKAGES: runs systemd on a copy of this machine, whose files, network and processes are its own. /packages are
# the packages. The kernel settings that are not those of its network are read-only.
set -e
root=$(mktemp -d)
mount --make-rprivate /
mount -t tmpfs none "$root"
mkdir "$root/upper" "$root/work" "$root/machine"
mount -t overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" overlay "$root/machine"
cd "$root/machine"
mkdir -p packages old
mount --bind "$1" packages
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount --bind proc/sys/net proc/sys/net
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t tmpfs none sys/fs/cgroup
mount -t cgroup2 cgroup2 sys/fs/cgroup
for dir in run tmp dev; do
  mount -t tmpfs -o mode=755 none "$dir"
done
for device in null zero full random urandom tty; do
  touch "dev/$device"
  mount --bind "/dev/$device" "dev/$device"
done
ln -s pts/ptmx dev/ptmx
rm -f usr/sbin/policy-rc.d # it can forbid that packages start services
pivot_root . old
umount --lazy /old
container=test exec /lib/systemd/systemd --system --unit=basic.target --log-target=null
