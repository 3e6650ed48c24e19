//! Parses and formats numbers as Redis does.

/// Parses an integer: digits with an optional minus; no leading zeros, spaces or plus.
#[inline]
pub(crate) fn parse_i64(text: &[u8]) -> Option<i64> {
    let (digits, is_negative) = match text {
        [b'-', digits @ ..] => (digits, true),
        digits => (digits, false),
    };
    match digits {
        [b'0'] => return (!is_negative).then_some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut magnitude = 0u64;
    for &byte in digits {
        if !byte.is_ascii_digit() {
            return None;
        }
        // Nineteen digits fit into 64 bits.
        magnitude = magnitude * 10 + u64::from(byte - b'0');
    }
    if is_negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// Appends an integer.
#[inline]
pub(crate) fn push_i64(buffer: &mut Vec<u8>, value: i64) {
    let mut text = itoa::Buffer::new();
    buffer.extend_from_slice(text.format(value).as_bytes());
}

/// Parses a double or an infinity; NaN and surrounding spaces are refused.
pub(crate) fn parse_f64(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (hex, lower) = (unsigned.get(..2), unsigned.to_ascii_lowercase());
    if hex.is_some_and(|hex| hex.eq_ignore_ascii_case("0x")) || lower.starts_with("nan") {
        return None;
    }
    text.parse::<f64>().ok().filter(|value| !value.is_nan())
}

/// Formats a double with at most seventeen significant digits, as `%.17g` does.
pub(crate) fn format_double(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..17).contains(&exponent) {
        trimmed(&format!("{value:.*}", (16 - exponent) as usize))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers_are_read_strictly() {
        for (text, value) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
            ("01", None),
            ("-0", None),
            ("+1", None),
            (" 1", None),
            ("1a", None),
            ("", None),
            ("-", None),
        ] {
            assert_eq!(parse_i64(text.as_bytes()), value, "{text}");
        }
    }

    #[test]
    fn doubles_are_written_as_c_does() {
        for (value, text) in [
            (0.0, "0"),
            (3.0, "3"),
            (0.1, "0.10000000000000001"),
            (-1.5, "-1.5"),
            (1e17, "1e+17"),
            (1e16, "10000000000000000"),
            (1e-5, "1.0000000000000001e-05"),
            (1e-4, "0.0001"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(format_double(value), text);
        }
    }

    proptest! {
        #[test]
        fn numbers_come_back(integer: i64, double: f64) {
            let mut text = Vec::new();
            push_i64(&mut text, integer);
            prop_assert_eq!(parse_i64(&text), Some(integer));
            prop_assume!(!double.is_nan());
            prop_assert_eq!(parse_f64(format_double(double).as_bytes()), Some(double));
        }
    }
}
