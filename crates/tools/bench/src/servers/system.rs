//! The servers: how each is started, asked whether it is there, and killed.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::ProgressBar;
use procfs::process::Process;

use super::load::{self, Load, Measured};
use super::memcached;
use crate::error::Error;

/// Longest that a server may take to answer for the first time.
const START_LIMIT: Duration = Duration::from_secs(300);

/// Started sooner after it has ended, memcached takes what it left for that of a later time, and
/// forgets it.
const MEMCACHED_PAUSE: Duration = Duration::from_secs(3);

/// A server that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Server {
    /// Pando's server, with its pool in --folder
    Pando,
    /// Debian's redis-server without persistence
    Redis,
    /// redis-server with its append-only file, synced each second
    RedisEverysec,
    /// redis-server with its append-only file, synced before each reply
    RedisAlways,
    /// redis-server that restores a dump
    RedisDump,
    /// Pando's server, by the memcached protocol
    PandoMemcached,
    /// Pando's server, by the memcached protocol, on a wB+-Tree
    PandoMemcachedWbtree,
    /// Pando's server, by the memcached protocol, on an NBTree
    PandoMemcachedNbtree,
    /// Pando's server, by the memcached protocol, on a skip list
    PandoMemcachedSkiplist,
    /// Debian's memcached; before a restart it is stopped in order, so that it finds its memory
    Memcached,
}

/// What a server is asked as it starts, and what the first two bytes of its answer must be.
#[derive(Clone, Debug)]
pub struct First {
    /// The request.
    pub request: Vec<u8>,
    /// The first two bytes of the answer.
    pub answer: &'static [u8; 2],
}

impl Server {
    /// Whether it is driven by the memcached protocol.
    pub fn speaks_memcached(self) -> bool {
        self == Self::Memcached || self.index().is_some()
    }

    /// The kind of index of one of ours that is driven so.
    fn index(self) -> Option<&'static str> {
        match self {
            Self::PandoMemcached => Some("bztree"),
            Self::PandoMemcachedWbtree => Some("wbtree"),
            Self::PandoMemcachedNbtree => Some("nbtree"),
            Self::PandoMemcachedSkiplist => Some("skiplist"),
            _ => None,
        }
    }

    /// Asked of a server that may be empty.
    pub fn greeting(self) -> First {
        match self.speaks_memcached() {
            true => First { request: b"version\r\n".to_vec(), answer: b"VE" },
            false => First { request: b"*1\r\n$4\r\nPING\r\n".to_vec(), answer: b"+P" },
        }
    }

    /// A get of a key that is there.
    pub fn get(self, key: u64) -> First {
        match self.speaks_memcached() {
            true => First { request: memcached::get_request(key), answer: b"VA" },
            false => First { request: load::get_request(key), answer: b"$1" },
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The command that starts it in `folder`, to be reached at the socket `socket` and the TCP
    /// port `port` of loopback.
    fn command(self, ours: &[String], folder: &Path, port: u16, socket: &Path) -> Command {
        let port = port.to_string();
        match (self, self.index()) {
            (Self::Pando, _) => {
                let mut command = Command::new(&ours[0]);
                command.args(&ours[1..]).arg("--pool").arg(folder.join("server.pool"));
                command.args(["serve", "--port", &port, "--unix"]).arg(socket);
                command
            }
            (_, Some(index)) => {
                let mut command = Command::new(&ours[0]);
                command.args(&ours[1..]).arg("--pool").arg(folder.join("server.pool"));
                command.args(["serve", "--port", "0", "--memcached-port", &port]);
                command.args(["--index", index]);
                command
            }
            (Self::Memcached, _) => {
                let mut command = Command::new("memcached");
                command.args(["-l", "127.0.0.1", "-p", &port, "-U", "0", "-u", "root"]);
                command.args(["-m", "4096", "-c", "2000", "-e"]).arg(folder.join("memory"));
                command
            }
            _ => {
                let mut command = Command::new("redis-server");
                command.args([
                    "--port",
                    &port,
                    "--bind",
                    "127.0.0.1",
                    "--save",
                    "",
                    "--unixsocket",
                ]);
                command.arg(socket).arg("--dir").arg(folder);
                match self {
                    Self::RedisEverysec => {
                        command.args(["--appendonly", "yes", "--appendfsync", "everysec"]);
                    }
                    Self::RedisAlways => {
                        command.args(["--appendonly", "yes", "--appendfsync", "always"]);
                    }
                    _ => {
                        command.args(["--appendonly", "no"]);
                    }
                }
                command
            }
        }
    }
}

/// A server that runs; killed when it is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    system: Server,
    /// Its port on loopback.
    pub port: u16,
    /// Its socket in the file system.
    pub socket: PathBuf,
}

