//! A client of the Redis protocol that keeps every byte of a reply.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The longest time for a reply, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The words of a command.
pub type Words = Vec<Vec<u8>>;

/// The words of a line, split at spaces.
pub fn words(line: &str) -> Words {
    line.split_ascii_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

/// A part of a reply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A line, with its type byte: `+ - : , # ( _`.
    Line(u8, Vec<u8>),
    /// Bytes with a length, and their type byte: `$ = !`.
    Bytes(u8, Vec<u8>),
    /// `$-1` and `*-1`.
    Nothing(u8),
    /// Values with their type byte: `* % ~ >`. Those of a map are alternating keys and values.
    Values(u8, Vec<Value>),
}

impl Value {
    /// The number in an integer, or in a string.
    pub fn number(&self) -> Option<i64> {
        match self {
            Self::Line(b':', text) | Self::Bytes(b'$', text) => {
                std::str::from_utf8(text).ok()?.parse().ok()
            }
            _ => None,
        }
    }

    /// The bytes of a string or of a line.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Line(_, bytes) | Self::Bytes(_, bytes) => bytes,
            _ => &[],
        }
    }

    /// The elements, if it has any.
    pub fn values(&self) -> &[Value] {
        match self {
            Self::Values(_, values) => values,
            _ => &[],
        }
    }

    pub fn is_error(&self) -> bool {
        matches!(self, Self::Line(b'-', _) | Self::Bytes(b'!', _))
    }
}

/// A reply: its parsed value, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub value: Value,
    pub bytes: Vec<u8>,
}

pub struct Client {
    stream: UnixStream,
    buffer: Vec<u8>,
    begin: usize,
}

impl Client {
    pub fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, buffer: Vec::new(), begin: 0 })
    }

    /// Sends a command and waits for its reply.
    pub fn ask(&mut self, words: &[Vec<u8>]) -> io::Result<Reply> {
        self.send(words)?;
        self.receive()
    }

    /// Sends the words of a line, and waits for the reply's value.
    pub fn say(&mut self, line: &str) -> Value {
        self.ask(&words(line)).expect("a reply").value
    }

    pub fn send(&mut self, words: &[Vec<u8>]) -> io::Result<()> {
        self.send_all(std::iter::once(words))
    }

    /// Sends several commands at once.
    pub fn send_all<'words>(
        &mut self,
        commands: impl Iterator<Item = &'words [Vec<u8>]>,
    ) -> io::Result<()> {
        let mut requests = Vec::new();
        for words in commands {
            requests.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
            for word in words {
                requests.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                requests.extend_from_slice(word);
                requests.extend_from_slice(b"\r\n");
            }
        }
        self.stream.write_all(&requests)
    }

    pub fn receive(&mut self) -> io::Result<Reply> {
        self.buffer.drain(..self.begin);
        self.begin = 0;
        let value = self.value()?;
        Ok(Reply { value, bytes: self.buffer[..self.begin].to_vec() })
    }

    fn value(&mut self) -> io::Result<Value> {
        let line = self.line()?;
        let (&kind, rest) = line.split_first().ok_or(io::ErrorKind::InvalidData)?;
        let number = || -> io::Result<i64> {
            let text = std::str::from_utf8(rest).map_err(|_| io::ErrorKind::InvalidData)?;
            Ok(text.parse().map_err(|_| io::ErrorKind::InvalidData)?)
        };
        match kind {
            b'+' | b'-' | b':' | b',' | b'#' | b'(' | b'_' => Ok(Value::Line(kind, rest.to_vec())),
            b'$' | b'=' | b'!' => match usize::try_from(number()?) {
                Ok(count) => {
                    let mut bytes = self.take(count + 2)?;
                    bytes.truncate(count);
                    Ok(Value::Bytes(kind, bytes))
                }
                Err(_) => Ok(Value::Nothing(kind)),
            },
            b'*' | b'%' | b'~' | b'>' => match usize::try_from(number()?) {
                Ok(count) => {
                    let count = if kind == b'%' { 2 * count } else { count };
                    let values = (0..count).map(|_| self.value()).collect::<io::Result<_>>()?;
                    Ok(Value::Values(kind, values))
                }
                Err(_) => Ok(Value::Nothing(kind)),
            },
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut searched = self.begin;
        loop {
            let found = self.buffer[searched..].windows(2).position(|two| two == b"\r\n");
            if let Some(at) = found {
                let end = searched + at;
                let line = self.buffer[self.begin..end].to_vec();
                self.begin = end + 2;
                return Ok(line);
            }
            searched = self.begin.max(self.buffer.len().saturating_sub(1));
            self.fill()?;
        }
    }

    fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < self.begin + count {
            self.fill()?;
        }
        let bytes = self.buffer[self.begin..self.begin + count].to_vec();
        self.begin += count;
        Ok(bytes)
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut piece = [0; 64 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.buffer.extend_from_slice(&piece[..count]);
                Ok(())
            }
            // A process that is stopped for a while is interrupted in a read with a timeout.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(error),
        }
    }
}
