//! Replies, in RESP2 or RESP3.

use std::ops::Range;

use crate::decimal;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Version {
    /// The version of a new connection.
    #[default]
    Resp2,
    /// The version after HELLO 3.
    Resp3,
}

impl Version {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// A buffer for replies.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    buffer: Vec<u8>,
    /// The version of the protocol.
    pub version: Version,
}

impl Reply {
    /// The current length, for [`truncate`](Self::truncate).
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Removes everything after `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.buffer.truncate(len);
    }

    /// The written bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// The reply to WAITAOF: whether the client's writes are durable here, and at how many
    /// replicas.
    pub(crate) fn waited(&mut self, are_durable: bool) {
        self.array(2);
        self.integer(i64::from(are_durable));
        self.integer(0);
    }

    /// Replaces each reply at one of these places, which are in order, by an error. An empty place
    /// stays empty.
    pub(crate) fn fail(&mut self, places: &[Range<usize>], words: &str) {
        let before = std::mem::take(&mut self.buffer);
        let mut kept_from = 0;
        for place in places {
            self.buffer.extend_from_slice(&before[kept_from..place.start]);
            if !place.is_empty() {
                self.error(words);
            }
            kept_from = place.end;
        }
        self.buffer.extend_from_slice(&before[kept_from..]);
    }

    /// The buffer itself, for emptying.
    pub(crate) fn buffer_mut(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    fn is_resp3(&self) -> bool {
        self.version == Version::Resp3
    }

    #[inline]
    fn line(&mut self, kind: u8, words: &[u8]) {
        self.buffer.push(kind);
        self.buffer.extend_from_slice(words);
        self.buffer.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn header(&mut self, kind: u8, count: i64) {
        self.buffer.push(kind);
        decimal::push_i64(&mut self.buffer, count);
        self.buffer.extend_from_slice(b"\r\n");
    }

    /// Writes a status word, such as OK.
    #[inline]
    pub(crate) fn simple(&mut self, words: &str) {
        self.line(b'+', words.as_bytes());
    }

    /// `OK`.
    #[inline]
    pub(crate) fn ok(&mut self) {
        self.buffer.extend_from_slice(b"+OK\r\n");
    }

    /// Writes an error: its code, a space, and words. Line ends in it become spaces.
    pub(crate) fn error(&mut self, words: &str) {
        let words = words.replace(['\r', '\n'], " ");
        self.line(b'-', words.as_bytes());
    }

    /// An integer.
    #[inline]
    pub(crate) fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// A number of things.
    #[inline]
    pub(crate) fn count(&mut self, value: u64) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Bytes.
    #[inline]
    pub(crate) fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', bytes.len() as i64);
        self.buffer.extend_from_slice(bytes);
        self.buffer.extend_from_slice(b"\r\n");
    }

    /// Begins a bulk of `bytes` bytes, which are written in parts.
    pub(crate) fn begin_bulk(&mut self, bytes: u64) {
        self.header(b'$', i64::try_from(bytes).unwrap_or(i64::MAX));
        self.buffer.reserve(bytes as usize + 2);
    }

    /// Writes a part of a bulk.
    pub(crate) fn part_of_bulk(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Ends a bulk after all its bytes.
    pub(crate) fn end_bulk(&mut self) {
        self.buffer.extend_from_slice(b"\r\n");
    }

    /// Writes a bulk, or null.
    pub(crate) fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Writes text for people; RESP3 has its own type for it.
    pub(crate) fn verbatim(&mut self, text: &str) {
        if self.is_resp3() {
            self.header(b'=', text.len() as i64 + 4);
            self.buffer.extend_from_slice(b"txt:");
            self.buffer.extend_from_slice(text.as_bytes());
            self.buffer.extend_from_slice(b"\r\n");
        } else {
            self.bulk(text.as_bytes());
        }
    }

    /// Writes null in the place of a bulk.
    #[inline]
    pub(crate) fn null(&mut self) {
        self.buffer.extend_from_slice(if self.is_resp3() { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Writes null in the place of an array.
    pub(crate) fn null_array(&mut self) {
        self.buffer.extend_from_slice(if self.is_resp3() { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// Writes a double; a bulk in RESP2.
    pub(crate) fn double(&mut self, value: f64) {
        let text = decimal::format_double(value);
        if self.is_resp3() {
            self.line(b',', text.as_bytes());
        } else {
            self.bulk(text.as_bytes());
        }
    }

    /// Begins an array; its `count` elements must follow.
    #[inline]
    pub(crate) fn array(&mut self, count: usize) {
        self.header(b'*', count as i64);
    }

    /// Begins a map; its `pairs` must follow. RESP2 has an array of alternating keys and values.
    pub(crate) fn map(&mut self, pairs: usize) {
        if self.is_resp3() {
            self.header(b'%', pairs as i64);
        } else {
            self.array(2 * pairs);
        }
    }

    /// Begins a set; its `count` elements must follow. RESP2 has an array.
    pub(crate) fn set(&mut self, count: usize) {
        if self.is_resp3() {
            self.header(b'~', count as i64);
        } else {
            self.array(count);
        }
    }

    /// Writes an array, map or set whose size is known only after its elements. `write` writes them
    /// and returns their number (of pairs).
    pub(crate) fn sized<E>(
        &mut self,
        begin: impl FnOnce(&mut Self, usize),
        write: impl FnOnce(&mut Self) -> Result<usize, E>,
    ) -> Result<(), E> {
        let mut elements = Self { buffer: Vec::new(), version: self.version };
        let count = write(&mut elements)?;
        begin(self, count);
        self.buffer.append(&mut elements.buffer);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(version: Version, write: impl FnOnce(&mut Reply)) -> String {
        let mut reply = Reply { version, ..Reply::default() };
        write(&mut reply);
        String::from_utf8(reply.buffer).expect("text")
    }

    #[test]
    fn each_version_has_its_own_forms() {
        type Case = (fn(&mut Reply), &'static str, &'static str);
        let cases: [Case; 8] = [
            (|reply| reply.null(), "$-1\r\n", "_\r\n"),
            (|reply| reply.null_array(), "*-1\r\n", "_\r\n"),
            (
                |reply| reply.double(0.1),
                "$19\r\n0.10000000000000001\r\n",
                ",0.10000000000000001\r\n",
            ),
            (|reply| reply.map(2), "*4\r\n", "%2\r\n"),
            (|reply| reply.set(2), "*2\r\n", "~2\r\n"),
            (|reply| reply.verbatim("a"), "$1\r\na\r\n", "=5\r\ntxt:a\r\n"),
            (|reply| reply.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (|reply| reply.bulk(b"ab"), "$2\r\nab\r\n", "$2\r\nab\r\n"),
        ];
        for (write, resp2, resp3) in cases {
            assert_eq!(written(Version::Resp2, write), resp2);
            assert_eq!(written(Version::Resp3, write), resp3);
        }
    }
}
