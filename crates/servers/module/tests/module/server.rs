//! A server with the module.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::packages;
use crate::process::Process;
use crate::wire::{Client, Value};

/// The files of a server, which outlive it.
pub struct Site {
    folder: tempfile::TempDir,
    words: Vec<String>,
    /// Where it listens, beside its socket.
    pub port: Option<u16>,
}

/// A server that runs until it is dropped, which is a `kill -9`.
pub struct Server {
    _process: Process,
    socket: PathBuf,
}

/// The module, which must be built.
pub fn module() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    let folder = program.ancestors().nth(2).expect("the directory of the build");
    let module = folder.join("libpando_module.so");
    assert!(
        module.is_file(),
        "{} is missing; build it: crates/servers/module/check",
        module.display()
    );
    module
}

/// A port that nobody listens at. A node of a cluster also needs the one 10,000 higher. Both are
/// below the ports that the system gives to clients.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        // Relaxed: each call gets another number.
        let next =
            std::process::id().wrapping_mul(131).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (next % 12_000) as u16;
        let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if is_free(port) && is_free(port + 10_000) {
            return port;
        }
    }
}

impl Site {
    /// A site whose servers have these options.
    pub fn new(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let words = options.iter().map(|&word| word.to_owned()).collect();
        Self { folder, words, port: None }
    }

    /// A site with the append-only file. It is synced always: with `everysec` Redis may reply while
    /// a sync holds back the write of the file.
    pub fn with_aof() -> Self {
        Self::new(&["--appendonly", "yes", "--save", "", "--appendfsync", "always"])
    }

    /// The same, which also listens at a port.
    pub fn at_port(options: &[&str]) -> Self {
        let mut site = Self::new(options);
        site.port = Some(free_port());
        site
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Lets a place of the module fail from now on; none any more with an empty name.
    pub fn fail(&self, place: &str) {
        let file = self.path("fail");
        match place {
            "" => std::fs::remove_file(file).expect("the file"),
            place => {
                std::fs::write(self.path("new"), place).expect("a file");
                std::fs::rename(self.path("new"), file).expect("a rename");
            }
        }
    }

    /// Starts a server without the module, which MODULE LOAD may load.
    pub fn start_without_module(&self) -> Server {
        let mut command = self.plain_command();
        command.args(["--enable-module-command", "yes"]).args(&self.words);
        self.start_command(command)
    }

    fn plain_command(&self) -> Command {
        let mut command = match std::env::var_os("PANDO_REDIS").filter(|path| !path.is_empty()) {
            Some(path) => Command::new(path),
            None => packages::program("redis-server").command(),
        };
        let port = self.port.unwrap_or(0).to_string();
        command.current_dir(self.folder.path());
        command.args(["--port", &port, "--unixsocket", "s", "--logfile", "log"]);
        command.args(["--enable-debug-command", "yes"]);
        command.env("PANDO_FAIL_BY", self.path("fail"));
        command
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = self.plain_command();
        command.arg("--loadmodule").arg(module());
        command.args(&self.words).args(options);
        command
    }

    /// Starts a server.
    pub fn start(&self) -> Server {
        self.start_with(&[])
    }

    /// Starts one with more options.
    pub fn start_with(&self, options: &[&str]) -> Server {
        self.start_command(self.command(options))
    }

    fn start_command(&self, command: Command) -> Server {
        let socket = self.path("s");
        let _ = std::fs::remove_file(&socket);
        let answers = |socket: &Path| {
            let Ok(mut client) = Client::connect(socket) else { return false };
            let ping = client.ask(&crate::wire::words("PING"));
            ping.is_ok_and(|reply| reply.value.bytes() == b"PONG")
        };
        let process = Process::start(command, || answers(&socket));
        Server { _process: process, socket }
    }

    /// Starts a server that kills itself at a place of the module.
    pub fn start_to_die_at(&self, place: &str, options: &[&str]) -> Server {
        let mut command = self.command(options);
        command.env("PANDO_KILL_AT", place);
        self.start_command(command)
    }

    /// Starts a server that must not come up, and returns its log.
    pub fn refused(&self, options: &[&str]) -> String {
        let _ = std::fs::remove_file(self.path("log"));
        let mut command = self.command(options);
        // Redis exits with 0 if only the module has refused a file.
        command.stdout(Stdio::null()).status().expect("a process that ends");
        self.log()
    }

    /// Runs a server that kills itself at a place of the module without a command of the test.
    pub fn dies(&self, place: &str, options: &[&str]) {
        let mut command = self.command(options);
        command.env("PANDO_KILL_AT", place);
        let status = command.stdout(Stdio::null()).status().expect("a process");
        assert!(!status.success());
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of the server:\n{}", self.log());
        }
    }
}

impl Server {
    pub fn connect(&self) -> Client {
        Client::connect(&self.socket).expect("a connection")
    }
}

/// The reply of a command in one line, as text: arrays have spaces between their elements, and no
/// value is a dash.
pub fn say(client: &mut Client, line: &str) -> String {
    text(&client.say(line))
}

pub fn text(value: &Value) -> String {
    match value {
        Value::Nothing(_) => "-".to_owned(),
        Value::Line(b'_', _) => "-".to_owned(),
        Value::Values(_, values) => values.iter().map(text).collect::<Vec<_>>().join(" "),
        other => String::from_utf8_lossy(other.bytes()).into_owned(),
    }
}

/// Waits until a condition holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !holds() {
        assert!(std::time::Instant::now() < deadline, "{what} does not come true");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A field of INFO.
pub fn info(client: &mut Client, field: &str) -> String {
    let all = say(client, "INFO everything");
    let line = all.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_default().trim().to_owned()
}
