//! Our server and Debian's, each a process of its own that listens at a socket in a folder of its
//! own and dies with its owner here.
//!
//! Ours is this test program again, started so that it runs nothing but [`serve_for_another_test`]:
//! thus a test may kill it, which is what the server is for.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pando_server::Options;

use super::packages;
use super::wire::Client;

const SOCKET: &str = "PANDO_TEST_SERVE_AT";
const POOL: &str = "PANDO_TEST_SERVE_POOL";
/// Processes take no longer to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that runs until it is dropped.
pub struct Running {
    child: Child,
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
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--ignored", "--exact", &format!("{module}::serve_for_another_test")])
        .env(SOCKET, &socket);
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
    fn start(mut command: Command, socket: PathBuf, folder: tempfile::TempDir) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a process");
        let mut running = Self { child, socket, _folder: folder };
        let deadline = Instant::now() + PATIENCE;
        while Client::connect(&running.socket).is_err() {
            if let Ok(Some(status)) = running.child.try_wait() {
                panic!("{command:?} ended: {status}");
            }
            assert!(Instant::now() < deadline, "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        running
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A new connection.
    pub fn connect(&self) -> Client {
        Client::connect(&self.socket).expect("a connection")
    }

    /// Kills it, as `kill -9` does.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
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
