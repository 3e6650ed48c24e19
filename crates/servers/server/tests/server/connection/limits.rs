//! Limits: the number of clients, the time of silence, the size of requests.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::server::Server;
use crate::common::wire::words;

#[test]
fn one_client_too_many_is_told_so() {
    let server = Server::with(&[("maxclients", "2")]);
    // The connection that checked the start of the server may not have ended yet.
    std::thread::sleep(Duration::from_millis(200));
    let (mut first, mut second) = (server.connect(), server.connect());
    assert!(!first.say("PING").is_error() && !second.say("PING").is_error());
    let mut third = UnixStream::connect(server.socket()).expect("it listens");
    let mut answer = String::new();
    third.read_to_string(&mut answer).expect("it is closed");
    assert_eq!(answer, "-ERR max number of clients reached\r\n");
    drop(second);
    std::thread::sleep(Duration::from_millis(200));
    assert!(!server.connect().say("PING").is_error());
}

#[test]
fn a_silent_client_is_let_go() {
    let server = Server::with(&[("timeout", "1")]);
    let mut client = server.connect();
    assert!(!client.say("PING").is_error());
    std::thread::sleep(Duration::from_millis(2500));
    assert!(client.ask(&words("PING")).is_err());
}

#[test]
fn a_client_can_be_ended_by_another() {
    let server = Server::with(&[]);
    let (mut one, mut other) = (server.connect(), server.connect());
    let id = other.say("CLIENT ID").number().expect("a number");
    assert_eq!(one.say(&format!("CLIENT KILL ID {id}")).number(), Some(1));
    assert!(other.ask(&words("PING")).is_err());
    let own = one.say("CLIENT ID").number().expect("a number");
    assert_eq!(one.say(&format!("CLIENT KILL ID {own}")).number(), Some(0), "it skips itself");
    let line = one.say("CLIENT INFO");
    let line = String::from_utf8_lossy(line.bytes()).into_owned();
    assert!(line.starts_with(&format!("id={own} addr=")) && line.contains(" cmd=client|info "));
    assert_eq!(one.say(&format!("CLIENT KILL ID {own} SKIPME no")).number(), Some(1));
    assert!(one.ask(&words("PING")).is_err());
}

#[test]
fn what_waits_for_exec_is_bounded() {
    let server = Server::with(&[("client-query-buffer-limit", "1048576")]);
    let mut client = server.connect();
    assert!(!client.say("MULTI").is_error());
    let value = vec![b'x'; 100_000];
    let mut queued = 0;
    while client.ask(&[b"SET".to_vec(), b"k".to_vec(), value.clone()]).is_ok() {
        queued += 1;
        assert!(queued < 100, "the limit is never reached");
    }
    assert!(queued >= 10);
    assert!(!server.connect().say("PING").is_error());
}

#[test]
fn what_was_queued_is_not_carried_out_without_memory() {
    let server = Server::with(&[]);
    let (mut client, mut other) = (server.connect(), server.connect());
    let mut say = |line: &str| String::from_utf8_lossy(client.say(line).bytes()).into_owned();
    assert_eq!((say("MULTI"), say("SET key 1")), ("OK".into(), "QUEUED".into()));
    assert!(!other.say("CONFIG SET maxmemory 1").is_error());
    assert_eq!(
        say("EXEC"),
        "EXECABORT Transaction discarded because of: OOM command not allowed when used memory > \
         'maxmemory'."
    );
    assert_eq!(say("EXEC"), "ERR EXEC without MULTI");
}

#[test]
fn what_is_watched_is_bounded() {
    let server = Server::with(&[("client-query-buffer-limit", "1048576")]);
    let mut client = server.connect();
    for _ in 0..20_000 {
        assert!(!client.say("WATCH the-same-key").is_error(), "it is watched once");
    }
    let watched =
        (0..20_000).take_while(|number| client.ask(&words(&format!("WATCH key-{number}"))).is_ok());
    let watched = watched.count();
    assert!((1_000..20_000).contains(&watched), "{watched}");
    assert!(!server.connect().say("PING").is_error());
}

