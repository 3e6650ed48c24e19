//! A client that asks a server in words.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// A connection. Its functions panic if the server replies with an error, or with something else
/// than Redis's protocol.
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

    /// Sends a command.
    ///
    /// # Errors
    ///
    /// The connection's.
    pub fn send(&mut self, words: &[&str]) -> io::Result<()> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.writer.write_all(request.as_bytes())
    }

    /// A reply: an array as its elements, nil as none.
    ///
    /// # Errors
    ///
    /// The connection's; its end.
    ///
    /// # Panics
    ///
    /// If the reply is an error.
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

    /// Sends a command, and receives its reply.
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    ///
    /// # Panics
    ///
    /// As [`receive`](Self::receive).
    pub fn try_ask(&mut self, words: &[&str]) -> io::Result<Vec<String>> {
        self.send(words)?;
        self.receive()
    }

    /// The same.
    ///
    /// # Panics
    ///
    /// Also at an error of the connection.
    pub fn ask(&mut self, words: &[&str]) -> Vec<String> {
        self.try_ask(words).expect("answers")
    }
}
