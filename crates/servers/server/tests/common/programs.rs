//! Our server and Debian's Redis. Each is a process with its own directory, listens at a socket
//! there, and ends with its owner in the test.
//!
//! Our server is this test program again, which then runs only [`serve_for_another_test`]. So a
//! test may kill it.

use std::path::{Path, PathBuf};
use std::process::Command;

use pando_server::Options;

use super::packages;
use super::process::{Process, this_program};
use super::wire::Client;

const SOCKET: &str = "PANDO_TEST_SERVE_AT";
const POOL: &str = "PANDO_TEST_SERVE_POOL";

/// A server that runs until it is dropped.
pub struct Running {
    process: Process,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

/// Our server, on anonymous memory.
pub fn pando() -> Running {
    pando_on(None)
}

/// Our server, on a pool in a file, or on anonymous memory.
pub fn pando_on(pool: Option<&Path>) -> Running {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("s");
    let module = module_path!().split_once("::").map_or("", |(_, module)| module);
    let mut command = this_program(&format!("{module}::serve_for_another_test"));
    command.env(SOCKET, &socket);
    if let Some(pool) = pool {
        command.env(POOL, pool);
    }
    Running::start(command, socket, folder)
}

/// Debian's Redis, without persistence.
pub fn redis() -> Running {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("s");
    let mut command = packages::program("redis-server").command();
    command
        .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
        .arg(&socket)
        .arg("--dir")
        .arg(folder.path());
    Running::start(command, socket, folder)
}

impl Running {
    fn start(command: Command, socket: PathBuf, folder: tempfile::TempDir) -> Self {
        let process = Process::start(command, || Client::connect(&socket).is_ok());
        Self { process, socket, _folder: folder }
    }

    /// A new connection.
    pub fn connect(&self) -> Client {
        Client::connect(&self.socket).expect("a connection")
    }

    /// Kills it, as `kill -9` does.
    pub fn kill(self) {
        drop(self.process);
    }
}

#[test]
#[ignore = "the process that other tests start"]
fn serve_for_another_test() {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    let options = Options {
        pool: std::env::var_os(POOL).map(PathBuf::from),
        redis: Vec::new(),
        unix: Some(socket.into()),
        threads: 2,
        ..Options::default()
    };
    pando_server::serve(&options).expect("it serves");
}
