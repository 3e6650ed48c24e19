//! Our server and Debian's memcached. Each is a process on a free port, and ends with its owner in
//! the test.
//!
//! Our server is this test program again, which then runs only [`serve_for_another_test`].

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use pando_server::Options;
use pando_server::testing::free_port;

use crate::common::packages;
use crate::common::process::{Process, this_program};

const PORT: &str = "PANDO_TEST_MEMCACHED_PORT";
const REDIS_PORT: &str = "PANDO_TEST_REDIS_PORT";
/// The longest time for a reply.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that runs until it is dropped.
pub struct Running {
    process: Process,
    port: u16,
    redis_port: u16,
}

/// Our server, on anonymous memory.
pub fn pando() -> Running {
    let (port, redis_port) = (free_port(), free_port());
    let mut command = this_program("memcached::servers::serve_for_another_test");
    command.env(PORT, port.to_string()).env(REDIS_PORT, redis_port.to_string());
    Running::start(command, port, redis_port)
}

/// Debian's memcached.
pub fn memcached() -> Running {
    let port = free_port();
    let mut command = packages::program("memcached").command();
    // Maintenance threads hold values at times. A count then takes another path.
    command.args(["-o", "no_lru_maintainer,no_lru_crawler"]);
    command.args(["-l", "127.0.0.1", "-U", "0", "-u", "root", "-p", &port.to_string()]);
    Running::start(command, port, 0)
}

impl Running {
    fn start(command: Command, port: u16, redis_port: u16) -> Self {
        let listens = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
        Self { process: Process::start(command, listens), port, redis_port }
    }

    /// The port of memcached's protocol.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A new connection.
    pub fn connect(&self) -> Connection {
        Connection::to(self.port)
    }

    /// A new connection to the Redis protocol.
    pub fn connect_redis(&self) -> Connection {
        Connection::to(self.redis_port)
    }

    /// Resident memory of the process, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()));
        let status = status.expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kilobytes = line.and_then(|line| line.trim().split(' ').next());
        kilobytes.and_then(|text| text.parse::<u64>().ok()).expect("a number") * 1024
    }
}

/// A client that keeps every byte.
pub struct Connection(TcpStream);

impl Connection {
    fn to(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a patience");
        stream.set_nodelay(true).expect("no delay");
        Self(stream)
    }

    pub fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.0.write_all(request)
    }

    /// The received bytes up to `end`, or all if the connection ends.
    pub fn read_until(&mut self, end: &[u8]) -> Vec<u8> {
        let mut reply = Vec::new();
        let mut piece = vec![0; 1 << 16];
        while !reply.ends_with(end) {
            match self.0.read(&mut piece) {
                Ok(0) => break,
                Ok(bytes) => reply.extend_from_slice(&piece[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                // A process that is stopped for a while is interrupted in a read with a timeout.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => panic!("no reply: {error}; so far {:?}", reply.escape_ascii()),
            }
        }
        reply
    }

    /// The whole reply to requests. They must not end within data.
    pub fn ask(&mut self, requests: &[u8]) -> Vec<u8> {
        // The reply to mn comes after all others.
        self.send(&[requests, b"mn\r\n"].concat()).expect("it takes requests");
        self.read_until(b"MN\r\n")
    }

    /// The same for text.
    pub fn say(&mut self, requests: &str) -> String {
        let reply = self.ask(requests.as_bytes());
        let reply = String::from_utf8(reply).expect("text");
        reply.strip_suffix("MN\r\n").expect("an end").to_owned()
    }
}

#[test]
#[ignore = "the process that other tests start"]
fn serve_for_another_test() {
    let port = |name| std::env::var(name).ok().and_then(|port| port.parse::<u16>().ok());
    let (Some(memcached), Some(redis)) = (port(PORT), port(REDIS_PORT)) else { return };
    let at = |port| vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))];
    let options =
        Options { redis: at(redis), memcached: at(memcached), threads: 2, ..Options::default() };
    pando_server::serve(&options).expect("it serves");
}
