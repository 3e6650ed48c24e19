//! How many clients there may be, how long they may be silent, how much they may send.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::common::wire::words;
use crate::server::Server;

#[test]
fn one_client_too_many_is_told_so() {
    let server = Server::with(&[("maxclients", "2")]);
    // The one that looked whether the server listens may not have gone yet.
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
        assert!(queued < 100, "it goes on for ever");
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
