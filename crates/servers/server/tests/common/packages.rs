//! Finds Debian's programs. If they are not installed, they are downloaded and unpacked into the
//! directory of build outputs. Nothing is installed, and no privileges are needed. Installed
//! libraries of the system are used.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// A program that can be started.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    libraries: Option<PathBuf>,
}

impl Program {
    /// Another program of the package, by its path in the package, if it was unpacked from one.
    pub fn other(self, path: &str) -> Self {
        let other = self.path.ancestors().nth(3).map(|root| root.join(path));
        match other.filter(|other| other.is_file()) {
            Some(path) => Self { path, ..self },
            None => self,
        }
    }

    /// A command that starts the program.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }
}

/// The program `name` of the package with that name.
///
/// # Panics
///
/// If the program is missing and cannot be downloaded. The message says how to get it.
pub fn program(name: &str) -> Program {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/bin".into()]);
    if let Some(path) = folders.map(|folder| folder.join(name)).find(|path| path.is_file()) {
        return Program { path, libraries: None };
    }
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock();
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.unpacked"));
    if !root.is_dir()
        && let Err(reason) = unpack(name, &root)
    {
        panic!("no {name}: {reason}; install it: apt-get install -y {name}");
    }
    let multiarch = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    Program { path: root.join("usr/bin").join(name), libraries: Some(root.join(multiarch)) }
}

/// Downloads a package and its missing dependencies, and unpacks them into `root`.
fn unpack(package: &str, root: &Path) -> Result<(), String> {
    let apt = root.with_extension("apt");
    let partial = root.with_extension("partial");
    for folder in [&partial, &apt.join("lists/partial"), &apt.join("archives/partial")] {
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    run(apt_get(&apt).args(["--quiet", "update"]))?;
    run(apt_get(&apt)
        .args(["--quiet", "--yes", "--download-only", "--reinstall", "--no-install-recommends"])
        .args(["install", package]))?;
    let archives = std::fs::read_dir(apt.join("archives")).map_err(|error| error.to_string())?;
    for path in archives.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg").arg("--extract").arg(path).arg(&partial))?;
        }
    }
    // The directory is not needed any more, so a failure does not matter.
    let _ = std::fs::remove_dir_all(&apt);
    std::fs::rename(&partial, root).map_err(|error| error.to_string())
}

/// The package manager, with its own lists and archives.
fn apt_get(folder: &Path) -> Command {
    let mut command = Command::new("apt-get");
    command
        .arg(format!("--option=Dir::State::Lists={}", folder.join("lists").display()))
        .arg(format!("--option=Dir::Cache={}", folder.display()))
        .args(["--option=Debug::NoLocking=1", "--option=APT::Sandbox::User=root"])
        .args(["--option=Acquire::Retries=1", "--option=Acquire::http::Timeout=10"])
        .arg("--option=APT::Update::Error-Mode=any");
    command
}

/// Runs a command to its end. An error has the first error lines of its output.
fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    let reason = printed.lines().find(|line| line.starts_with("E: ")).or(printed.lines().last());
    Err(format!("{name} failed ({}): {}", output.status, reason.unwrap_or("it did not say why")))
}
