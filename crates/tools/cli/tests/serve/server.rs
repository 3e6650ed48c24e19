//! A server, and a client that asks it in words.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// A server, which is killed when it is dropped.
pub struct Server {
    pub child: Child,
}

impl Server {
    /// One on `pool`.
    pub fn start(pool: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pando"));
        command.arg("--pool").arg(pool).arg("serve").args(arguments);
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        Self { child: quiet.spawn().expect("the server starts") }
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("kills");
        self.child.wait().expect("ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection of either kind.
pub struct Client {
    writer: Box<dyn Write + Send>,
    reader: BufReader<Box<dyn Read + Send>>,
}

/// What `connect` makes, as soon as somebody listens.
fn patiently<Stream>(connect: impl Fn() -> io::Result<Stream>) -> Stream {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match connect() {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "nobody listens: {error}"),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

impl Client {
    /// Connects as soon as the server listens.
    pub fn unix(socket: &Path) -> Self {
        let stream = patiently(|| UnixStream::connect(socket));
        let other = stream.try_clone().expect("a second handle");
        Self { writer: Box::new(stream), reader: BufReader::new(Box::new(other)) }
    }

    /// Connects as soon as the server listens.
    pub fn patient_tcp(port: u16) -> Self {
        patiently(|| Self::tcp(port))
    }

    /// Connects, if somebody listens.
    pub fn tcp(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let other = stream.try_clone()?;
        Ok(Self { writer: Box::new(stream), reader: BufReader::new(Box::new(other)) })
    }

    pub fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.writer.write_all(request.as_bytes())
    }

    /// A reply: an array as its elements, each in a line.
    pub fn receive(&mut self) -> io::Result<Vec<String>> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 || !line.ends_with("\r\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (kind, rest) = line.trim_end().split_at(1);
        let number = || rest.parse::<i64>().expect("a length");
        match kind {
            "$" if number() < 0 => Ok(vec![]),
            "$" => {
                let mut bytes = vec![0; number() as usize + 2];
                self.reader.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Ok(vec![String::from_utf8(bytes).expect("text")])
            }
            "*" => {
                let mut all = Vec::new();
                for _ in 0..number().max(0) {
                    all.extend(self.receive()?);
                }
                Ok(all)
            }
            "-" => panic!("the server answers {line}"),
            _ => Ok(vec![rest.to_owned()]),
        }
    }

    pub fn try_ask(&mut self, words: &[&str]) -> io::Result<Vec<String>> {
        self.send(words)?;
        self.receive()
    }

    pub fn ask(&mut self, words: &[&str]) -> Vec<String> {
        self.try_ask(words).expect("answers")
    }
}
