//! Standard clients from PyPI, in their own environment.

use std::path::Path;
use std::process::Command;

/// Installs `package`, and runs the script of that name in `tests/clients`. The script must
/// succeed.
pub fn run_client(package: &str, script: &str, argument: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let environment = folder.path().join("environment");
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    let python = environment.join("bin/python");
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", package]));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script);
    run(Command::new(&python).arg(script).arg(argument));
}

fn run(command: &mut Command) {
    let how = "it takes python3 with venv and pip, and PyPI: apt-get install -y python3-venv";
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}; {how}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}\n{how}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
