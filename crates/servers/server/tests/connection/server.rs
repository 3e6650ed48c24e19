//! A server in this process, with options of its own, that ends when it is dropped.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pando_server::{Options, ServeError};

use crate::common::wire::{Client, words};

const PATIENCE: Duration = Duration::from_secs(30);

/// A server; dropped, it is asked to end.
pub struct Server {
    socket: PathBuf,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
    /// Says who it is first, if it must.
    auth: Option<String>,
    _folder: tempfile::TempDir,
}

impl Server {
    /// One that listens at a socket besides what `options` say.
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

    /// One with these parameters.
    pub fn with(parameters: &[(&str, &str)]) -> Self {
        let parameters = parameters.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Self::start(Options { config: parameters.collect(), ..Options::default() })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// A new connection, on which nothing was said.
    pub fn connect(&self) -> Client {
        Client::connect(&self.socket).expect("a connection")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Others may have all connections that there are.
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