impl Running {
    /// Starts `system` in `folder` and waits until it answers; how long that took. `ours` is the
    /// `pando` command.
    pub fn start(
        system: Server,
        ours: &[String],
        folder: &Path,
        first: &First,
    ) -> Result<(Self, Duration), Error> {
        let port = free_port()?;
        let socket = folder.join("socket");
        let _ = std::fs::remove_file(&socket);
        let mut command = system.command(ours, folder, port, &socket);
        let begin = Instant::now();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| Error::Build { system: system.name(), source: source.into() })?;
        let mut running = Self { child, system, port, socket };
        while !running.answers(first) {
            let ended = running.child.try_wait().is_ok_and(|status| status.is_some());
            if ended || begin.elapsed() > START_LIMIT {
                let source = if ended { "it ended by itself" } else { "it does not answer" };
                return Err(Error::Build { system: system.name(), source: source.into() });
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let took = begin.elapsed();
        Ok((running, took))
    }

    /// Whether it answers as it must; one that is still loading does not.
    fn answers(&self, first: &First) -> bool {
        fn ask(mut stream: impl Read + Write, first: &First) -> std::io::Result<bool> {
            stream.write_all(&first.request)?;
            let mut answer = [0; 2];
            stream.read_exact(&mut answer)?;
            Ok(answer == *first.answer)
        }
        let asked = match self.system.speaks_memcached() {
            true => TcpStream::connect(("127.0.0.1", self.port)).and_then(|to| ask(to, first)),
            false => UnixStream::connect(&self.socket).and_then(|to| ask(to, first)),
        };
        asked.unwrap_or(false)
    }

    /// Sets the keys 0 to `count`, 16 bytes each.
    pub fn fill(&self, count: u64, progress: &ProgressBar) -> Result<(), Error> {
        match self.system.speaks_memcached() {
            true => memcached::fill(self.port, count, progress),
            false => load::fill(&self.socket, count, progress),
        }
    }

    /// Runs `load` against it.
    pub fn measure(&self, load: &Load) -> Result<Measured, Error> {
        match self.system.speaks_memcached() {
            true => memcached::measure(load, self.port),
            false => load::measure(load, self.port),
        }
    }

    /// Processor time that it has used, in seconds.
    pub fn processor_seconds(&self) -> f64 {
        let used = Process::new(self.child.id().cast_signed()).and_then(|process| process.stat());
        let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        used.map_or(0.0, |used| seconds(used.utime + used.stime))
    }

    /// Ends it as a crash would; memcached, which would lose all, in order.
    pub fn kill(mut self) {
        if self.system == Server::Memcached {
            let process = self.child.id().to_string();
            let told = Command::new("kill").args(["-USR1", &process]).status();
            if told.is_ok_and(|told| told.success()) {
                let _ = self.child.wait();
                std::thread::sleep(MEMCACHED_PAUSE);
            }
        }
        self.end();
    }

    fn end(&mut self) {
        // If it has ended by itself there is nothing left to kill, and waiting returns at once.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn free_port() -> Result<u16, Error> {
    let any = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    any.map(|address| address.port())
        .map_err(|source| Error::File { path: PathBuf::from("127.0.0.1:0"), source })
}
