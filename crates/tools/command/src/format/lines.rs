//! Lines of any length, read without keeping those that are too long.

use std::io::{self, Read};

use super::LineError;
use super::input::{BYTE_ORDER_MARK, Input, is_utf16};

/// The lines of a reader, counted.
pub struct Lines<R> {
    input: Input<R>,
    line: Vec<u8>,
    max_line_bytes: usize,
    number: u64,
}

impl<R: Read> Lines<R> {
    /// The lines of `reader`; a line of more than `max_line_bytes` is skipped with an error.
    pub fn new(reader: R, max_line_bytes: usize) -> Self {
        Self { input: Input::new(reader), line: Vec::new(), max_line_bytes, number: 0 }
    }

    /// The number of the line that was read last; the first is 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The bytes that the lines are read from.
    pub(super) fn input(&self) -> &Input<R> {
        &self.input
    }

    /// The next line, without its line end; `None` at the end.
    pub fn next_line(&mut self) -> io::Result<Option<Result<&[u8], LineError>>> {
        self.line.clear();
        let mut found_bytes = 0u64;
        let mut is_ended = false;
        while !is_ended {
            let buffer = self.input.fill()?;
            if buffer.is_empty() {
                if found_bytes == 0 {
                    return Ok(None);
                }
                break;
            }
            let end = buffer.iter().position(|&byte| byte == b'\n');
            is_ended = end.is_some();
            let part = &buffer[..end.unwrap_or(buffer.len())];
            let room_bytes = self.max_line_bytes.saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room_bytes)]);
            found_bytes += part.len() as u64;
            let consumed_bytes = part.len() + usize::from(is_ended);
            self.input.consume(consumed_bytes);
        }
        self.number += 1;
        let max_bytes = self.max_line_bytes;
        if found_bytes > max_bytes as u64 {
            self.line = Vec::new();
            return Ok(Some(Err(LineError::TooLong { found_bytes, max_bytes })));
        }
        if self.number == 1 {
            if is_utf16(&self.line) {
                return Ok(Some(Err(LineError::Utf16)));
            }
            // Some editors write it; it is no part of the first key.
            if self.line.starts_with(BYTE_ORDER_MARK) {
                self.line.drain(..BYTE_ORDER_MARK.len());
            }
        }
        Ok(Some(Ok(&self.line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::input::BUFFER_BYTES;

    fn all(text: &[u8], max_line_bytes: usize) -> Vec<Result<Vec<u8>, LineError>> {
        let mut lines = Lines::new(text, max_line_bytes);
        let mut found = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            found.push(line.map(<[u8]>::to_vec));
        }
        assert_eq!(lines.number(), found.len() as u64);
        assert_eq!(lines.input().position_bytes(), text.len() as u64);
        found
    }

    #[test]
    fn the_last_line_may_lack_its_end() {
        assert_eq!(all(b"a\n\nb", 10), [Ok(b"a".to_vec()), Ok(Vec::new()), Ok(b"b".to_vec())]);
        assert_eq!(all(b"a\n", 10), [Ok(b"a".to_vec())]);
        assert!(all(b"", 10).is_empty());
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over() {
        let too_long = LineError::TooLong { found_bytes: 4, max_bytes: 3 };
        assert_eq!(all(b"abc\nabcd\nx", 3), [Ok(b"abc".to_vec()), Err(too_long), Ok(b"x".into())]);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        let text = "\u{feff}a\n\u{feff}b\n".as_bytes();
        assert_eq!(all(text, 10), [Ok(b"a".to_vec()), Ok("\u{feff}b".as_bytes().to_vec())]);
        assert_eq!(all(b"\xff\xfea\0", 10), [Err(LineError::Utf16)]);
    }

    #[test]
    fn lines_longer_than_the_buffer_are_whole() {
        let mut text = vec![b'x'; 3 * BUFFER_BYTES + 1];
        text.push(b'\n');
        assert_eq!(all(&text, usize::MAX), [Ok(vec![b'x'; 3 * BUFFER_BYTES + 1])]);
    }
}
