//! A stock client: redis-py, from PyPI, in an environment of its own.

use std::path::Path;
use std::process::Command;

use crate::server::Server;

const CLIENT: &str = "redis==5.2.1";

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

#[test]
fn redis_py_works_unmodified() {
    let folder = tempfile::tempdir().expect("a folder");
    let environment = folder.path().join("environment");
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    let python = environment.join("bin/python");
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet", CLIENT]));
    let server = Server::with(&[]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/redis.py");
    run(Command::new(&python).arg(script).arg(server.socket()));
}