#[test]
fn a_request_that_is_too_long_ends_the_connection() {
    let server = Server::with(&[("client-query-buffer-limit", "1048576")]);
    let mut stream = UnixStream::connect(server.socket()).expect("it listens");
    stream.set_write_timeout(Some(Duration::from_secs(10))).expect("a limit");
    stream.write_all(b"*2\r\n$4\r\nECHO\r\n$400000000\r\n").expect("it is sent");
    let piece = vec![b'x'; 1 << 16];
    let sent = (0..200).take_while(|_| stream.write_all(&piece).is_ok()).count();
    assert!(sent < 200, "{sent}");
}

#[test]
fn replies_can_be_left_out() {
    let server = Server::with(&[]);
    let mut client = server.connect();
    for line in ["CLIENT REPLY OFF", "PING", "SET a 1", "CLIENT REPLY ON", "GET a"] {
        client.send(&words(line)).expect("it is sent");
    }
    assert_eq!(client.receive().expect("a reply").bytes, b"+OK\r\n");
    assert_eq!(client.receive().expect("a reply").bytes, b"$1\r\n1\r\n");
    for line in ["CLIENT REPLY SKIP", "PING", "GET a"] {
        client.send(&words(line)).expect("it is sent");
    }
    assert_eq!(client.receive().expect("a reply").bytes, b"$1\r\n1\r\n");
}

#[test]
fn who_writes_waits_while_writes_are_paused() {
    let server = Server::with(&[]);
    let (mut one, mut other) = (server.connect(), server.connect());
    assert!(!one.say("CLIENT PAUSE 60000 WRITE").is_error());
    assert!(!other.say("GET a").is_error());
    other.send(&words("SET a 1")).expect("it is sent");
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(one.say("GET a").bytes(), b"");
    assert!(!one.say("CLIENT UNPAUSE").is_error());
    assert_eq!(other.receive().expect("a reply").bytes, b"+OK\r\n");
}

#[test]
fn a_command_that_takes_long_is_in_the_slow_log() {
    let server =
        Server::with(&[("enable-debug-command", "yes"), ("slowlog-log-slower-than", "20000")]);
    let mut client = server.connect();
    client.say("CLIENT SETNAME sleeper");
    assert!(!client.say("DEBUG SLEEP 0.05").is_error());
    assert_eq!(client.say("SLOWLOG LEN").number(), Some(1));
    let entries = client.say("SLOWLOG GET");
    let entry = entries.values()[0].values();
    assert!(entry[2].number().expect("microseconds") >= 50_000);
    assert_eq!(entry[3].values().len(), 3);
    assert_eq!(entry[5].bytes(), b"sleeper");
}

#[test]
fn the_server_says_what_it_promises() {
    let server = Server::with(&[]);
    let mut client = server.connect();
    let text = client.say("INFO pando");
    let text = String::from_utf8_lossy(text.bytes()).into_owned();
    assert!(
        text.starts_with("# Pando\r\n") && text.contains("\r\nguarantee:what has returned"),
        "{text}"
    );
    let text = client.say("INFO");
    let text = String::from_utf8_lossy(text.bytes()).into_owned();
    for section in
        ["Server", "Clients", "Memory", "Persistence", "Stats", "Replication", "CPU", "Keyspace"]
    {
        assert!(text.contains(&format!("# {section}\r\n")), "{section}");
    }
}

/// A section of INFO.
fn info(client: &mut crate::common::wire::Client, section: &str) -> String {
    String::from_utf8_lossy(client.say(&format!("INFO {section}")).bytes()).into_owned()
}

