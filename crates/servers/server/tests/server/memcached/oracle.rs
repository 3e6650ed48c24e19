//! Sends the same requests to our server and to Debian's memcached, and compares every byte of the
//! replies, except for the parts that `reply.rs` removes.
//!
//! `PANDO_ORACLE_SEED` repeats one case, and `PANDO_ORACLE_CASES` is the number of cases.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::generate::{self, Part, Request};
use super::reply::Seen;
use super::servers::{self, Connection, Running};
use crate::common::random::Random;

struct System {
    connection: Connection,
    seen: Seen,
    server: Running,
}

impl System {
    fn new(server: Running) -> Self {
        Self { connection: server.connect(), seen: Seen::default(), server }
    }

    fn begin(&mut self) {
        self.connection = self.server.connect();
        self.seen = Seen::default();
        assert_eq!(self.connection.say("flush_all\r\n"), "OK\r\n");
    }

    fn ask(&mut self, request: &Request) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in request {
            match part {
                Part::Bytes(part) => bytes.extend_from_slice(part),
                Part::Cas(before, which) => {
                    bytes.extend_from_slice(before.as_bytes());
                    let count = self.seen.cas.len() as u64;
                    // Large numbers count from the end.
                    let at = match u64::MAX - which {
                        back if back < count => count - 1 - back,
                        _ => which.checked_rem(count).unwrap_or(0),
                    };
                    let cas =
                        self.seen.cas.get(at as usize).copied().unwrap_or(999_999_999_999_999);
                    bytes.extend_from_slice(cas.to_string().as_bytes());
                }
            }
        }
        let reply = self.connection.ask(&bytes);
        self.seen.normalize(&reply)
    }
}

struct Oracle {
    ours: System,
    theirs: System,
}

struct Difference {
    at: usize,
    ours: Vec<u8>,
    theirs: Vec<u8>,
}

impl Oracle {
    fn start() -> Self {
        Self { ours: System::new(servers::pando()), theirs: System::new(servers::memcached()) }
    }

    fn run(&mut self, requests: &[Request]) -> Option<Difference> {
        self.ours.begin();
        self.theirs.begin();
        for (at, request) in requests.iter().enumerate() {
            let (ours, theirs) = (self.ours.ask(request), self.theirs.ask(request));
            if ours != theirs {
                return Some(Difference { at, ours, theirs });
            }
        }
        None
    }

    fn check(&mut self, mut requests: Vec<Request>, name: &str) {
        let Some(mut difference) = self.run(&requests) else { return };
        requests.truncate(difference.at + 1);
        // Requests that the difference does not need are left out.
        for at in (0..difference.at).rev() {
            let mut fewer = requests.clone();
            fewer.remove(at);
            if let Some(found) = self.run(&fewer) {
                fewer.truncate(found.at + 1);
                (requests, difference) = (fewer, found);
            }
        }
        let shown = |bytes: &[u8]| bytes.escape_ascii().to_string();
        for request in &requests {
            for part in request {
                match part {
                    Part::Bytes(bytes) => eprint!("{}", shown(bytes)),
                    Part::Cas(before, which) => eprint!("{before}{{cas {which}}}"),
                }
            }
            eprintln!();
        }
        panic!(
            "{name}\nours:   {}\ntheirs: {}",
            shown(&difference.ours),
            shown(&difference.theirs)
        );
    }

    fn check_lines(&mut self, lines: &[&str]) {
        for line in lines {
            let bytes = [line.as_bytes(), b"\r\n"].concat();
            self.check(vec![vec![Part::Bytes(bytes)]], line);
        }
    }
}

#[test]
fn generated_requests_are_answered_as_memcached_does() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos();
    // Each start has other cases, so a later run may find other differences.
    let only = number("PANDO_ORACLE_SEED");
    let first = only.unwrap_or_else(|| Random::new(now as u64).number() >> 16);
    let cases = if only.is_some() { 1 } else { number("PANDO_ORACLE_CASES").unwrap_or(60) };
    let mut oracle = Oracle::start();
    for seed in first..first + cases {
        let mut random = Random::new(seed);
        let requests = (0..120).map(|_| generate::request(&mut random)).collect();
        oracle.check(requests, &format!("PANDO_ORACLE_SEED={seed}"));
    }
}

