#!/bin/busybox sh
# The first program of the virtual machine. Its arguments are `format`, or those of pando-crashlab.
# The output of pando-crashlab goes to the virtio port.
/bin/busybox --install -s /bin
export PATH=/bin LD_LIBRARY_PATH=/lib
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
# A machine that hangs tells the console, twice, what is blocked in the kernel, and what the threads
# of the program do: their states and ticks, the system calls with the program counters, and where
# the program lies.
tell() {
    echo w >/proc/sysrq-trigger
    ps
    pid=$(pidof pando-crashlab) || return
    grep -m 1 pando-crashlab "/proc/$pid/maps"
    for task in "/proc/$pid/task/"*; do
        cut -d ' ' -f 1-3,14,15 "$task/stat"
        cat "$task/syscall"
        head -n 3 "$task/stack"
    done
}
(sleep 600; tell; sleep 60; tell) >/dev/console 2>&1 &
for module in /lib/modules/*; do insmod "$module"; done
for device in /dev/pmem0 /dev/pmem1 /dev/vda /dev/vport0p1; do
    until [ -e "$device" ]; do usleep 10000; done
done

if [ "$1" = format ]; then
    # Without a namespace that keeps its page structures in memory, ext4 refuses DAX.
    ndctl create-namespace -f -e namespace0.0 -m fsdax -M mem &&
        mkfs.ext4 -q -b 4096 /dev/pmem0 &&
        mkfs.ext4 -q -b 4096 /dev/pmem1 &&
        mkfs.ext4 -q -b 4096 /dev/vda &&
        echo '"closed"' >/dev/vport0p1
else
    # What is written reaches the disk soon, and is not flushed there: a power cut loses parts of it.
    for setting in dirty_writeback_centisecs dirty_expire_centisecs; do
        echo 5 >"/proc/sys/vm/$setting"
    done
    # A power cut can tear a block of the file system, of which the medium writes only a part at once.
    # Of the journal, the check that a system makes at boot mends that. Of the superblock, it is left
    # to a person, who lets the check take the backup of it.
    mounted() {
        place=$1 device=$2
        shift 2
        mount -t ext4 "$@" "$device" "$place" && return
        e2fsck -p "$device"
        [ $? -lt 4 ] || e2fsck -y "$device"
        mount -t ext4 "$@" "$device" "$place" && return
        echo "$device is not mounted, although e2fsck was run"
        return 1
    }
    mounted /dax /dev/pmem0 -o dax && mounted /cached /dev/pmem1 && mounted /disk /dev/vda &&
        pando-crashlab "$@" >/dev/vport0p1
    umount /dax /cached /disk
fi
poweroff -f
