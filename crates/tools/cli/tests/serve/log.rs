//! A server whose pool has a log: it starts without a person after a power cut, and the file of
//! options names the log.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use pando_server::testing::free_port;

use crate::recover::boot_another;
use crate::server::{Client, Server};

#[test]
fn a_lost_pool_is_rebuilt_by_the_start_and_the_output_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let port = free_port().to_string();
    let options = format!(
        "pool = \"a.pool\"\nlog = \"a.log\"\nsync = \"always\"\nport = 0\nunix = \"socket\"\n\
         memcached-port = {port}\nmax-bytes = \"256M\"\n"
    );
    fs::write(path("pando.toml"), options).expect("written");
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        command.args(["serve", "--config"]).arg(path("pando.toml"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        Server { child: child.expect("the server starts") }
    };
    let mut server = start();
    let mut client = Client::unix(&path("socket"));
    assert_eq!(
        client.ask(&["CONFIG", "GET", "append*"]).join(" "),
        "appendfsync always appendonly yes"
    );
    client.ask(&["SET", "key", "value", "EX", "1000"]);
    client.ask(&["SADD", "set", "a", "b"]);
    let mut memcached =
        TcpStream::connect(("127.0.0.1", port.parse().expect("a port"))).expect("connects");
    memcached.write_all(b"set other 0 0 1\r\n1\r\n").expect("sends");
    let mut reply = [0; 8];
    memcached.read_exact(&mut reply).expect("receives");
    assert_eq!(&reply, b"STORED\r\n");
    server.kill();
    // The machine has gone down with the pool open; then its file is gone.
    for is_gone in [false, true] {
        match is_gone {
            false => boot_another(&path("a.pool")),
            true => fs::remove_file(path("a.pool")).expect("removed"),
        }
        let mut server = start();
        let mut client = Client::unix(&path("socket"));
        assert_eq!(client.ask(&["GET", "key"]), ["value"]);
        assert_eq!(client.ask(&["GET", "other"]), ["1"]);
        assert_eq!(client.ask(&["SCARD", "set"]), ["2"]);
        let left: i64 = client.ask(&["TTL", "key"])[0].parse().expect("a number");
        assert!((900..=1000).contains(&left), "{left}");
        server.kill();
        let output = BufReader::new(server.child.stderr.take().expect("it is piped"));
        let lines: Vec<String> = output.lines().map(|line| line.expect("text")).collect();
        let has = |words: &str| lines.iter().any(|line| line.contains(words));
        assert!(has("the pool is lost; it is rebuilt from its log"), "{lines:?}");
        assert!(has("sync=\"always\""), "{lines:?}");
    }
}