#[test]
fn lines_that_are_odd_are_answered_as_memcached_does() {
    let mut oracle = Oracle::start();
    oracle.check_lines(&[
        "set a 0 0 3\r\nabcdef",
        "set a 0 0 -1\r\nabc",
        "set a 0 0 1 noreply extra\r\nx",
        "set a 5 0 1 foo\r\nx\r\nget a",
        "get a\0b c",
        " get  a ",
        "gat 10",
        "gat x a",
        "delete noreply\r\ntouch noreply\r\nverbosity noreply",
        "delete a 0\r\ndelete a 1\r\ndelete a 0 noreply\r\ndelete a x noreply\r\ndelete a 0 0",
        "set n 0 0 20\r\n18446744073709551615\r\nincr n 1\r\nget n\r\nincr n 5\r\nget n",
        "set n 0 0 2\r\n10\r\ndecr n 1\r\nget n\r\ndecr n 100\r\nget n\r\nincr n 1000\r\nget n",
        "set n 0 0 6\r\n12 abc\r\nincr n 1\r\nget n",
        "set n 0 0 2\r\n90\r\nmd n I\r\nma n v t\r\nmg n v\r\nmg n v f",
        "set n 3 50 1\r\n9\r\nmd n I\r\nma n v t\r\nmg n v",
        "set n 0 50 1\r\n9\r\nmd n I\r\nma n D5 v c\r\nmg n v",
        "set n 0 50 2\r\n12\r\nma n T100 t v\r\nma n t T0 v\r\nmg n t v",
        "ms a 2 C1 I\r\nab\r\nmg a v",
        "mg a Y!Q== b k v\r\nmg Y=Q= b k",
        "mg zzz N30 t k s v c\r\nmg zzz v t\r\nget zzz",
        "mg a a b c d e f g h i j k l m n o p q r s t",
        "ms a 2 MX\r\nab\r\nms a 2 Fx\r\nab\r\nms a 2 q q\r\nab\r\nms a 2 b\r\nab",
        "ms enp6eg== 2 b k\r\nab\r\nmg zzzz k v\r\nms zzzz 2 k\r\nab\r\nmg enp6eg== b k v",
        "stats sizes\r\nstats reset",
    ]);
    let giant = "x".repeat((1 << 20) + 5);
    let most = &giant[..(1 << 20) - 64];
    for lines in [
        format!("set big 0 0 {}\r\n{most}\r\nget big\r\n", most.len()),
        format!("set big 7 0 {}\r\n{most}\r\nget big\r\n", most.len()),
        format!(
            "set big 0 0 {}\r\n{most}\r\nappend big 0 0 9\r\n123456789\r\nget big\r\n",
            most.len()
        ),
        format!("set big 0 0 1\r\nx\r\nset big 0 0 {}\r\n{giant}\r\nget big\r\n", giant.len()),
        format!("set big 0 0 1\r\nx\r\nadd big 0 0 {}\r\n{giant}\r\nget big\r\n", giant.len()),
        format!("set big 0 0 1\r\nx\r\nms big {} q\r\n{giant}\r\nget big\r\n", giant.len()),
        format!("set big 0 0 {} noreply\r\n{giant}\r\nget big\r\n", giant.len()),
        format!("set a 0 0 1\r\nx\r\nget {}\r\n", "a ".repeat(5000)),
        format!("set {} 0 0 1\r\nx\r\n", &giant[..251]),
        format!("ms {} 1\r\nx\r\n", &giant[..251]),
        format!("get {}\r\n", &giant[..251]),
        format!("mg {} v\r\n", &giant[..251]),
    ] {
        oracle.check(vec![vec![Part::Bytes(lines.clone().into_bytes())]], &lines[..30]);
    }
}

