//! The program itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::process::Command;

/// Runs the program with `arguments`: whether it succeeded, its standard output and its standard
/// error.
pub fn papers_command(arguments: &[&str]) -> (bool, String, String) {
    let program = env!("CARGO_BIN_EXE_pando-papers");
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}
