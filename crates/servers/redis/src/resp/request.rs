//! Requests: arrays of bulk strings, or inline.
//!
//! What has come is parsed once, in whatever pieces it comes; a length that is not allowed is
//! refused before anything is kept for it. Nothing is copied: a request is ranges of the buffer it
//! came in.

use std::ops::Range;

use smallvec::SmallVec;

/// Longest inline request, and longest line with a length, in bytes.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// Most arguments of a request.
const MAX_ARGUMENTS: i64 = 1024 * 1024;
/// Before a client has said who it is.
const MAX_ARGUMENTS_UNKNOWN: i64 = 10;
const MAX_BULK_BYTES_UNKNOWN: i64 = 16 * 1024;

/// The arguments of a request, in the buffer that it came in.
pub(crate) type Arguments = SmallVec<[Range<usize>; 8]>;

/// What a client may send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    /// Longest argument, in bytes.
    pub max_bulk_bytes: i64,
    /// Whether it has said who it is, as far as it must.
    pub is_known: bool,
}

/// What stands at the beginning of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// Not a whole request yet.
    Incomplete,
    /// A request of so many bytes. It may be empty, and then asks for nothing.
    Request {
        /// Its arguments.
        arguments: Arguments,
        /// Its length, in bytes.
        bytes: usize,
    },
    /// An inline request of so many bytes, with arguments that are not as they stand there.
    Inline {
        /// Its arguments.
        arguments: Vec<Vec<u8>>,
        /// Its length, in bytes.
        bytes: usize,
    },
    /// No request. The rest of what comes cannot be understood.
    Wrong(String),
}

/// How far the request at the beginning of a buffer was read.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// Bytes that were read.
    at: usize,
    /// Arguments that are still to come; none if the array has not begun.
    missing: Option<i64>,
    /// Length of the argument that has begun.
    bulk_bytes: Option<usize>,
    arguments: Arguments,
}

impl Parser {
    /// Reads on in `input`, which begins where it began in the calls before. After anything but
    /// [`Parsed::Incomplete`] the next call is for what follows.
    #[inline]
    pub(crate) fn parse(&mut self, input: &[u8], limits: RequestLimits) -> Parsed {
        match self.read_on(input, limits) {
            Ok(None) => Parsed::Incomplete,
            Ok(Some(parsed)) => {
                *self = Self::default();
                parsed
            }
            Err(words) => Parsed::Wrong(words),
        }
    }

    fn read_on(&mut self, input: &[u8], limits: RequestLimits) -> Result<Option<Parsed>, String> {
        let missing = match self.missing {
            Some(missing) => missing,
            None => {
                match input.first() {
                    None => return Ok(None),
                    Some(b'*') => {}
                    Some(_) => return inline(input),
                }
                let Some(count) = self.number(input, "too big mbulk count string")? else {
                    return Ok(None);
                };
                let most = if limits.is_known { MAX_ARGUMENTS } else { MAX_ARGUMENTS_UNKNOWN };
                let count = match count {
                    Some(count) if count <= MAX_ARGUMENTS => count,
                    _ => return Err("invalid multibulk length".into()),
                };
                if count > most {
                    return Err("unauthenticated multibulk length".into());
                }
                count.max(0)
            }
        };
        self.missing = Some(missing);
        for left in (0..missing).rev() {
            let bytes = match self.bulk_bytes {
                Some(bytes) => bytes,
                None => {
                    match input.get(self.at) {
                        None => return Ok(None),
                        Some(b'$') => {}
                        Some(&other) => {
                            return Err(format!("expected '$', got '{}'", char::from(other)));
                        }
                    }
                    let Some(bytes) = self.number(input, "too big bulk count string")? else {
                        return Ok(None);
                    };
                    match bytes {
                        Some(bytes) if (0..=limits.max_bulk_bytes).contains(&bytes) => {
                            if !limits.is_known && bytes > MAX_BULK_BYTES_UNKNOWN {
                                return Err("unauthenticated bulk length".into());
                            }
                            bytes as usize
                        }
                        _ => return Err("invalid bulk length".into()),
                    }
                }
            };
            self.bulk_bytes = Some(bytes);
            let end = self.at + bytes;
            if input.len() < end + 2 {
                return Ok(None);
            }
            self.arguments.push(self.at..end);
            self.at = end + 2;
            self.bulk_bytes = None;
            self.missing = Some(left);
        }
        let arguments = std::mem::take(&mut self.arguments);
        Ok(Some(Parsed::Request { arguments, bytes: self.at }))
    }

