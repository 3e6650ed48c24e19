//! The memory limit of the server also applies to memcached's clients.

use super::servers::{self, Running};

fn set_config(server: &Running, name: &str, value: &str) {
    let mut redis = server.connect_redis();
    redis.send(format!("CONFIG SET {name} {value}\r\n").as_bytes()).expect("it takes it");
    assert_eq!(redis.read_until(b"\r\n"), b"+OK\r\n", "{name} {value}");
}

#[test]
fn writes_that_need_memory_are_refused_and_others_are_not() {
    let server = servers::pando();
    let mut client = server.connect();
    let refused = "SERVER_ERROR out of memory storing object\r\n";
    let begin = "set kept 0 0 1\r\n7\r\nset replaced 0 0 1\r\n7\r\n";
    assert_eq!(client.say(begin), "STORED\r\nSTORED\r\n");
    set_config(&server, "maxmemory", "1");
    for request in [
        "add new 0 0 1\r\n1\r\n",
        "append kept 0 0 1\r\n1\r\n",
        "incr kept 1\r\n",
        "mg new N0 v\r\n",
    ] {
        assert_eq!(client.say(request), refused, "{request:?}");
    }
    assert_eq!(client.say("ms new 1\r\n1\r\n"), refused);
    assert_eq!(client.say("ma kept\r\n"), refused);
    // As in memcached, the old value does not remain, because the client wants to replace it.
    assert_eq!(client.say("set replaced 0 0 1\r\n8\r\n"), refused);
    assert_eq!(client.say("get replaced kept\r\n"), "VALUE kept 0 1\r\n7\r\nEND\r\n");
    assert_eq!(client.say("touch kept 0\r\ndelete kept\r\n"), "TOUCHED\r\nDELETED\r\n");
    set_config(&server, "maxmemory", "0");
    assert_eq!(client.say("add new 0 0 1\r\n1\r\n"), "STORED\r\n");
}

fn figure(server: &Running, name: &str) -> u64 {
    let stats = server.connect().say("stats\r\n");
    let begin = format!("STAT {name} ");
    let found = stats.lines().find_map(|line| line.strip_prefix(&begin)?.parse().ok());
    found.unwrap_or_else(|| panic!("no {name} in {stats}"))
}

#[test]
fn stats_tell_how_many_bytes_are_in_use() {
    const ITEMS: u64 = 200;
    let server = servers::pando();
    let mut client = server.connect();
    client.say("set first 0 0 1\r\n1\r\n");
    let before = figure(&server, "bytes");
    assert!(before > 0);
    for number in 0..ITEMS {
        let value = "v".repeat(10_000);
        assert_eq!(client.say(&format!("set {number} 0 0 10000\r\n{value}\r\n")), "STORED\r\n");
    }
    let full = figure(&server, "bytes");
    let each = (full - before) / ITEMS;
    assert!((10_000..20_000).contains(&each), "{each} bytes for an item of 10,000");
    for number in 0..ITEMS {
        assert_eq!(client.say(&format!("delete {number}\r\n")), "DELETED\r\n");
    }
    // There are no other clients, so removed records are free after a few sweeps.
    let falls = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        figure(&server, "bytes") < before + (full - before) / 4
    });
    assert!(falls, "{before}, {full}, then {}", figure(&server, "bytes"));
}

#[test]
fn keys_go_when_memory_is_short() {
    let server = servers::pando();
    let mut client = server.connect();
    let fill = |client: &mut servers::Connection, from: u32| {
        let value = "v".repeat(4000);
        for number in from..from + 1000 {
            let stored = client.say(&format!("set key-{number} 0 0 4000\r\n{value}\r\n"));
            assert_eq!(stored, "STORED\r\n");
        }
    };
    fill(&mut client, 0);
    set_config(&server, "maxmemory-policy", "allkeys-lru");
    set_config(&server, "maxmemory", "16777216");
    for round in 1..10 {
        fill(&mut client, 1000 * round);
    }
    let evicted = || figure(&server, "evictions");
    // The used bytes are measured ten times a second.
    let is_seen = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        evicted() > 1000
    });
    assert!(is_seen, "{} evicted", evicted());
}
