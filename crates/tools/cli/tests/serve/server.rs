//! A server as a process.

use std::path::Path;
use std::process::{Child, Command, Stdio};

pub use pando_server::testing::client::Client;

/// A server, which is killed when it is dropped.
pub struct Server {
    pub child: Child,
}

impl Server {
    /// One on `pool`.
    pub fn start(pool: &Path, arguments: &[&str]) -> Self {
        Self::start_at("--pool", pool, arguments)
    }

    /// One on the pool or the store, as `option` says, at `path`.
    pub fn start_at(option: &str, path: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        command.arg(option).arg(path).arg("serve").args(arguments);
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        Self { child: quiet.spawn().expect("the server starts") }
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("kills");
        self.child.wait().expect("ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