    /// The number on the line that begins behind the byte at hand, if the line is there;
    /// `Some(None)` if it is no number.
    #[inline]
    fn number(&mut self, input: &[u8], too_long: &str) -> Result<Option<Option<i64>>, String> {
        let line = &input[self.at + 1..];
        let searched = &line[..line.len().min(MAX_LINE_BYTES)];
        // Lengths are short: their end is found by looking at each byte.
        let Some(end) = searched.iter().position(|&byte| byte == b'\r') else {
            let is_too_long = line.len() > MAX_LINE_BYTES;
            return if is_too_long { Err(too_long.into()) } else { Ok(None) };
        };
        if line.len() < end + 2 {
            return Ok(None);
        }
        self.at += end + 3;
        Ok(Some(crate::decimal::parse_i64(&line[..end])))
    }

    /// Bytes that are to come at least before the request is whole, as far as is known.
    pub(crate) fn missing_bytes(&self, input_bytes: usize) -> usize {
        self.bulk_bytes.map_or(0, |bytes| (self.at + bytes + 2).saturating_sub(input_bytes))
    }
}

fn inline(input: &[u8]) -> Result<Option<Parsed>, String> {
    let Some(end) = input.iter().take(MAX_LINE_BYTES).position(|&byte| byte == b'\n') else {
        return if input.len() > MAX_LINE_BYTES {
            Err("too big inline request".into())
        } else {
            Ok(None)
        };
    };
    let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
    match split_line(line) {
        Some(arguments) => Ok(Some(Parsed::Inline { arguments, bytes: end + 1 })),
        None => Err("unbalanced quotes in request".into()),
    }
}

/// The words of a line; some may stand in quotes, with escapes in double ones. `None` if a quote
/// does not end, or ends within a word.
pub(crate) fn split_line(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    // As in Redis, a zero byte ends the line.
    let mut rest = line.split(|&byte| byte == 0).next().unwrap_or(line);
    loop {
        let begin = rest.iter().position(|byte| !byte.is_ascii_whitespace() && *byte != 0x0B);
        let Some(begin) = begin else { return Some(words) };
        let (word, behind) = split_word(&rest[begin..])?;
        words.push(word);
        rest = behind;
    }
}

