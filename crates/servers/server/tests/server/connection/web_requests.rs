//! HTTP requests to the ports of Redis's and memcached's protocols, as a browser sends them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use pando_server::Options;
use pando_server::testing::free_port;

use super::server::Server;

/// The bytes that a connection receives until it is closed, after it sent these pieces.
fn received(at: SocketAddr, pieces: &[&[u8]]) -> Vec<u8> {
    let mut stream = TcpStream::connect(at).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
    stream.set_nodelay(true).expect("no delay");
    for piece in pieces {
        // It may be closed by now.
        let _ = stream.write_all(piece);
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("{error}"),
        _ => answer,
    }
}

#[test]
fn an_http_request_ends_its_connection_and_changes_nothing() {
    let port = || SocketAddr::from(([127, 0, 0, 1], free_port()));
    let (redis, memcached) = (port(), port());
    let options = Options { redis: vec![redis], memcached: vec![memcached], ..Options::default() };
    let server = Server::start(options);
    for method in ["GET", "POST", "PUT", "DELETE"] {
        let head = format!("{method} / HTTP/1.1\r\nHost: x\r\n\r\n");
        for (at, body) in [(redis, "set pwned 1\r\n"), (memcached, "set pwned 0 0 1\r\n1\r\n")] {
            let (head, body) = (head.as_bytes(), body.as_bytes());
            assert_eq!(received(at, &[head, body]), b"", "{method} {at}");
            let (begin, end) = head.split_at(3);
            assert_eq!(received(at, &[begin, end, body]), b"", "{method} {at}");
        }
    }
    assert_eq!(server.connect().say("EXISTS pwned").number(), Some(0));
}
