//! The virtual machine: a kernel, an initramfs, two devices of persistent memory, and a disk.
//!
//! Each device of persistent memory is a file of the host that the machine maps shared. So a store
//! to the device is in the file at once, and the machine's own memory is lost with it. The first
//! device has an ext4 mounted with DAX (`/dax`), the second one an ext4 without DAX (`/cached`).
//! The disk has an ext4 (`/disk`). The machine uses software emulation only: it runs everywhere,
//! and nested acceleration often hangs.
//!
//! The unpacked packages and the formatted devices are kept in `target/powercut-machine`. To build
//! them again, remove that folder.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::disk::{self, Sectors};
use super::initramfs::Initramfs;
use super::packages::{self, run};
use crate::kill::supervise;
use pando_index::random::Random;

/// The modules that the machine needs: persistent memory, its file system, the port, and the disk.
const MODULES: [&str; 8] = [
    "nfit",
    "nd_pmem",
    "dax_pmem",
    "crc32c_generic",
    "ext4",
    "virtio_pci",
    "virtio_console",
    "virtio_blk",
];
const DAX_BYTES: u64 = 256 << 20;
const CACHED_BYTES: u64 = 64 << 20;
const DISK_BYTES: u64 = 1 << 30;
const INIT: &[u8] = include_bytes!("init.sh");

/// The part of the machine that keeps a pool at a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// The caches are flushed.
    Cpu,
    /// Lines that have reached the memory controller are kept.
    MemCtrl,
    /// The log of the pool, on the disk.
    Disk,
}

impl Persistence {
    /// Its name, as an option.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::MemCtrl => "mem-ctrl",
            Self::Disk => "disk",
        }
    }

    /// The name of the guarantee of the persistent memory in the options of QEMU.
    fn of_memory(self) -> &'static str {
        match self {
            Self::MemCtrl => "mem-ctrl",
            Self::Cpu | Self::Disk => "cpu",
        }
    }
}

/// A machine that can be booted.
#[derive(Debug)]
pub struct Machine {
    /// The folder of its unpacked packages and its formatted devices.
    folder: PathBuf,
}

/// The devices of a machine, as files of the host.
#[derive(Clone, Debug)]
pub struct Devices {
    folder: PathBuf,
}

impl Machine {
    /// The machine that was built before, or a new one.
    pub fn get() -> Result<Self, String> {
        if !cfg!(target_arch = "x86_64") {
            return Err("the machine runs this program and needs x86-64".to_owned());
        }
        let own = std::env::current_exe().map_err(text)?;
        let target = own.ancestors().nth(2).ok_or("this program is not in a target folder")?;
        let folder = target.join("powercut-machine");
        if !folder.is_dir() {
            let unfinished = target.join(format!("powercut-machine.new-{}", std::process::id()));
            let built = Self { folder: unfinished.clone() }.build();
            let named = built.and_then(|()| std::fs::rename(&unfinished, &folder).map_err(text));
            if let Err(error) = named {
                let _ = std::fs::remove_dir_all(&unfinished);
                // Another process may have built it meanwhile.
                if !folder.is_dir() {
                    return Err(error);
                }
            }
        }
        Ok(Self { folder })
    }

