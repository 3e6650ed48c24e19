//! Words of a line, and numbers, by memcached's rules.
//!
//! Only spaces separate words. Numbers are parsed as C's `strtoull` and `strtoll` do: leading
//! whitespace is ignored, a sign is allowed, and whitespace ends the number (with a tab, `1\tx` is
//! 1). Memcached then truncates numbers to 32 bits where it stores 32 bits, so 4294967297 becomes
//! 1. Clients can see this, so it is the same here.

use smallvec::SmallVec;

/// The most words of a line that are split, except for the keys of a get.
const MAX_WORDS: usize = 23;
/// The longest key, in bytes.
pub(crate) const MAX_KEY_BYTES: usize = 250;

/// The words of a line.
pub(crate) type Words<'line> = SmallVec<[&'line [u8]; MAX_WORDS]>;

/// The remaining words of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest<'line>(pub &'line [u8]);

impl<'line> Iterator for Rest<'line> {
    type Item = &'line [u8];

    #[inline]
    fn next(&mut self) -> Option<&'line [u8]> {
        let begin = self.0.iter().position(|&byte| byte != b' ')?;
        let from = &self.0[begin..];
        let end = from.iter().position(|&byte| byte == b' ').unwrap_or(from.len());
        let (word, rest) = from.split_at(end);
        self.0 = rest;
        Some(word)
    }
}

/// The first words of a line.
#[inline]
pub(crate) fn words(line: &[u8]) -> Words<'_> {
    Rest(line).take(MAX_WORDS).collect()
}

/// The line up to its first zero byte. Memcached has it as a string of C.
pub(crate) fn until_zero(line: &[u8]) -> &[u8] {
    let end = line.iter().position(|&byte| byte == 0).unwrap_or(line.len());
    &line[..end]
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// The sign (whether it is negative) and the magnitude; `None` if it is not a number, or larger
/// than 64 bits.
#[inline]
fn number(text: &[u8]) -> Option<(bool, u64)> {
    let begin = text.iter().position(|&byte| !is_space(byte))?;
    let (is_negative, digits) = match &text[begin..] {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    let count = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    if count == 0 {
        return None;
    }
    if let Some(&behind) = digits.get(count)
        && behind != 0
        && !is_space(behind)
    {
        return None;
    }
    let mut magnitude = 0u64;
    for &digit in &digits[..count] {
        magnitude = magnitude.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    Some((is_negative, magnitude))
}

/// An unsigned number of 64 bits. A minus subtracts it from 2⁶⁴. If its upper bit is set, it is
/// refused if the text contains a minus anywhere.
#[inline]
pub(crate) fn parse_u64(text: &[u8]) -> Option<u64> {
    let (is_negative, magnitude) = number(text)?;
    let value = if is_negative { magnitude.wrapping_neg() } else { magnitude };
    (value as i64 >= 0 || !text.contains(&b'-')).then_some(value)
}

/// The low 32 bits of an unsigned number of 64 bits.
pub(crate) fn parse_u32(text: &[u8]) -> Option<u32> {
    parse_u64(text).map(|value| value as u32)
}

/// The low 32 bits of a signed number of 64 bits.
pub(crate) fn parse_i32(text: &[u8]) -> Option<i32> {
    let (is_negative, magnitude) = number(text)?;
    let value = if is_negative {
        0i64.checked_sub_unsigned(magnitude)?
    } else {
        i64::try_from(magnitude).ok()?
    };
    Some(value as i32)
}

/// The length of a block of data, in bytes.
pub(crate) fn block_bytes(word: &[u8]) -> Option<usize> {
    let bytes = parse_i32(word)?;
    usize::try_from(bytes).ok().filter(|_| bytes <= i32::MAX - 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_read_as_memcached_does() {
        for (text, expected) in [
            ("0", Some(0)),
            ("+7", Some(7)),
            ("\t7\tx", Some(7)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-1", None),
            ("-0", Some(0)),
            ("9 -", Some(9)),
            ("18446744073709551615 -", None),
            ("-18446744073709551615", Some(1)),
            ("", None),
            ("-", None),
            (" ", None),
            ("7x", None),
            ("x7", None),
        ] {
            assert_eq!(parse_u64(text.as_bytes()), expected, "{text:?}");
        }
        assert_eq!(parse_u64(b"7\0x"), Some(7));
        assert_eq!(parse_u32(b"4294967297"), Some(1));
        assert_eq!(parse_i32(b"2147483648"), Some(i32::MIN));
        assert_eq!(parse_i32(b"-2147483649"), Some(i32::MAX));
        assert_eq!(parse_i32(b"9223372036854775808"), None);
    }

    #[test]
    fn words_are_parted_by_spaces_alone() {
        let found = words(b"  get a\tb   c ");
        assert_eq!(found.as_slice(), [&b"get"[..], b"a\tb", b"c"]);
        assert_eq!(words(&b"a ".repeat(100)).len(), MAX_WORDS);
        assert_eq!(until_zero(b"get a\0 b"), b"get a");
    }

    proptest! {
        #[test]
        fn numbers_come_back(value: u64, signed: i32) {
            prop_assert_eq!(parse_u64(value.to_string().as_bytes()), Some(value));
            prop_assert_eq!(parse_i32(signed.to_string().as_bytes()), Some(signed));
        }

        #[test]
        fn nothing_is_too_strange(text in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (parse_u64(&text), parse_i32(&text), words(&text));
        }
    }
}
