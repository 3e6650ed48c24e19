//! A server in this process with its own options. It ends on drop.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pando_server::{Options, ServeError};

use crate::common::wire::{Client, words};

const PATIENCE: Duration = Duration::from_secs(30);

/// A server. The drop asks it to stop.
pub struct Server {
    socket: PathBuf,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
    /// The password or user of new connections.
    auth: Option<String>,
    _folder: tempfile::TempDir,
}

impl Server {
    /// Starts a server that listens at a socket in addition to the addresses of `options`.
    pub fn start(mut options: Options) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("s");
        options.unix = Some(socket.clone());
        options.threads = 2;
        let password = options.config.iter().find(|(name, _)| name == "requirepass");
        let auth = password.map(|(_, password)| format!("AUTH {password}"));
        let thread = std::thread::spawn(move || pando_server::serve(&options));
        let deadline = Instant::now() + PATIENCE;
        while Client::connect(&socket).is_err() {
            assert!(!thread.is_finished(), "{:?}", thread.join());
            assert!(Instant::now() < deadline, "it does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { socket, thread: Some(thread), auth, _folder: folder }
    }

    /// A server with these config parameters.
    pub fn with(parameters: &[(&str, &str)]) -> Self {
        let parameters = parameters.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Self::start(Options { config: parameters.collect(), ..Options::default() })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A new connection without AUTH.
    pub fn connect(&self) -> Client {
        Client::connect(&self.socket).expect("a connection")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Other connections may have reached the limit.
        let deadline = Instant::now() + PATIENCE;
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() && Instant::now() < deadline {
            if let Ok(mut client) = Client::connect(&self.socket) {
                for line in self.auth.iter().map(String::as_str).chain(["SHUTDOWN"]) {
                    let _ = client.ask(&words(line));
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let ended = thread.join();
        if !std::thread::panicking() {
            ended.expect("it does not panic").expect("it ends in order");
        }
    }
}
