//! A server while the disk of its log does not answer: the log lies in a file system that is frozen
//! (`fsfreeze`), so that each write to it waits in the kernel.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::server::{Client, Server};

/// Within which everything happens that must: several times the ten seconds after which a disk
/// counts as stalled.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file system on a disk that can be frozen; unmounted on drop.
struct Freezable(tempfile::TempDir);

impl Freezable {
    /// If this process may not mount one, prints a line and returns `None`.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image");
        File::create(&image).expect("created").set_len(256 << 20).expect("a length");
        let mounted = Self(folder);
        fs::create_dir(mounted.path()).expect("created");
        let made = run(Command::new("mkfs.ext4").arg("-q").arg(&image));
        if made && run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(mounted.path())) {
            return Some(mounted);
        }
        println!("note: skipped, this process may not mount an ext4 file system");
        None
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("mounted")
    }

    fn freeze(&self, is_frozen: bool) {
        let option = if is_frozen { "-f" } else { "-u" };
        assert!(run(Command::new("fsfreeze").arg(option).arg(self.path())), "fsfreeze {option}");
    }
}

impl Drop for Freezable {
    fn drop(&mut self) {
        // Nothing that waits for it ends before.
        run(Command::new("fsfreeze").arg("-u").arg(self.path()));
        run(Command::new("umount").arg("-l").arg(self.path()));
    }
}

fn run(command: &mut Command) -> bool {
    command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// A connection whose replies are read as lines, errors too.
struct Lines(BufReader<UnixStream>);

impl Lines {
    fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        Self(BufReader::new(stream))
    }

    /// Sends an inline command.
    fn send(&mut self, command: &str) {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).expect("sends");
    }

    /// The next line.
    fn receive(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server answers");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.receive()
    }
}

#[test]
fn a_server_whose_disk_stalls_serves_reads_and_refuses_writes_until_the_disk_answers() {
    const WRITERS: usize = 32;
    /// Together several times what the tail of the log has room for.
    const WRITES: usize = 32;
    const VALUE_BYTES: usize = 60_000;
    let Some(disk) = Freezable::new() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let options = format!(
        "pool = \"a.pool\"\nlog = {:?}\nsync = \"no\"\nport = 0\nunix = \"socket\"\n\
         max-bytes = \"512M\"\nthreads = 2\n",
        disk.path().join("log")
    );
    fs::write(path("pando.toml"), options).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
    command.args(["serve", "--config"]).arg(path("pando.toml"));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut server = Server { child: child.expect("the server starts") };
    // Dropped before the server, which ends only when the disk answers.
    let disk = disk;
    let mut client = Client::unix(&path("socket"));
    // Their removal writes more than the tail has room for.
    for number in 0..20_000 {
        let key = format!("expires {number}");
        client.send(&["SET", &key, &"x".repeat(2_000), "PX", "3000"]).expect("sends");
        if number % 100 == 99 {
            (0..100).for_each(|_| drop(client.receive().expect("answers")));
        }
    }
    client.ask(&["SET", "key", "value"]);

    disk.freeze(true);
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let mut lines = Lines::connect(&path("socket"));
            thread::spawn(move || {
                let value = "y".repeat(VALUE_BYTES);
                let mut replies = Vec::new();
                for number in 0..WRITES {
                    lines.send(&format!("SET {writer}:{number} {value}"));
                    replies.push(lines.receive());
                }
                replies
            })
        })
        .collect();
    // One command that is longer than the tail.
    let mut long = Lines::connect(&path("socket"));
    let long = thread::spawn(move || {
        let value = "z".repeat(48 << 20);
        let length = value.len();
        let stream = long.0.get_mut();
        write!(stream, "*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n${length}\r\n{value}\r\n").expect("sends");
        long.receive()
    });
    let deadline = Instant::now() + PATIENCE;
    let is_refused = |lines: &mut Lines| lines.ask("SET other value").starts_with("-MISCONF");
    loop {
        // Both event loops answer: connections are distributed among them.
        let mut both = [(); 2].map(|()| Lines::connect(&path("socket")));
        for lines in &mut both {
            assert_eq!(lines.ask("GET key"), "$5");
            assert_eq!(lines.receive(), "value");
        }
        let mut info = Client::unix(&path("socket"));
        let info = info.ask(&["INFO", "pando"]).join("");
        if info.contains("the disk of the log has not answered") {
            assert!(both.iter_mut().all(is_refused));
            break;
        }
        assert!(Instant::now() < deadline, "it does not count as stalled: {info}");
        thread::sleep(Duration::from_millis(100));
    }
    let replies = writers.into_iter().flat_map(|writer| writer.join().expect("joins"));
    let (done, refused): (Vec<_>, Vec<_>) = replies.partition(|reply| reply == "+OK");
    assert!(refused.iter().all(|reply| reply.starts_with("-MISCONF ")), "{:?}", refused.first());
    assert!(done.len() * VALUE_BYTES < 32 << 20 && !refused.is_empty(), "{} done", done.len());
    let long = long.join().expect("joins");
    assert!(long.starts_with("-MISCONF "), "{long}");

    disk.freeze(false);
    let deadline = Instant::now() + PATIENCE;
    let mut lines = Lines::connect(&path("socket"));
    while lines.ask("SET other value") != "+OK" {
        assert!(Instant::now() < deadline, "writes are still refused");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(run(Command::new("kill").arg(server.child.id().to_string())));
    let status = server.child.wait().expect("it ends");
    assert!(status.success(), "{status}");
}
