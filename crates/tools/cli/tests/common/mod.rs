//! Running the command in a folder of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]
#![allow(dead_code, reason = "each test file uses another part of it")]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A folder in which the command runs; its pool is ./pando.pool.
pub struct Folder(TempDir);

/// What a run of the command has left.
pub struct Ran {
    pub code: Option<i32>,
    pub output: String,
    pub errors: String,
}

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A folder whose pool has a map main with these records.
    pub fn with_records(tsv: &str) -> Self {
        let folder = Self::new();
        let ran = folder.run_with(&["load", "-", "--create"], tsv.as_bytes());
        assert_eq!(ran.code, Some(0), "{}", ran.errors);
        folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), contents).unwrap();
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        command.args(arguments).current_dir(self.0.path()).env_remove("PANDO_POOL");
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(arguments, b"")
    }

    /// Runs with bytes on standard input.
    pub fn run_with(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            // The command may end before it has read everything.
            scope.spawn(move || pipe.write_all(input));
            Ran::from(child.wait_with_output().unwrap())
        })
    }

    /// Runs and expects success; what it printed.
    pub fn ok(&self, arguments: &[&str]) -> String {
        self.ok_with(arguments, b"")
    }

    /// The same with bytes on standard input.
    pub fn ok_with(&self, arguments: &[&str], input: &[u8]) -> String {
        let ran = self.run_with(arguments, input);
        assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.errors);
        ran.output
    }

    /// Runs and expects an exit code; what it complained about.
    pub fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, Some(code), "{arguments:?}: {} {}", ran.output, ran.errors);
        assert!(!ran.errors.contains("panicked"), "{}", ran.errors);
        ran.errors
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            output: String::from_utf8(output.stdout).unwrap(),
            errors: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
