//! Listening sockets, and their hand-over to a successor process.
//!
//! # Hand-over
//!
//! On SIGUSR2 the server replaces itself by the program that is now at its path, with the same
//! arguments: a new version of itself. It first checks that the program runs. Then it ends each
//! connection after its current request, closes the pool and calls `exec`. The process number
//! stays, and the program inherits the listening sockets. They are never closed, so new clients
//! wait in their queues and are not refused. If `exec` fails, the server opens the pool again and
//! continues.
//!
//! Sockets are passed in systemd's form (`LISTEN_FDS`), so a systemd socket unit works, too. An
//! inherited socket is used for the address that it is bound to.

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use command_fds::{CommandFdExt, FdMapping};
use socket2::{Domain, Protocol, Socket, Type};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// The first descriptor that is passed on.
const FIRST_DESCRIPTOR: i32 = 3;
/// The environment variable that a successor is started with.
const SUCCESSOR: &str = "PANDO_SERVER_SUCCESSOR";
/// Its value if this program, or a predecessor, created the socket file.
const OWNS_UNIX: &str = "owns its socket's path";

/// Listening sockets; they stay open until the process ends.
#[derive(Debug, Default)]
pub struct Listeners {
    tcp: Vec<TcpListener>,
    unix: Vec<UnixListener>,
    /// Whether the server created the socket file, and not systemd.
    owns_unix: bool,
}

impl Listeners {
    /// The sockets that the process inherited.
    pub fn inherited() -> Self {
        let mut passed = listenfd::ListenFd::from_env();
        let owns_unix = std::env::var_os(SUCCESSOR).is_some_and(|value| value == OWNS_UNIX);
        let mut listeners = Self { owns_unix, ..Self::default() };
        for index in 0..passed.len() {
            if let Ok(Some(listener)) = passed.take_tcp_listener(index) {
                listeners.tcp.push(listener);
            } else if let Ok(Some(listener)) = passed.take_unix_listener(index) {
                listeners.unix.push(listener);
            }
        }
        listeners
    }

    /// A socket that listens at `address`.
    pub fn tcp(&mut self, address: SocketAddr) -> io::Result<TcpListener> {
        let is_there =
            |listener: &&TcpListener| listener.local_addr().is_ok_and(|at| at == address);
        if let Some(listener) = self.tcp.iter().find(is_there) {
            return duplicate(listener.try_clone());
        }
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from(socket);
        let copy = duplicate(listener.try_clone())?;
        self.tcp.push(listener);
        Ok(copy)
    }

    /// A socket that listens at `path`. It replaces the file of a server that died.
    pub fn unix(&mut self, path: &Path) -> io::Result<UnixListener> {
        let is_there = |listener: &&UnixListener| {
            listener.local_addr().is_ok_and(|at| at.as_pathname() == Some(path))
        };
        let listener = match self.unix.iter().find(is_there) {
            Some(listener) => listener.try_clone()?,
            None => {
                // Nothing accepts connections at the file of a dead server.
                if path.symlink_metadata().is_ok_and(|found| is_socket(&found))
                    && UnixStream::connect(path).is_err()
                {
                    std::fs::remove_file(path)?;
                }
                let listener = UnixListener::bind(path)?;
                let copy = listener.try_clone()?;
                self.unix.push(listener);
                self.owns_unix = true;
                copy
            }
        };
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Whether the server removes its socket file when it ends.
    pub fn owns_unix(&self) -> bool {
        self.owns_unix
    }

    /// Replaces this process by the program at its path; returns only on failure.
    pub fn hand_over(&self) -> io::Error {
        self.try_hand_over()
            .err()
            .unwrap_or_else(|| io::Error::other("exec returned without an error"))
    }

    fn try_hand_over(&self) -> io::Result<()> {
        let mut descriptors: Vec<OwnedFd> = Vec::new();
        for listener in &self.tcp {
            descriptors.push(listener.try_clone()?.into());
        }
        for listener in &self.unix {
            descriptors.push(listener.try_clone()?.into());
        }
        let (mut command, arguments) = program()?;
        command.args(arguments);
        command.env("LISTEN_FDS", descriptors.len().to_string());
        command.env("LISTEN_PID", std::process::id().to_string());
        command.env(SUCCESSOR, if self.owns_unix { OWNS_UNIX } else { "" });
        let mappings = descriptors.into_iter().zip(FIRST_DESCRIPTOR..);
        command
            .fd_mappings(
                mappings.map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd }).collect(),
            )
            .map_err(io::Error::other)?;
        Err(command.exec())
    }
}

/// Whether this process is the successor of a server, and continues with its store.
pub fn is_successor() -> bool {
    std::env::var_os(SUCCESSOR).is_some()
}

/// Checks that the program at this process's path runs.
pub fn can_hand_over() -> io::Result<()> {
    let (mut command, _) = program()?;
    let silent = command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null());
    let status = silent.stderr(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("it exits with {status}"))) }
}

fn program() -> io::Result<(Command, Vec<OsString>)> {
    let mut words = std::env::args_os();
    let program = words.next().ok_or_else(|| io::Error::other("the program has no name"))?;
    Ok((Command::new(program), words.collect()))
}

fn duplicate(listener: io::Result<TcpListener>) -> io::Result<TcpListener> {
    let listener = listener?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn is_socket(found: &std::fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_socket(&found.file_type())
}