    /// The command that boots the machine with `words` as the arguments of its first program.
    pub fn boot(
        &self,
        initramfs: &Path,
        devices: &Devices,
        persistence: Persistence,
        words: &[String],
    ) -> Command {
        let mut command = self.command("qemu-system-x86_64");
        let share = self.root().join("usr/share");
        command.arg("-L").arg(share.join("qemu")).arg("-L").arg(share.join("seabios"));
        command
            .arg("-machine")
            .arg(format!("pc,accel=tcg,nvdimm=on,nvdimm-persistence={}", persistence.of_memory()))
            .args(["-cpu", "max", "-smp", "2", "-m", "512M,slots=2,maxmem=2G"])
            .args(["-nodefaults", "-display", "none", "-no-reboot", "-kernel"])
            .arg(self.kernel())
            .arg("-initrd")
            .arg(initramfs)
            .arg("-append")
            // The kernel's check of its timer fails if the host has no time for the machine.
            .arg(format!("console=ttyS0 quiet panic=-1 no_timer_check -- {}", words.join(" ")))
            .arg("-serial")
            .arg(format!("file:{}", devices.console().display()))
            .args(["-device", "virtio-serial-pci", "-chardev", "file,id=port,path=/dev/stdout"])
            .args(["-device", "virtserialport,chardev=port"]);
        let files = [("f0", devices.written()), ("f1", devices.record())];
        for (name, path) in &files {
            let path = path.display();
            command.arg("-blockdev").arg(format!("driver=file,node-name={name},filename={path}"));
        }
        command
            .args(["-blockdev", "driver=raw,node-name=r0,file=f0", "-blockdev"])
            .arg("driver=blklogwrites,node-name=d0,file=r0,log=f1,log-sector-size=512")
            .args(["-device", "virtio-blk-pci,drive=d0,discard=off,write-zeroes=off"]);
        for (id, (path, bytes)) in [devices.dax(), devices.cached()].into_iter().enumerate() {
            let path = path.display();
            command
                .arg("-object")
                .arg(format!("memory-backend-file,id=m{id},share=on,mem-path={path},size={bytes}"))
                .arg("-device")
                .arg(format!("nvdimm,id=nv{id},memdev=m{id}"));
        }
        command
    }

    /// An initramfs with the files that every machine needs.
    fn initramfs(&self) -> Result<Initramfs, String> {
        let mut archive = Initramfs::new().map_err(text)?;
        archive.file("init", INIT).map_err(text)?;
        let busybox = std::fs::read(self.program("busybox")).map_err(text)?;
        archive.file("bin/busybox", &busybox).map_err(text)?;
        for module in files(&self.modules())? {
            let name = format!("lib/modules/{}", module.file_name().unwrap_or_default().display());
            archive.file(&name, &std::fs::read(&module).map_err(text)?).map_err(text)?;
        }
        Ok(archive)
    }

    /// An initramfs that contains this program.
    pub fn initramfs_with_this_program(&self) -> Result<Initramfs, String> {
        let own = std::env::current_exe().map_err(text)?;
        let mut archive = self.initramfs()?;
        archive.program("bin/pando-crashlab", &own, &self.libraries())?;
        archive.program("bin/e2fsck", &self.program("e2fsck"), &self.libraries())?;
        Ok(archive)
    }

    /// The formatted devices.
    pub fn formatted(&self) -> Devices {
        Devices { folder: self.folder.join("formatted") }
    }

    /// The folders of the packages' libraries.
    pub fn libraries(&self) -> String {
        let folder = |path: &str| self.root().join(path).join("x86_64-linux-gnu");
        format!("{}:{}", folder("usr/lib").display(), folder("lib").display())
    }

    fn build(&self) -> Result<(), String> {
        packages::unpack(&self.root())?;
        self.collect_modules()?;
        let boot = files(&self.root().join("boot"))?;
        let kernel = boot.iter().find(|path| path.display().to_string().contains("vmlinuz"));
        std::fs::rename(kernel.ok_or("the package holds no kernel")?, self.kernel())
            .map_err(text)?;
        self.format()
    }

    /// Copies the needed modules, numbered in the order in which they are loaded.
    fn collect_modules(&self) -> Result<(), String> {
        let root = self.root();
        let all = ["lib/modules", "usr/lib/modules"].map(|path| root.join(path));
        let all = all.iter().find(|path| path.is_dir()).ok_or("there are no modules")?;
        let release = std::fs::read_dir(all).map_err(text)?.flatten().next();
        let release = release.ok_or("there are no modules")?.file_name();
        let base = all.ancestors().nth(2).ok_or("there are no modules")?;
        run(self.command("kmod").arg0("depmod").arg("-b").arg(base).arg(&release))?;
        std::fs::create_dir(self.modules()).map_err(text)?;
        let mut seen = BTreeSet::new();
        for module in MODULES {
            let mut modprobe = self.command("kmod");
            modprobe.arg0("modprobe").arg("--show-depends").arg("-S").arg(&release);
            let shown = run(modprobe.arg("-d").arg(base).arg(module))?;
            for line in String::from_utf8_lossy(&shown.stdout).lines() {
                let Some(path) = line.strip_prefix("insmod ").map(|rest| Path::new(rest.trim()))
                else {
                    continue;
                };
                if seen.insert(path.to_owned()) {
                    let name = path.file_name().unwrap_or_default().display();
                    let numbered = self.modules().join(format!("{:02}-{name}", seen.len()));
                    std::fs::copy(path, &numbered).map_err(text)?;
                    if numbered.extension().is_some_and(|extension| extension == "xz") {
                        run(Command::new("xz").arg("--decompress").arg(numbered))?;
                    }
                }
            }
        }
        // The other modules take most of the unpacked space.
        std::fs::remove_dir_all(all).map_err(text)
    }

