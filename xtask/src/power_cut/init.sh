#!/bin/sh
# The first process of the machine whose power is cut: brings the medium up, then checks and serves the
# store until the power is cut. Lines for the host begin with "@"; the rest is for people.
#
# The kernel's command line has the parameters: duramen.medium=devdax|fsdax|file|leftovers|small|none,
# duramen.durability=…, and duramen.fresh=1 for a medium that must be formatted first.

export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for word in $(cat /proc/cmdline); do
    case $word in
        duramen.medium=*) medium=${word#*=} ;;
        duramen.durability=*) durability=${word#*=} ;;
        duramen.fresh=1) fresh=yes ;;
    esac
done
echo "@ up"

fail() {
    echo "@ failed: $*"
    sleep 1
    poweroff -f
}

# A device appears some time after its driver is loaded.
wait_for() {
    for _ in $(seq 200); do
        [ -e "$1" ] && return
        sleep 0.05
    done
    fail "$1 did not appear"
}

# The modules are listed in the order of their dependencies.
while read -r module; do
    insmod "/modules/$module" || fail "insmod $module"
done < /modules/order

# Creates the namespace again, with the given mode and size.
namespace() {
    wait_for /sys/bus/nd/devices/namespace0.0
    ndctl create-namespace -f -e namespace0.0 "$@" > /dev/null || fail "ndctl create-namespace $*"
}

# Writes labels to the device, because without them all of it is one namespace. $1 is the size of the namespace.
namespace_small() {
    wait_for /sys/bus/nd/devices/nmem0
    ndctl disable-region all > /dev/null 2>&1
    ndctl init-labels -f nmem0 > /dev/null 2>&1 || fail "ndctl init-labels"
    ndctl enable-region all > /dev/null 2>&1
    ndctl create-namespace -r region0 -m devdax -a 2M -s "$1" > /dev/null || fail "ndctl create-namespace -s $1"
}

file_system() {
    device=$1
    shift
    wait_for "$device"
    if [ -n "$fresh" ]; then
        # By its path: otherwise the shell would run its built-in applet.
        /bin/mke2fs -t ext4 -q -F -b 4096 "$device" || fail "mke2fs $device"
    fi
    mount -t ext4 "$@" "$device" /store || fail "mount $* $device"
}

case $medium in
    devdax)
        if [ -n "$fresh" ]; then namespace -m devdax -a 2M; fi
        wait_for /dev/dax0.0
        path=/dev/dax0.0
        ;;
    fsdax)
        if [ -n "$fresh" ]; then namespace -m fsdax; fi
        file_system /dev/pmem0 -o dax
        path=/store/store
        ;;
    file)
        file_system /dev/vda
        path=/store/store
        ;;
    leftovers)
        # An earlier ext4 stays in the device's bytes when the namespace's mode changes.
        fresh=yes
        namespace -m fsdax
        file_system /dev/pmem0
        echo "of another use" > /store/file
        umount /store
        namespace -m devdax -a 2M
        wait_for /dev/dax0.0
        path=/dev/dax0.0
        ;;
    small)
        namespace_small 16M
        path=$(ls -d /dev/dax0.*)
        ;;
    none) poweroff -f ;;
esac

check() {
    echo "@ checking"
    duramen check --path "$path" 2>&1
    echo "@ checked $?"
}

# In QEMU's network the host's address is 10.0.2.2.
ifconfig lo 127.0.0.1
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 || fail "no network"

[ -n "$fresh" ] || check
while :; do
    echo "@ serving"
    duramen serve --bind 0.0.0.0 --port 6379 --protected-mode no \
        --duramen-path "$path" --duramen-durability "$durability" 2>&1
    code=$?
    echo "@ served $code"
    if [ $code = 0 ]; then
        check
    elif [ $medium = leftovers ] && [ -z "$erased" ]; then
        erased=yes
        duramen erase --force --path "$path" 2>&1
        echo "@ erased $?"
        # A measurement of the device must fail while the server has it. 18EB is port 6379, 0A is "listening".
        {
            until grep -q ":18EB 00000000:0000 0A" /proc/net/tcp; do sleep 1; done
            echo "@ measuring"
            duramen bench mem --quick --overwrite --path "$path" 2>&1
            echo "@ measured $?"
        } &
    else
        poweroff -f
    fi
done