fn field(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

#[test]
fn info_counts_what_expires_what_changed_what_failed_and_who_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let snapshot = folder.path().join("snapshot");
    let server =
        Server::start(pando_server::Options { snapshot: Some(snapshot), ..Default::default() });
    let (mut client, mut other) = (server.connect(), server.connect());
    for line in ["SET a 1 EX 1000", "SET b 1 EX 3000", "SET c 1", "INCR c", "HSET h f 1"] {
        assert!(!client.say(line).is_error(), "{line}");
    }
    let keys = info(&mut client, "keyspace");
    let keys = field(&keys, "db0");
    let left_ms = keys.strip_prefix("keys=4,expires=2,avg_ttl=").expect("two of four expire");
    assert!((1_900_000..=2_000_000).contains(&left_ms.parse::<u64>().expect("a number")), "{keys}");

    let changes =
        |client: &mut _| field(&info(client, "persistence"), "rdb_changes_since_last_save");
    assert_eq!(changes(&mut client), "5");
    assert!(client.say("INCR h").is_error());
    assert_eq!(changes(&mut client), "5");
    assert!(!client.say("SAVE").is_error());
    assert_eq!(changes(&mut client), "0");

    assert!(client.say("NOSUCH").is_error() && client.say("GET").is_error());
    let errors = info(&mut client, "errorstats");
    assert_eq!(field(&errors, "errorstat_ERR"), "count=2");
    assert_eq!(field(&errors, "errorstat_WRONGTYPE"), "count=1");
    assert!(!client.say("CONFIG RESETSTAT").is_error());
    assert!(!info(&mut client, "errorstats").contains("errorstat_"));

    let waiting = |client: &mut _| field(&info(client, "clients"), "blocked_clients");
    assert_eq!(waiting(&mut client), "0");
    assert!(!client.say("CLIENT PAUSE 60000 WRITE").is_error());
    other.send(&words("SET a 1")).expect("it is sent");
    let seen = (0..1000).any(|_| waiting(&mut client) == "1");
    assert!(seen, "a client that waits is counted");
    assert!(!client.say("CLIENT UNPAUSE").is_error());
    assert_eq!(other.receive().expect("a reply").bytes, b"+OK\r\n");
    assert_eq!(waiting(&mut client), "0");
}

#[test]
fn a_key_is_idle_since_it_was_last_used() {
    let server = Server::with(&[]);
    let mut client = server.connect();
    assert!(!client.say("SET a 1").is_error());
    std::thread::sleep(Duration::from_millis(2100));
    let idle = client.say("OBJECT IDLETIME a").number().expect("a number");
    assert!((1..60).contains(&idle), "{idle}");
    assert!(!client.say("GET a").is_error());
    assert!(client.say("OBJECT IDLETIME a").number().is_some_and(|idle| idle <= 1));
}

#[test]
fn settings_that_cannot_be_set_are_refused_at_the_start() {
    for (name, value) in [("bind", "1.2.3.4"), ("databases", "17"), ("appendonly", "yes")] {
        let parameters = vec![(name.to_owned(), value.to_owned())];
        let refused = pando_server::serve(&pando_server::Options {
            config: parameters,
            ..Default::default()
        });
        let error = refused.expect_err("it is refused").to_string();
        assert!(error.starts_with(&format!("{name} cannot be '{value}': ")), "{error}");
    }
    let server = Server::with(&[]);
    let reply = server.connect().say("CONFIG GET appendfsync");
    assert_eq!(
        reply.values()[1].bytes(),
        b"no",
        "nothing survives the machine on anonymous memory"
    );
}

#[test]
fn snapshots_are_written_by_the_clock_while_something_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let snapshot = folder.path().join("snapshot");
    let parameters = [("snapshot-every", "1"), ("snapshots", "2")];
    let server = Server::start(pando_server::Options {
        snapshot: Some(snapshot.clone()),
        config: parameters.map(|(name, value)| (name.into(), value.into())).into(),
        ..Default::default()
    });
    let mut client = server.connect();
    let earlier = folder.path().join("snapshot.1");
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !earlier.exists() {
        assert!(!client.say("INCR a").is_error());
        assert!(std::time::Instant::now() < deadline, "no snapshots are written");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(snapshot.exists() && !folder.path().join("snapshot.2").exists());
}
