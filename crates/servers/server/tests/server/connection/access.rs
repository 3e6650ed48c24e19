//! Passwords and users.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};

use pando_server::testing::free_port;
use pando_server::{Options, ServeError};

use super::server::Server;
use crate::common::wire::{Client, Value};

fn reply_to(client: &mut Client, line: &str) -> String {
    match client.say(line) {
        Value::Line(kind, words) => {
            format!("{}{}", char::from(kind), String::from_utf8_lossy(&words))
        }
        value => String::from_utf8_lossy(value.bytes()).into_owned(),
    }
}

#[test]
fn nobody_does_anything_before_the_password() {
    let server = Server::with(&[("requirepass", "secret")]);
    let mut client = server.connect();
    for line in ["PING", "GET a", "MULTI", "ACL WHOAMI", "CLIENT ID", "INFO"] {
        assert_eq!(reply_to(&mut client, line), "-NOAUTH Authentication required.", "{line}");
    }
    assert!(reply_to(&mut client, "HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.";
    assert_eq!(reply_to(&mut client, "AUTH Secret"), wrong);
    assert_eq!(
        reply_to(&mut client, "GET a b"),
        "-ERR wrong number of arguments for 'get' command"
    );
    assert_eq!(reply_to(&mut client, "AUTH secret"), "+OK");
    assert_eq!(reply_to(&mut client, "PING"), "+PONG");
    assert_eq!(reply_to(&mut client, "RESET"), "+RESET");
    assert_eq!(reply_to(&mut client, "PING"), "-NOAUTH Authentication required.");
    assert!(!client.say("HELLO 3 AUTH default secret").is_error());
    assert_eq!(reply_to(&mut client, "CONFIG SET requirepass other"), "+OK");
    assert_eq!(reply_to(&mut client, "PING"), "+PONG", "an authenticated client stays");
    let mut other = server.connect();
    assert_eq!(reply_to(&mut other, "AUTH secret"), wrong);
    assert_eq!(reply_to(&mut other, "AUTH other"), "+OK");
    assert_eq!(reply_to(&mut other, "CONFIG SET requirepass secret"), "+OK");
}

#[test]
fn little_is_taken_from_who_has_not_said_who_they_are() {
    let server = Server::with(&[("requirepass", "secret")]);
    for (request, error) in [
        ("*11\r\n", "-ERR Protocol error: unauthenticated multibulk length"),
        ("*2\r\n$3\r\nGET\r\n$20000\r\n", "-ERR Protocol error: unauthenticated bulk length"),
    ] {
        let mut stream =
            std::os::unix::net::UnixStream::connect(server.socket()).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it is closed");
        assert_eq!(answer, format!("{error}\r\n"));
    }
}

#[test]
fn a_user_does_what_its_rules_say_also_in_a_transaction() {
    let server = Server::with(&[]);
    let (mut admin, mut client) = (server.connect(), server.connect());
    let rules = "ACL SETUSER ann on >pw +get +set +multi +exec +config|get ~a*";
    assert_eq!(reply_to(&mut admin, rules), "+OK");
    assert_eq!(reply_to(&mut client, "AUTH ann pw"), "+OK");
    assert_eq!(reply_to(&mut client, "SET a 1"), "+OK");
    assert_eq!(reply_to(&mut client, "GET a"), "1");
    let key = "-NOPERM this user has no permissions to access one of the keys used as arguments";
    assert_eq!(reply_to(&mut client, "GET b"), key);
    let command =
        |name: &str| format!("-NOPERM this user has no permissions to run the '{name}' command");
    assert_eq!(reply_to(&mut client, "MSET a 1"), command("mset"));
    assert_eq!(reply_to(&mut client, "CONFIG SET timeout 0"), command("config|set"));
    assert!(!client.say("CONFIG GET timeout").is_error());
    assert_eq!(reply_to(&mut client, "ACL WHOAMI"), command("acl|whoami"));

    assert_eq!(reply_to(&mut client, "MULTI"), "+OK");
    assert_eq!(reply_to(&mut client, "SET b 1"), key);
    assert_eq!(reply_to(&mut client, "GET a"), "+QUEUED");
    let aborted = "-EXECABORT Transaction discarded because of previous errors.";
    assert_eq!(reply_to(&mut client, "EXEC"), aborted);

    assert_eq!(reply_to(&mut client, "MULTI"), "+OK");
    assert_eq!(reply_to(&mut client, "SET a 2"), "+QUEUED");
    assert_eq!(reply_to(&mut client, "GET a"), "+QUEUED");
    assert_eq!(reply_to(&mut admin, "ACL SETUSER ann -set"), "+OK");
    let done = client.say("EXEC");
    let [set, get] = done.values() else { panic!("{done:?}") };
    let Value::Line(b'-', words) = set else { panic!("{set:?}") };
    assert!(words.starts_with(b"NOPERM ACLs rules changed"));
    assert_eq!(get.bytes(), b"1", "SET, which is not allowed any more, was not executed");

    assert!(!admin.say("ACL LOG").values().is_empty());
    assert_eq!(admin.say("ACL DELUSER ann").number(), Some(1));
    assert!(client.ask(&[b"PING".to_vec()]).is_err(), "its connections end");
}

#[test]
fn users_come_from_a_file_and_go_back_to_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("users.acl");
    std::fs::write(&path, "user default on nopass ~* &* +@all\nuser ann on >pw ~a* +get\n")
        .expect("a file");
    let options = Options { acl_file: Some(path.clone()), ..Options::default() };
    let server = Server::start(options.clone());
    let mut admin = server.connect();
    assert_eq!(reply_to(&mut admin, "ACL SETUSER bob on nopass +@read"), "+OK");
    assert_eq!(reply_to(&mut admin, "ACL SAVE"), "+OK");
    assert_eq!(reply_to(&mut admin, "ACL DELUSER bob"), ":1");
    assert_eq!(reply_to(&mut admin, "ACL LOAD"), "+OK");
    assert_eq!(reply_to(&mut admin, "AUTH bob anything"), "+OK");
    let saved = std::fs::read_to_string(&path).expect("a file");
    assert!(saved.contains("user ann on #") && !saved.contains("pw"), "{saved}");
    drop(server);

    std::fs::write(&path, "user ann on +nosuch\n").expect("a file");
    let refused = pando_server::serve(&options);
    assert!(matches!(refused, Err(ServeError::Users { .. })), "{refused:?}");
}

/// An address of this machine other than loopback, if there is one.
fn address_elsewhere() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // This sends nothing.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

#[test]
fn without_a_password_nobody_from_elsewhere_is_let_in() {
    let Some(address) = address_elsewhere() else {
        eprintln!("this machine has no address but the loopback's");
        return;
    };
    let at = SocketAddr::new(address, free_port());
    let server = Server::start(Options { redis: vec![at], ..Options::default() });
    let ask = || {
        let mut stream = TcpStream::connect(at).expect("it listens");
        let _ = stream.write_all(b"PING\r\nQUIT\r\n");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    let answer = ask();
    assert!(answer.is_empty() || answer.starts_with("-DENIED Redis is running in protected mode"));
    let mut admin = server.connect();
    assert_eq!(reply_to(&mut admin, "CONFIG SET protected-mode no"), "+OK");
    assert_eq!(ask(), "+PONG\r\n+OK\r\n");
}

#[test]
fn the_log_has_the_command_as_it_was_sent_and_says_where() {
    let server = Server::with(&[]);
    let (mut admin, mut client) = (server.connect(), server.connect());
    assert_eq!(
        reply_to(&mut admin, "ACL SETUSER ann on >pw +multi +exec +get +config|get ~a"),
        "+OK"
    );
    for line in
        ["AUTH ann no", "HELLO 2 AUTH ann no", "AUTH ann pw", "CONFIG SET timeout 0", "GET b"]
    {
        reply_to(&mut client, line);
    }
    reply_to(&mut client, "MULTI");
    reply_to(&mut client, "GET a");
    assert_eq!(reply_to(&mut admin, "ACL SETUSER ann -get"), "+OK");
    reply_to(&mut client, "EXEC");
    let log = admin.say("ACL LOG");
    let entries = log.values().iter().map(|entry| {
        let field = |at: usize| String::from_utf8_lossy(entry.values()[at].bytes()).into_owned();
        [field(3), field(5), field(7)].join(" ")
    });
    let expected = [
        "command multi get",
        "key toplevel b",
        "command toplevel config|set",
        "auth toplevel HELLO",
        "auth toplevel AUTH",
    ];
    assert_eq!(entries.collect::<Vec<_>>(), expected);
}
