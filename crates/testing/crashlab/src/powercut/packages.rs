//! The parts of the machine, from Debian's packages.
//!
//! The packages are downloaded and unpacked into a folder. Nothing is installed, and no privileges
//! are needed. Libraries that this system has are taken from the system.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The packages, without the kernel's. They are downloaded even if this system has them, since the
/// emulator looks for its modules and its firmware beside itself.
const PACKAGES: [&str; 8] = [
    "qemu-system-x86",
    "qemu-system-common",
    "qemu-system-data",
    "seabios",
    "busybox-static",
    "ndctl",
    "e2fsprogs",
    "kmod",
];
/// The package that depends on the newest kernel's.
const KERNEL: &str = "linux-image-amd64";

/// Downloads the packages and unpacks them into `root`.
pub fn unpack(root: &Path) -> Result<(), String> {
    let apt = Apt { folder: root.with_extension("apt") };
    let archives = apt.folder.join("archives");
    for folder in [root, &apt.folder.join("lists/partial"), &archives.join("partial")] {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    run(apt.command("apt-get").args(["--quiet", "update"]))?;
    let shown = run(apt.command("apt-cache").args(["show", KERNEL]))?;
    let shown = String::from_utf8_lossy(&shown.stdout);
    let kernel = shown
        .lines()
        .find_map(|line| line.strip_prefix("Depends: ")?.split([' ', ',']).next())
        .ok_or_else(|| format!("the package {KERNEL} names no kernel"))?;
    run(apt
        .command("apt-get")
        .args(["--quiet", "--yes", "--download-only", "--reinstall", "--no-install-recommends"])
        .args(["install", kernel])
        .args(PACKAGES))?;
    let downloaded = std::fs::read_dir(&archives).map_err(|error| error.to_string())?;
    for path in downloaded.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg").arg("--extract").arg(path).arg(root))?;
        }
    }
    // A folder that cannot be removed does no harm.
    let _ = std::fs::remove_dir_all(&apt.folder);
    Ok(())
}

/// The package manager, with lists and archives of its own.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command
            .arg(format!("--option=Dir::State::Lists={}", self.folder.join("lists").display()))
            .arg(format!("--option=Dir::Cache={}", self.folder.display()))
            .args(["--option=Debug::NoLocking=1", "--option=APT::Sandbox::User=root"])
            .args(["--option=Acquire::Retries=1", "--option=Acquire::http::Timeout=10"])
            .arg("--option=APT::Update::Error-Mode=any");
        command
    }
}

/// Runs a command to its end. An error contains the command's first error message.
pub fn run(command: &mut Command) -> Result<Output, String> {
    let name = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = said.lines().find(|line| line.starts_with("E: ")).or(said.lines().last());
    let reason = reason.unwrap_or("it printed no error");
    Err(format!("{name} failed ({}): {reason}", output.status))
}