fn split_word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    // The quote within which the next byte stands.
    let mut open = None;
    loop {
        match (open, rest) {
            (None, []) => return Some((word, rest)),
            (Some(_), []) => return None,
            (None, [b' ' | b'\n' | b'\r' | b'\t' | 0, ..]) => return Some((word, rest)),
            (None, &[quote @ (b'"' | b'\''), ref behind @ ..]) => {
                (open, rest) = (Some(quote), behind);
            }
            (Some(quote), &[byte, ref behind @ ..]) if byte == quote => {
                let is_end = behind.first().is_none_or(u8::is_ascii_whitespace);
                return is_end.then_some((word, behind));
            }
            (Some(b'"'), &[b'\\', b'x', high, low, ref behind @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
                word.push(digit(high) << 4 | digit(low));
                rest = behind;
            }
            (Some(b'"'), &[b'\\', escaped, ref behind @ ..]) => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => other,
                });
                rest = behind;
            }
            (Some(b'\''), [b'\\', b'\'', behind @ ..]) => {
                word.push(b'\'');
                rest = behind;
            }
            (_, &[byte, ref behind @ ..]) => {
                word.push(byte);
                rest = behind;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: RequestLimits = RequestLimits { max_bulk_bytes: 1000, is_known: true };

    /// All requests in `input`, which comes in pieces of `piece` bytes.
    fn parse_all(input: &[u8], piece: usize) -> Result<Vec<Vec<Vec<u8>>>, String> {
        let (mut parser, mut requests) = (Parser::default(), Vec::new());
        let (mut begin, mut end) = (0, 0);
        loop {
            let buffer = &input[begin..end];
            match parser.parse(buffer, LIMITS) {
                Parsed::Incomplete if end == input.len() => return Ok(requests),
                Parsed::Incomplete => end = (end + piece).min(input.len()),
                Parsed::Request { arguments, bytes } => {
                    requests.push(arguments.into_iter().map(|at| buffer[at].to_vec()).collect());
                    begin += bytes;
                }
                Parsed::Inline { arguments, bytes } => {
                    requests.push(arguments);
                    begin += bytes;
                }
                Parsed::Wrong(words) => return Err(words),
            }
        }
    }

    #[test]
    fn a_zero_byte_ends_an_inline_request() {
        assert_eq!(split_line(b"\0"), Some(vec![]));
        assert_eq!(split_line(b"GET k\0 more"), Some(vec![b"GET".to_vec(), b"k".to_vec()]));
        assert_eq!(split_line(b"GET \0k"), Some(vec![b"GET".to_vec()]));
        assert_eq!(split_line(b"GET \"k\0\""), None);
    }

    proptest! {
        #[test]
        fn what_is_sent_is_read_in_any_pieces(
            requests in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12), 0..5),
            piece in 1usize..100,
        ) {
            let mut sent = Vec::new();
            for request in &requests {
                sent.extend_from_slice(format!("*{}\r\n", request.len()).as_bytes());
                for argument in request {
                    sent.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
                    sent.extend_from_slice(argument);
                    sent.extend_from_slice(b"\r\n");
                }
            }
            prop_assert_eq!(parse_all(&sent, piece), Ok(requests));
        }

        #[test]
        fn nothing_that_comes_panics(
            sent in prop::collection::vec(prop_oneof![
                Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'-'), Just(b'"'),
                Just(b'\\'), b'0'..=b'9', any::<u8>()], 0..200),
            piece in 1usize..50,
        ) {
            let whole = parse_all(&sent, sent.len().max(1));
            prop_assert_eq!(parse_all(&sent, piece), whole);
        }
    }

    #[test]
    fn inline_requests_are_split_as_a_shell_does() {
        let words = |line: &str| {
            let words = split_line(line.as_bytes());
            words.map(|words| words.iter().map(|word| word.escape_ascii().to_string()).collect())
        };
        let expect = |words: &[&str]| Some(words.iter().map(|word| word.to_string()).collect());
        let cases: [(&str, Option<Vec<String>>); 6] = [
            ("  set  key value ", expect(&["set", "key", "value"])),
            (r#"set "a \"b\" \x41\n" 'it\'s'"#, expect(&["set", r#"a \"b\" A\n"#, r"it\'s"])),
            ("", expect(&[])),
            ("\"open", None),
            ("'open", None),
            ("\"closed\"within", None),
        ];
        for (line, expected) in cases {
            assert_eq!(words(line), expected, "{line}");
        }
    }

    #[test]
    fn what_is_not_allowed_is_refused_in_rediss_words() {
        let cases: [(&[u8], &str); 6] = [
            (b"*1048577\r\n", "invalid multibulk length"),
            (b"*x\r\n", "invalid multibulk length"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$1001\r\n", "invalid bulk length"),
            (b"*1\r\n:1\r\n", "expected '$', got ':'"),
            (b"get \"a\r\n", "unbalanced quotes in request"),
        ];
        for (sent, expected) in cases {
            assert_eq!(parse_all(sent, 1), Err(expected.to_owned()));
        }
        assert_eq!(parse_all(&[b'a'; 70_000], 1000), Err("too big inline request".to_owned()));
        let mut long = b"*".to_vec();
        long.resize(70_000, b'1');
        assert_eq!(parse_all(&long, 1000), Err("too big mbulk count string".to_owned()));
        let unknown = RequestLimits { is_known: false, ..LIMITS };
        let refused = |sent: &[u8]| Parser::default().parse(sent, unknown);
        assert_eq!(
            refused(b"*11\r\n"),
            Parsed::Wrong("unauthenticated multibulk length".to_owned())
        );
        assert_eq!(refused(b"*-1\r\n"), Parsed::Request { arguments: Arguments::new(), bytes: 5 });
    }
}
