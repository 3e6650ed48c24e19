//! A server that takes its options from a file.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

use crate::server::{Client, Server};

#[test]
fn the_file_has_the_options_and_the_command_line_has_precedence() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::write(path("password"), "secret word\r\n").expect("written");
    let text = "pool = \"trees.pool\"\nport = 0\nunix = \"file.socket\"\nmax-bytes = \"64M\"\n\
                requirepass-file = \"password\"\nlog-level = \"warn\"\n\
                snapshot-every = 900\n\
                [set]\nmaxclients = 77\nmaxmemory-policy = \"allkeys-lru\"\n";
    fs::write(path("pando.toml"), text).expect("written");
    let config = path("pando.toml").display().to_string();
    let socket = path("own.socket");
    let own = socket.display().to_string();
    let pool = path("own.pool");
    let arguments = [
        "--config",
        &config,
        "--unix",
        &own,
        "--set",
        "maxclients=78",
        "--set",
        "snapshot-every=0",
    ];
    let _server = Server::start(&pool, &arguments);
    let mut client = Client::unix(&socket);
    assert_eq!(client.ask(&["AUTH", "secret word"]), ["OK"]);
    assert_eq!(client.ask(&["CONFIG", "GET", "maxclients"]), ["maxclients", "78"]);
    assert_eq!(client.ask(&["CONFIG", "GET", "snapshot-every"]), ["snapshot-every", "0"]);
    let policy = client.ask(&["CONFIG", "GET", "maxmemory-policy"]);
    assert_eq!(policy, ["maxmemory-policy", "allkeys-lru"]);
    assert!(pool.exists() && !path("trees.pool").exists() && !path("file.socket").exists());
    assert_eq!(fs::metadata(&pool).expect("it is there").len().div_ceil(64 << 20), 1);
}

#[test]
fn what_is_wrong_in_a_file_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |text: &str, reason: &str| {
        let file = folder.path().join("pando.toml");
        fs::write(&file, text).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        command.args(["serve", "--config"]).arg(&file).current_dir(folder.path());
        let ran = command.output().expect("it runs");
        let errors = String::from_utf8(ran.stderr).expect("text");
        assert_eq!(ran.status.code(), Some(2), "{errors}");
        assert!(errors.contains("pando.toml") || errors.contains("password"), "{errors}");
        assert!(errors.contains(reason), "{errors}");
        assert!(!errors.contains("secret"), "{errors}");
    };
    refused("prot = 1\n", "unknown field `prot`");
    refused("port = \"x\"\n", "line 1");
    refused("port = 1\nrequirepass = \"secret\n", "pando.toml: line 2: ");
    refused("[set]\nRequirePass = \"secret\"\n", "requirepass-file");
    refused("requirepass = \"secret\"\n", "unknown field `requirepass`");
    refused("index = \"btree\"\n", "there is no index \"btree\"; known are bztree");
    refused("domain = \"disk\"\n", "pando.toml");
    refused("max-bytes = \"64X\"\n", "not a size");
    fs::write(folder.path().join("password"), "one\ntwo\n").expect("written");
    refused("port = 0\nrequirepass-file = \"password\"\n", "has 2 lines");
    let long = "secret".repeat(100);
    let ran = Command::new(env!("CARGO_BIN_EXE_pando"))
        .args(["serve", "--port", "0", "--requirepass", &long])
        .current_dir(folder.path())
        .output()
        .expect("it runs");
    let errors = String::from_utf8(ran.stderr).expect("text");
    assert!(errors.contains("requirepass") && errors.contains("512 bytes"), "{errors}");
    assert!(!errors.contains("secret"), "{errors}");
}

/// The page on serving has each option of the file, and no other.
#[test]
fn the_page_lists_the_options_of_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("pando.toml"), "no-option = 1\n").expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
    command.args(["serve", "--config", "pando.toml"]).current_dir(folder.path());
    let errors = String::from_utf8(command.output().expect("it runs").stderr).expect("text");
    let (_, options) = errors.split_once("expected one of ").expect("the options");
    let options: BTreeSet<&str> = options.split('`').skip(1).step_by(2).collect();
    assert!(options.len() > 20, "{options:?}");

    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/serve.md");
    let page = fs::read_to_string(page).expect("the page");
    let (_, section) = page.split_once("\n### The options of the file\n").expect("the section");
    let section = section.split("\n## ").next().expect("its lines");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(rows.collect::<BTreeSet<_>>(), options);
}

#[test]
fn a_wrong_option_is_refused_before_a_pool_is_created() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let taken = taken.local_addr().expect("an address").port().to_string();
    for (code, options, reason) in [
        (2, &["--set", "nope=1"][..], "no such config parameter"),
        (2, &["--set", "maxclients=abc"], "maxclients"),
        (2, &["--snapshots", "0"], "from 1 to 99"),
        (2, &["--port", "x"], "from 0 to 65535"),
        (2, &["--memcached-max-item", "2G"], "1G"),
        (2, &["--snapshot", "none/a.snap"], "there is no folder none"),
        (2, &["--unix", "none/x.sock"], "there is no folder none"),
        (2, &["--port", "7921", "--memcached-port", "7921"], "port is there too"),
        (2, &["--port", "7921", "--http-port", "7921"], "port is there too"),
        (2, &["--bind", "127.0.0.1", "--bind", "127.0.0.1"], "named twice"),
        (3, &["--port", &taken], "cannot listen at 127.0.0.1"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        command.args(["--pool", "new.pool", "serve"]).args(options).current_dir(folder.path());
        let ran = command.output().expect("it runs");
        let errors = String::from_utf8(ran.stderr).expect("text");
        assert_eq!(ran.status.code(), Some(code), "{options:?}: {errors}");
        assert!(errors.contains(reason), "{options:?}: {errors}");
        assert!(!folder.path().join("new.pool").exists(), "{options:?}");
    }
}

#[test]
fn a_manager_of_services_is_told_when_the_server_is_ready_and_when_it_stops() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let manager = UnixDatagram::bind(path("notify")).expect("bound");
    manager.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
    command.arg("--pool").arg(path("pool")).args(["serve", "--port", "0", "--log-level", "error"]);
    command.arg("--unix").arg(path("socket")).env("NOTIFY_SOCKET", path("notify"));
    let mut server = Server { child: command.spawn().expect("the server starts") };
    let told = || {
        let mut bytes = [0; 64];
        let length = loop {
            match manager.recv(&mut bytes) {
                Ok(length) => break length,
                // A process that is stopped for a while is interrupted in a wait with a timeout.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("the server does not tell: {error}"),
            }
        };
        String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
    };
    assert_eq!(told(), "READY=1");
    assert_eq!(Client::unix(&path("socket")).ask(&["PING"]), ["PONG"]);
    let mut client = Client::unix(&path("socket"));
    client.send(&["SHUTDOWN"]).expect("sent");
    assert_eq!(told(), "STOPPING=1");
    assert!(server.child.wait().expect("ends").success());
}
