//! Input that no client sends. The server must continue after it, and its memory must stay bounded.

use super::servers;
use crate::common::random::Random;

/// The most additional memory for such input, in bytes.
const MAX_GROWTH: u64 = 96 << 20;

#[test]
fn hostile_input_ends_neither_the_server_nor_its_memory() {
    let server = servers::pando();
    let before = server.memory_bytes();
    let alive = |what: &str| {
        assert_eq!(server.connect().say("version\r\n"), "VERSION 1.6.18\r\n", "{what}");
        let grown = server.memory_bytes().saturating_sub(before);
        assert!(grown < MAX_GROWTH, "{what}: {grown} bytes more");
    };
    let mut piece = vec![b'x'; 1 << 20];
    // The request announces a value of 2 GiB, and a part of it is sent.
    let mut connection = server.connect();
    connection.send(b"set a 0 0 2147483645\r\n").expect("it takes it");
    for _ in 0..256 {
        connection.send(&piece).expect("it takes it");
    }
    alive("a giant value");
    // A line without an end, and the line of a get without an end.
    for begin in [&b"set "[..], b"get ", b"\x80"] {
        let mut connection = server.connect();
        let _ = connection.send(begin);
        piece.fill(b'k');
        for _ in 0..64 {
            if connection.send(&piece).is_err() {
                break;
            }
        }
        alive("a line without an end");
    }
    // Replies that the client does not read.
    server.connect().ask(&[&b"set big 0 0 1000000\r\n"[..], &[b'y'; 1_000_000], b"\r\n"].concat());
    let many = [&b"get"[..], &b" big".repeat(4000), b"\r\n"].concat();
    let mut deaf: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for connection in &mut deaf {
        connection.send(&many).expect("it takes it");
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    alive("replies that are not taken");
    drop(deaf);
    // Connections that end within a request.
    for request in
        ["set a 0 0 100\r\nabc", "ms a 100 c\r\n", "get a b c", "mg", "\r", "ms a 2\r\nab\r"]
    {
        server.connect().send(request.as_bytes()).expect("it takes it");
    }
    alive("cut off");
    let mut random = Random::new(7);
    for _ in 0..300 {
        let mut connection = server.connect();
        let mut input = random.bytes(300);
        if random.once_in(2) {
            let name =
                random.word(&["set ", "mg ", "ms a ", "get ", "ma ", "cas ", "stats ", "me "]);
            input.splice(0..0, name);
        }
        input.push(b'\n');
        // It may close the connection.
        let _ = connection.send(&input);
    }
    alive("noise");
}
