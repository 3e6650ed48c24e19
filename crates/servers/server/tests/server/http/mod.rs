//! The HTTP reports of the server, and the page in a real browser.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod browser;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pando_server::Options;
use pando_server::status::Status;

/// The longest time for a result, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server in threads of this process.
struct Served {
    http: SocketAddr,
    memcached: SocketAddr,
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Served {
    fn begin() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("s");
        // These ports were free a short time ago.
        let free = [(); 2].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let [http, memcached] = free.map(|listener| listener.local_addr().unwrap());
        let options = Options {
            unix: Some(socket.clone()),
            http: vec![http],
            memcached: vec![memcached],
            threads: 2,
            ..Options::default()
        };
        std::thread::spawn(move || pando_server::serve(&options).unwrap());
        let served = Self { http, memcached, socket, _folder: folder };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(http).is_err() || UnixStream::connect(&served.socket).is_err() {
            assert!(Instant::now() < deadline, "no server listens at {http}");
            std::thread::sleep(Duration::from_millis(5));
        }
        served
    }

    /// Sends inline requests, and waits for `reply_bytes` bytes of replies.
    fn redis(&self, requests: &str, reply_bytes: usize) {
        let mut client = UnixStream::connect(&self.socket).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(requests.as_bytes()).unwrap();
        client.read_exact(&mut vec![0; reply_bytes]).unwrap();
    }

    /// Sends these bytes, and returns the received bytes until the server closes.
    fn raw(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.http).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The server may refuse before it has received everything.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
        String::from_utf8(answer).unwrap()
    }

    /// The head and the body of a response.
    fn ask(&self, method: &str, path: &str) -> (String, String) {
        let answer = self.raw(&format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.http
        ));
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.to_ascii_lowercase(), body.to_owned())
    }

    fn status(&self) -> Status {
        let (head, body) = self.ask("GET", "/status.json");
        assert!(head.starts_with("http/1.1 200"), "{head}");
        serde_json::from_str(&body).unwrap()
    }

    /// The first status for which `holds` is true.
    fn status_when(&self, holds: impl Fn(&Status) -> bool) -> Status {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if holds(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "{status:#?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn the_status_tells_what_clients_did() {
    let served = Served::begin();
    served.redis("SET k 0123456789\r\nGET k\r\nGET none\r\nGET\r\n", 5 + 17 + 5 + 50);
    let status = served.status_when(|status| {
        status.totals["commands"] == 3 && status.seconds.iter().any(|second| second.hits > 0)
    });
    let of = |name: &str| status.commands.iter().find(|command| command.name == name).unwrap();
    assert_eq!((of("get").calls, of("set").calls), (2, 1));
    assert_eq!((status.totals["hits"], status.totals["misses"]), (1, 1));
    assert_eq!(status.totals["errors"], 1);
    let second = status.seconds.iter().find(|second| second.hits > 0).unwrap();
    assert!(second.reads.p50_ns.is_some() && second.all.p99_ns >= second.all.p50_ns);
    assert!(status.memory.used_bytes > 0);
    assert!(status.memory.used_bytes <= status.memory.pool_bytes);
    assert!(status.durability.guarantee.starts_with("what has returned survives"));
    // A new store has its count from the beginning. No walk was requested.
    assert_eq!((status.keys, status.shape.age_seconds), (Some(1), None));

    let (head, _) = served.ask("POST", "/shape");
    assert!(head.starts_with("http/1.1 202"), "{head}");
    let status = served.status_when(|status| status.shape.age_seconds.is_some());
    assert_eq!((status.keys, status.shape.error), (Some(1), None));
    assert_eq!(status.shape.maps[0].name, "server");
    assert!(status.shape.maps[0].records >= 1 && status.shape.maps[0].height >= 1);

    let (head, metrics) = served.ask("GET", "/metrics");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    for line in ["pando_command_calls_total{command=\"get\"} 2", "pando_keys 1", "# EOF"] {
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }
}

#[test]
fn what_is_not_there_is_refused() {
    let served = Served::begin();
    let begins = |method: &str, path: &str, expected: &str| {
        let (head, body) = served.ask(method, path);
        assert!(head.starts_with(&format!("http/1.1 {expected}")), "{method} {path}: {head}");
        (head, body)
    };
    assert_eq!(begins("GET", "/healthz", "200").1, "ok\n");
    assert_eq!(begins("HEAD", "/", "200").1, "");
    begins("GET", "/none", "404");
    begins("DELETE", "/", "405");
    assert!(begins("GET", "/shape", "405").0.contains("allow: post"));
    let page = begins("GET", "/", "200");
    assert!(page.0.contains("default-src 'none'") && page.1.contains("<title>Pando</title>"));

    let foreign = "GET /status.json HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert!(served.raw(foreign).starts_with("HTTP/1.1 403"));
    assert!(served.raw("\0\0\0\0\r\n\r\n").starts_with("HTTP/1.1 400"));
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20));
    assert!(!served.raw(&long).starts_with("HTTP/1.1 2"));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(1000));
    assert!(!served.raw(&many).starts_with("HTTP/1.1 2"));
    let body = "POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n";
    assert!(served.raw(body).starts_with("HTTP/1.1 405"));
    begins("GET", "/healthz", "200");
}

#[test]
fn silent_clients_keep_nobody_out_for_long() {
    let served = Served::begin();
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(served.http).unwrap()).collect();
    let begin = Instant::now();
    assert_eq!(served.ask("GET", "/healthz").1, "ok\n");
    assert!(begin.elapsed() < Duration::from_secs(25), "{:?}", begin.elapsed());
    drop(silent);
}

#[test]
fn clients_of_memcached_count_too() {
    let served = Served::begin();
    let mut client = TcpStream::connect(served.memcached).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"set k 0 0 2\r\nab\r\nget k none\r\ndelete k\r\nmg k\r\n").unwrap();
    let expected = b"STORED\r\nVALUE k 0 2\r\nab\r\nEND\r\nDELETED\r\nEN\r\n";
    let mut replies = vec![0; expected.len()];
    client.read_exact(&mut replies).unwrap();
    assert_eq!(replies, expected);
    // Sent bytes are counted after they are sent.
    let status = served
        .status_when(|status| status.totals["commands"] == 4 && status.totals["bytes_out"] > 0);
    assert_eq!((status.totals["hits"], status.totals["misses"]), (1, 2));
    assert!(status.connected_clients >= 1);
    let moved = (status.totals["bytes_in"], status.totals["bytes_out"]);
    assert_eq!(moved, (13 + 4 + 12 + 10 + 6, expected.len() as u64));
    let written =
        |status: &Status| status.seconds.iter().map(|second| second.writes.count).sum::<u64>();
    served.status_when(|status| written(status) == 2);
}