#[test]
fn lines_without_an_end_close_the_connection_as_memcached_does() {
    let servers = [servers::pando(), servers::memcached()];
    for line in ["x".repeat(2049), format!("{}get {}", " ".repeat(101), "a ".repeat(1500))] {
        for server in &servers {
            let mut connection = server.connect();
            connection.send(line.as_bytes()).expect("it takes a line");
            assert_eq!(connection.read_until(b"never"), b"");
            assert_eq!(server.connect().say("version\r\n"), "VERSION 1.6.18\r\n");
        }
    }
}

#[test]
fn values_expire_and_a_flush_waits_as_in_memcached() {
    let servers = [servers::pando(), servers::memcached()];
    let mut connections = servers.each_ref().map(Running::connect);
    let mut both = |request: &str| connections.each_mut().map(|one| one.say(request));
    both("set soon 0 2 1\r\nx\r\nset touched 0 2 1\r\nx\r\ntouch touched 100\r\n");
    both("set gat 0 100 1\r\nx\r\ngat 2 gat\r\nset stays 0 0 1\r\nx\r\n");
    std::thread::sleep(Duration::from_millis(3100));
    let replies = both("get soon gat\r\nget touched\r\nadd soon 0 0 1\r\ny\r\nget stays\r\n");
    assert_eq!(replies[0], replies[1]);
    assert!(replies[0].starts_with("END\r\nVALUE touched 0 1"), "{}", replies[0]);
    both("flush_all 2\r\nset late 0 0 1\r\nx\r\n");
    let replies = both("get stays late\r\n");
    assert_eq!(replies[0], replies[1]);
    assert!(replies[0].contains("VALUE late"));
    std::thread::sleep(Duration::from_millis(3100));
    let replies = both("get stays late soon touched\r\nset after 0 0 1\r\nx\r\nget after\r\n");
    assert_eq!(replies[0], replies[1]);
    assert!(replies[0].starts_with("END\r\nSTORED\r\nVALUE after"), "{}", replies[0]);
    // A delayed flush is forgotten after an immediate one.
    both("flush_all 2\r\nflush_all\r\nset kept 0 0 1\r\nx\r\n");
    std::thread::sleep(Duration::from_millis(3100));
    let replies = both("get kept\r\n");
    assert_eq!(replies[0], replies[1]);
    assert!(replies[0].contains("VALUE kept"));
}

#[test]
fn what_redis_wrote_is_there_with_a_cas_of_its_own() {
    let server = servers::pando();
    let (mut memcached, mut redis) = (server.connect(), server.connect_redis());
    redis.send(b"SET oak 5\r\n").expect("it takes a command");
    assert_eq!(redis.read_until(b"\r\n"), b"+OK\r\n");
    let reply = memcached.say("gets oak\r\n");
    let cas = reply.split(['\r', ' ']).nth(4).expect("a cas").to_owned();
    assert_eq!(reply, format!("VALUE oak 0 1 {cas}\r\n5\r\nEND\r\n"));
    assert!(cas.parse::<u64>().expect("a number") >> 63 == 1);
    redis.send(b"SET oak 6\r\n").expect("it takes a command");
    redis.read_until(b"\r\n");
    assert_eq!(memcached.say(&format!("cas oak 0 0 1 {cas}\r\n7\r\n")), "EXISTS\r\n");
    redis.send(b"SET oak 5\r\n").expect("it takes a command");
    redis.read_until(b"\r\n");
    assert_eq!(memcached.say(&format!("cas oak 9 0 1 {cas}\r\n7\r\n")), "STORED\r\n");
    assert_eq!(memcached.say("incr oak 5\r\nget oak\r\n"), "12\r\nVALUE oak 9 2\r\n12\r\nEND\r\n");
    redis.send(b"GET oak\r\n").expect("it takes a command");
    assert_eq!(redis.read_until(b"12\r\n"), b"$2\r\n12\r\n");
    assert_eq!(memcached.say("delete oak\r\n"), "DELETED\r\n");
    redis.send(b"GET oak\r\n").expect("it takes a command");
    assert_eq!(redis.read_until(b"\r\n"), b"$-1\r\n");
}
