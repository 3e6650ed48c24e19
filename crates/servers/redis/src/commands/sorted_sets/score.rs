//! Parses scores as C's `strtod` does: decimal and hexadecimal numbers, and infinities.

use pando_keyspace::failure::{Result, fail};

use crate::errors::NOT_A_FLOAT;

/// Parses a score to store.
pub(super) fn parse(text: &[u8]) -> Result<f64> {
    parse_strictly(text).ok_or(NOT_A_FLOAT)
}

/// Parses a weight.
pub(super) fn parse_weight(text: &[u8]) -> Result<f64> {
    parse_strictly(text).ok_or(fail("ERR weight value is not a float"))
}

/// Parses a number in the range of a double. It may be rounded.
fn parse_strictly(text: &[u8]) -> Option<f64> {
    let (value, is_out_of_range) = read(text)?;
    (!is_out_of_range).then_some(value)
}

/// Parses the end of a range of scores: a number that is too large is infinite, an empty text is
/// zero, leading spaces are allowed.
pub(super) fn parse_end(text: &[u8]) -> Option<f64> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let spaces = text.iter().take_while(|byte| is_space(byte)).count();
    read(&text[spaces..]).map(|(value, _)| value)
}

/// The number, and whether it is too large, or too small, for a double.
fn read(text: &[u8]) -> Option<(f64, bool)> {
    let text = std::str::from_utf8(text).ok()?;
    let (is_negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (magnitude, is_zero) = if unsigned.get(..2).is_some_and(|it| it.eq_ignore_ascii_case("0x"))
    {
        read_hexadecimal(&unsigned.as_bytes()[2..])?
    } else {
        if unsigned.starts_with(['-', '+']) {
            return None;
        }
        let digits = unsigned.split(['e', 'E']).next().unwrap_or_default();
        let is_zero = !digits.bytes().any(|digit| matches!(digit, b'1'..=b'9'));
        (unsigned.parse::<f64>().ok()?, is_zero)
    };
    if magnitude.is_nan() {
        return None;
    }
    let is_named = unsigned.starts_with(['i', 'I']);
    let is_out_of_range = !is_named && (magnitude.is_infinite() || magnitude == 0.0 && !is_zero);
    Some((if is_negative { -magnitude } else { magnitude }, is_out_of_range))
}

/// Parses hexadecimal digits, with an optional point and an optional power of two; also returns
/// whether it is zero.
fn read_hexadecimal(text: &[u8]) -> Option<(f64, bool)> {
    let end = text.iter().position(|byte| byte.eq_ignore_ascii_case(&b'p')).unwrap_or(text.len());
    let mut exponent = match text.get(end + 1..) {
        None => 0,
        Some(exponent) => {
            let exponent = std::str::from_utf8(exponent).ok()?;
            let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
            if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
                return None;
            }
            // A longer exponent has the same effect as this bound.
            let magnitude = digits.parse::<i64>().unwrap_or(i64::MAX).min(1 << 40);
            if exponent.starts_with('-') { -magnitude } else { magnitude }
        }
    };
    let (mut significand, mut has_digits, mut is_behind_point) = (0u64, false, false);
    for &byte in &text[..end] {
        if byte == b'.' && !is_behind_point {
            is_behind_point = true;
            continue;
        }
        let digit = u64::from((byte as char).to_digit(16)?);
        has_digits = true;
        if significand >> 60 == 0 {
            significand = significand << 4 | digit;
            exponent -= if is_behind_point { 4 } else { 0 };
        } else {
            // The last bit says that a nonzero digit follows. Rounding needs no more.
            significand |= u64::from(digit != 0);
            exponent += if is_behind_point { 0 } else { 4 };
        }
    }
    if !has_digits {
        return None;
    }
    let mut value = significand as f64;
    let mut left = exponent.clamp(-3000, 3000) as i32;
    while left != 0 {
        let step = left.clamp(-1000, 1000);
        value *= 2f64.powi(step);
        left -= step;
    }
    Some((value, significand == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_as_c_does() {
        let scores = [
            ("1 5. +.5", [1.0, 5.0, 0.5]),
            ("-1.5e3 0e999 1e308", [-1500.0, 0.0, 1e308]),
            ("0x10 -0x1.8p1 0x1p-1074", [16.0, -3.0, 5e-324]),
            (
                "inf -Infinity 0xfffffffffffffffff",
                [f64::INFINITY, f64::NEG_INFINITY, 295147905179352825856.0],
            ),
        ];
        for (texts, expected) in scores {
            for (text, expected) in texts.split(' ').zip(expected) {
                assert_eq!(parse(text.as_bytes()).ok(), Some(expected), "{text}");
            }
        }
        for text in "1e400 1e-400 0x1p9999 nan 0x 0xp1 +-1 e5".split(' ').chain(["", " 1", "1 "]) {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(
            ["", " 1", "1e400"].map(|text| parse_end(text.as_bytes())),
            [Some(0.0), Some(1.0), Some(f64::INFINITY)]
        );
        assert_eq!([&b"1 "[..], b"1\0x"].map(parse_end), [None, Some(1.0)]);
    }
}
