//! A process that ends with its owner, and a test program that starts itself as a server.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest time for a process to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process, killed on drop.
pub struct Process(Child);

impl Process {
    /// Starts a process, and waits until it `listens`.
    pub fn start(mut command: Command, mut listens: impl FnMut() -> bool) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a process");
        let mut process = Self(child);
        let deadline = Instant::now() + PATIENCE;
        while !listens() {
            if let Ok(Some(status)) = process.0.try_wait() {
                panic!("{command:?} ended: {status}");
            }
            assert!(Instant::now() < deadline, "{command:?} does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        process
    }

    /// The ID of the process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// This test program again. It then runs only that test: `serve_for_another_test` of a module.
pub fn this_program(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--ignored", "--exact", test]);
    command
}
