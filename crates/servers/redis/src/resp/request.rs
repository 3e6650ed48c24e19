//! Requests: arrays of bulk strings, or inline.
//!
//! Received bytes are parsed once, in pieces of any size. A length that is not allowed is refused
//! before memory is allocated for it. Nothing is copied: the arguments are ranges of the input
//! buffer.

use std::ops::Range;

use smallvec::SmallVec;

/// The longest inline request, and the longest line with a length, in bytes.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// The most arguments of a request.
const MAX_ARGUMENTS: i64 = 1024 * 1024;
/// The most arguments of a client that has not authenticated.
const MAX_ARGUMENTS_UNKNOWN: i64 = 10;
const MAX_BULK_BYTES_UNKNOWN: i64 = 16 * 1024;

/// The arguments of a request, as ranges of its buffer.
pub(crate) type Arguments = SmallVec<[Range<usize>; 8]>;

/// The limits of a client's requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLimits {
    /// The longest argument, in bytes.
    pub max_bulk_bytes: i64,
    /// Whether it has authenticated, or need not.
    pub is_known: bool,
}

/// The result of parsing the begin of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// The request is not complete.
    Incomplete,
    /// A request. Without arguments it is ignored.
    Request {
        /// Its arguments.
        arguments: Arguments,
        /// Its length, in bytes.
        bytes: usize,
    },
    /// An inline request. Its arguments are copies, because of quotes and escapes.
    Inline {
        /// Its arguments.
        arguments: Vec<Vec<u8>>,
        /// Its length, in bytes.
        bytes: usize,
    },
    /// A protocol error. The input after it cannot be parsed.
    Wrong(String),
}

/// The state of parsing the request at the begin of a buffer.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// The number of parsed bytes.
    at: usize,
    /// The number of missing arguments; `None` before the array's header.
    missing: Option<i64>,
    /// The length of the current argument.
    bulk_bytes: Option<usize>,
    arguments: Arguments,
}

impl Parser {
    /// Continues in `input`, which must begin at the same byte as in the calls before. After each
    /// result other than [`Parsed::Incomplete`] the next call is for the next request.
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

    /// Parses the number in the line after the current byte; `None` if the line is not complete,
    /// `Some(None)` if it is not a number.
    #[inline]
    fn number(&mut self, input: &[u8], too_long: &str) -> Result<Option<Option<i64>>, String> {
        let line = &input[self.at + 1..];
        let searched = &line[..line.len().min(MAX_LINE_BYTES)];
        // Lengths are short, so a byte-by-byte search for the line end is fast.
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

    /// The least number of bytes that complete the request, as far as is known.
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

/// Splits a line into words. Words may be in quotes, and escapes are allowed in double quotes.
/// `None` if a quote does not end, or ends within a word.
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
    // The quote that is open at the next byte.
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

    /// Parses all requests in `input`, which arrives in pieces of `piece` bytes.
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