    /// Boots once to put file systems on new devices.
    fn format(&self) -> Result<(), String> {
        let devices = self.formatted();
        std::fs::create_dir(&devices.folder).map_err(text)?;
        for (path, bytes) in [devices.dax(), devices.cached(), devices.disk()] {
            File::create(path).and_then(|file| file.set_len(bytes)).map_err(text)?;
        }
        devices.prepare_disk().map_err(text)?;
        let mut archive = self.initramfs()?;
        for name in ["ndctl", "mkfs.ext4"] {
            archive.program(&format!("bin/{name}"), &self.program(name), &self.libraries())?;
        }
        let path = self.folder.join("format.cpio");
        archive.write(&path).map_err(text)?;
        let words = ["format".to_owned()];
        let mut boot = self.boot(&path, &devices, Persistence::Cpu, &words);
        let heard = supervise::run(&mut boot, 0, None).map_err(text)?;
        std::fs::remove_file(path).map_err(text)?;
        // All of it: mkfs has synced it.
        std::fs::rename(devices.written(), devices.disk().0).map_err(text)?;
        std::fs::remove_file(devices.record()).map_err(text)?;
        heard.failed.map_or(Ok(()), |failed| Err(format!("formatting its devices: {failed}")))
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.program(name));
        command.env("LD_LIBRARY_PATH", self.libraries());
        command
    }

    fn program(&self, name: &str) -> PathBuf {
        let folders = ["bin", "sbin", "usr/bin", "usr/sbin"];
        let places = folders.map(|folder| self.root().join(folder).join(name));
        places.iter().find(|place| place.is_file()).unwrap_or(&places[0]).clone()
    }

    fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    fn modules(&self) -> PathBuf {
        self.folder.join("modules")
    }

    fn kernel(&self) -> PathBuf {
        self.folder.join("vmlinuz")
    }
}

impl Devices {
    /// A copy of these devices in `folder`.
    pub fn copy_to(&self, folder: &Path) -> std::io::Result<Self> {
        let copy = Self { folder: folder.to_owned() };
        std::fs::copy(self.dax().0, copy.dax().0)?;
        std::fs::copy(self.cached().0, copy.cached().0)?;
        std::fs::copy(self.disk().0, copy.disk().0)?;
        Ok(copy)
    }

    /// Makes the file that the machine writes as its disk, and an empty record, before a boot.
    pub fn prepare_disk(&self) -> std::io::Result<()> {
        File::create(self.record())?;
        std::fs::copy(self.disk().0, self.written()).map(drop)
    }

    /// Lets the disk lose its unflushed writes, after a boot.
    pub fn cut_disk(&self, random: &mut Random) -> std::io::Result<Sectors> {
        disk::cut(&self.disk().0, &self.record(), random)
    }

    /// The file with the output of the machine's console.
    pub fn console(&self) -> PathBuf {
        self.folder.join("console")
    }

    fn dax(&self) -> (PathBuf, u64) {
        (self.folder.join("dax.img"), DAX_BYTES)
    }

    fn cached(&self) -> (PathBuf, u64) {
        (self.folder.join("cached.img"), CACHED_BYTES)
    }

    /// The disk, with the sectors that a power cut keeps.
    fn disk(&self) -> (PathBuf, u64) {
        (self.folder.join("disk.img"), DISK_BYTES)
    }

    /// The disk, with all that the machine writes.
    fn written(&self) -> PathBuf {
        self.folder.join("written.img")
    }

    /// The record of its writes.
    fn record(&self) -> PathBuf {
        self.folder.join("record.img")
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The files in `folder`, by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    files.sort();
    Ok(files)
}
