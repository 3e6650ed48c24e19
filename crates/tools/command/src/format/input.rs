//! The input of a format: a buffer whose bytes are counted, and the marks of its encoding.

use std::io::{self, BufRead, BufReader, Read};

/// Bytes of the buffer.
pub const BUFFER_BYTES: usize = 256 << 10;
/// The byte order mark of UTF-8.
pub const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Whether the input is UTF-16, by its byte order mark.
pub fn is_utf16(beginning: &[u8]) -> bool {
    [&[0xFF, 0xFE][..], &[0xFE, 0xFF]].iter().any(|mark| beginning.starts_with(mark))
}

/// The bytes of a reader, counted.
pub struct Input<R> {
    reader: BufReader<R>,
    position_bytes: u64,
}

impl<R: Read> Input<R> {
    /// The bytes of `reader`.
    pub fn new(reader: R) -> Self {
        Self { reader: BufReader::with_capacity(BUFFER_BYTES, reader), position_bytes: 0 }
    }

    /// The next bytes, which stay until they are consumed; none at the end.
    pub fn fill(&mut self) -> io::Result<&[u8]> {
        loop {
            match self.reader.fill_buf() {
                Ok(_) => return Ok(self.reader.buffer()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the first bytes of those that [`fill`](Self::fill) has returned.
    pub fn consume(&mut self, bytes: usize) {
        self.reader.consume(bytes);
        self.position_bytes += bytes as u64;
    }

    /// The number of bytes that were consumed.
    pub fn position_bytes(&self) -> u64 {
        self.position_bytes
    }

    /// Whether the next line may not be buffered yet.
    pub fn may_wait(&self) -> bool {
        !self.reader.buffer().contains(&b'\n')
    }
}
