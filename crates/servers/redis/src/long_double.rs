//! The arithmetic of INCRBYFLOAT: C's `long double` on x86-64, whose significands have 64 bits.
//! Redis reads numbers by `strtold`, adds them, and writes them with at most seventeen digits after
//! the point. Clients can see every bit, so this module computes exactly, with integers.

use num_bigint::{BigInt, BigUint, Sign};

/// Redis refuses longer numbers.
const MAX_TEXT_BYTES: usize = 5 * 1024 - 1;
/// The bits of a significand.
const BITS: u64 = 64;
/// The range of exponents of a significand's last bit.
const MIN_EXPONENT: i64 = -16_445;
const MAX_EXPONENT: i64 = 16_320;
/// In each number that is neither zero nor infinite, the distance of the first decimal digit to the
/// point is at most this.
const MAX_DECIMAL_EXPONENT: i64 = 4_960;
/// The number of digits after the point.
const DECIMALS: usize = 17;

/// A number, or infinity; never NaN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LongDouble {
    /// The significand times two to the power of the exponent.
    Finite(BigInt, i64),
    /// Infinity with this sign.
    Infinite,
}

impl LongDouble {
    pub(crate) fn zero() -> Self {
        Self::Finite(BigInt::ZERO, 0)
    }

    /// Parses `text`; `None` if it is not a number, or too large, or too small.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > MAX_TEXT_BYTES {
            return None;
        }
        let (sign, unsigned) = match text {
            [b'-', rest @ ..] => (Sign::Minus, rest),
            [b'+', rest @ ..] => (Sign::Plus, rest),
            rest => (Sign::Plus, rest),
        };
        if unsigned.eq_ignore_ascii_case(b"inf") || unsigned.eq_ignore_ascii_case(b"infinity") {
            return Some(Self::Infinite);
        }
        let (digits, exponent, is_hex) = match unsigned {
            [b'0', b'x' | b'X', rest @ ..] => {
                let (digits, behind_point, exponent) = split(rest, b'p', u8::is_ascii_hexdigit)?;
                (BigUint::parse_bytes(&digits, 16)?, exponent - 4 * behind_point, true)
            }
            _ => {
                let (digits, behind_point, exponent) = split(unsigned, b'e', u8::is_ascii_digit)?;
                (BigUint::parse_bytes(&digits, 10)?, exponent - behind_point, false)
            }
        };
        if digits == BigUint::ZERO {
            return Some(Self::zero());
        }
        let rounded = if is_hex {
            round(sign, digits, &BigUint::from(1u8), exponent)
        } else {
            let magnitude = exponent + digits.to_str_radix(10).len() as i64;
            if magnitude.abs() > MAX_DECIMAL_EXPONENT {
                return None;
            }
            let power = BigUint::from(10u8).pow(exponent.unsigned_abs() as u32);
            match exponent >= 0 {
                true => round(sign, digits * power, &BigUint::from(1u8), 0),
                false => round(sign, digits, &power, 0),
            }
        };
        // The text is not zero, so a result of zero is an underflow.
        match rounded {
            Self::Finite(significand, _) if significand == BigInt::ZERO => None,
            Self::Infinite => None,
            rounded => Some(rounded),
        }
    }

    /// The sum; `None` if it is infinite or not defined.
    pub(crate) fn plus(self, other: Self) -> Option<Self> {
        let (Self::Finite(one, one_exponent), Self::Finite(two, two_exponent)) = (self, other)
        else {
            return None;
        };
        let exponent = one_exponent.min(two_exponent);
        let sum = (one << (one_exponent - exponent)) + (two << (two_exponent - exponent));
        let (sign, magnitude) = sum.into_parts();
        if magnitude == BigUint::ZERO {
            return Some(Self::zero());
        }
        Some(round(sign, magnitude, &BigUint::from(1u8), exponent))
            .filter(|sum| *sum != Self::Infinite)
    }

    /// Formats as Redis does for people: `%.17Lf` without zeros at the end.
    pub(crate) fn format(&self) -> String {
        let Self::Finite(significand, exponent) = self else { return "inf".to_owned() };
        let scaled = significand.magnitude() * BigUint::from(10u8).pow(DECIMALS as u32);
        let scaled = match *exponent {
            0.. => scaled << exponent.unsigned_abs(),
            _ => shift_right(scaled, exponent.unsigned_abs(), false),
        };
        let digits = format!("{:0>width$}", scaled.to_str_radix(10), width = DECIMALS + 1);
        let (whole, fraction) = digits.split_at(digits.len() - DECIMALS);
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        let is_negative = significand.sign() == Sign::Minus && scaled != BigUint::ZERO;
        format!("{}{whole}{point}{fraction}", if is_negative { "-" } else { "" })
    }
}

/// Splits a number into its digits without the point, the number of digits after the point, and the
/// exponent after `mark`. Very large exponents are cut to a bound with the same effect.
fn split(text: &[u8], mark: u8, is_digit: impl Fn(&u8) -> bool) -> Option<(Vec<u8>, i64, i64)> {
    let end = text.iter().position(|byte| byte.to_ascii_lowercase() == mark);
    let (number, exponent) = match end {
        Some(end) => (&text[..end], Some(&text[end + 1..])),
        None => (text, None),
    };
    let point = number.iter().position(|&byte| byte == b'.');
    let (whole, fraction) = match point {
        Some(point) => (&number[..point], &number[point + 1..]),
        None => (number, &[][..]),
    };
    let digits = [whole, fraction].concat();
    if digits.is_empty() || !digits.iter().all(is_digit) {
        return None;
    }
    let exponent = match exponent {
        None => 0,
        Some(exponent) => {
            let (is_negative, exponent) = match exponent {
                [b'-', rest @ ..] => (true, rest),
                [b'+', rest @ ..] => (false, rest),
                rest => (false, rest),
            };
            if exponent.is_empty() || !exponent.iter().all(u8::is_ascii_digit) {
                return None;
            }
            let magnitude = exponent
                .iter()
                .fold(0i64, |sum, digit| (sum * 10 + i64::from(digit - b'0')).min(1_000_000));
            if is_negative { -magnitude } else { magnitude }
        }
    };
    Some((digits, fraction.len() as i64, exponent))
}

/// The number nearest to `numerator / denominator * 2^exponent`; of two equally near ones, the even
/// one.
fn round(sign: Sign, numerator: BigUint, denominator: &BigUint, exponent: i64) -> LongDouble {
    // After this shift the quotient has two or three bits more than a significand.
    let shift = BITS as i64 + 2 - (numerator.bits() as i64 - denominator.bits() as i64);
    let (quotient, rest) = match shift {
        0.. => {
            let numerator = numerator << shift.unsigned_abs();
            (&numerator / denominator, &numerator % denominator)
        }
        _ => {
            let denominator = denominator << shift.unsigned_abs();
            (&numerator / &denominator, &numerator % &denominator)
        }
    };
    let last = exponent - shift;
    let dropped = (quotient.bits() as i64 - BITS as i64).max(MIN_EXPONENT - last).max(0);
    let significand = shift_right(quotient, dropped.unsigned_abs(), rest != BigUint::ZERO);
    let exponent = last + dropped;
    let is_carried = significand.bits() > BITS;
    if exponent + i64::from(is_carried) > MAX_EXPONENT {
        return LongDouble::Infinite;
    }
    LongDouble::Finite(BigInt::from_biguint(sign, significand), exponent)
}

/// `value / 2^bits`, rounded to the nearest; of two equally near ones, the even one. `is_more` says
/// that the exact value is a little larger than `value`.
fn shift_right(value: BigUint, bits: u64, is_more: bool) -> BigUint {
    if bits == 0 {
        return value;
    }
    if bits > value.bits() {
        return BigUint::ZERO;
    }
    let half = value.bit(bits - 1);
    let is_above_half = is_more || value.trailing_zeros().is_some_and(|zeros| zeros < bits - 1);
    let shifted = value >> bits;
    let is_up = half && (is_above_half || shifted.bit(0));
    shifted + u8::from(is_up)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(one: &str, other: &str) -> Option<String> {
        let parse = |text: &str| LongDouble::parse(text.as_bytes());
        Some(parse(one)?.plus(parse(other)?)?.format())
    }

    #[test]
    fn sums_are_those_of_redis() {
        // The results of redis-server 7.0.15 on x86-64.
        for (one, other, expected) in [
            ("10.50", "0.1", Some("10.6")),
            ("5.0e3", "2.0e2", Some("5200")),
            ("0.1", "0.2", Some("0.3")),
            ("3", "1.1", Some("4.1")),
            ("1", "1e-18", Some("1")),
            ("-0.5", "0.5", Some("0")),
            ("0x10", "0x.8p1", Some("17")),
            ("18446744073709551615", "1", Some("18446744073709551616")),
            ("18446744073709551616", "1", Some("18446744073709551616")),
            ("1e4932", "-1e4932", Some("0")),
            ("1e4932", "1e4932", None),
            ("inf", "1", None),
        ] {
            assert_eq!(sum(one, other).as_deref(), expected, "{one} {other}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "",
            " 1",
            "1 ",
            "nan",
            "1e",
            "e1",
            ".",
            "0x",
            "0xg",
            "0x1p",
            "1e5000",
            "1e-5000",
            "--1",
            "1e-4970",
            "0x1p-16446",
            "0x1p16384",
            "1..2",
            "1e1.5",
            "1e9999999999999999999",
        ] {
            assert_eq!(LongDouble::parse(text.as_bytes()), None, "{text}");
        }
        for text in ["0e99999", "1e-4950", "0x1p-16445", "0x1p16383", "-.5", "5.", "+1", "INFINITY"]
        {
            assert!(LongDouble::parse(text.as_bytes()).is_some(), "{text}");
        }
        assert_eq!(LongDouble::parse(&[b'1'; 5120]), None);
        assert!(LongDouble::parse(&[b'0'; 5119]).is_some());
    }

    proptest! {
        #[test]
        fn integers_are_exact(one: i64, other in -1_000_000i64..1_000_000) {
            let expected = i128::from(one) + i128::from(other);
            prop_assert_eq!(sum(&one.to_string(), &other.to_string()), Some(expected.to_string()));
        }

        #[test]
        fn doubles_are_read_exactly(value in prop::num::f64::NORMAL | prop::num::f64::ZERO) {
            let exact = format!("{value:.1074}");
            prop_assert!(exact.len() < MAX_TEXT_BYTES);
            let read = LongDouble::parse(exact.as_bytes());
            let bits = value.to_bits();
            let exponent = (bits >> 52 & 0x7FF) as i64;
            let mantissa = bits & ((1 << 52) - 1) | u64::from(exponent != 0) << 52;
            let magnitude = BigUint::from(mantissa);
            let sign = if value < 0.0 { Sign::Minus } else { Sign::Plus };
            let expected = match mantissa {
                0 => LongDouble::zero(),
                _ => round(sign, magnitude, &BigUint::from(1u8), exponent.max(1) - 1075),
            };
            prop_assert_eq!(read, Some(expected));
        }

        #[test]
        fn sums_of_doubles_err_no_more_than_half_a_bit(one in -1e6f64..1e6, other in -1e6f64..1e6) {
            let exact = |value: f64| format!("{value:.60}");
            let found = sum(&exact(one), &exact(other)).expect("a sum");
            let found: f64 = found.parse().expect("a number");
            prop_assert!((found - (one + other)).abs() <= 1e-9);
        }

        #[test]
        fn no_text_panics(text in "[-+]?(0x)?[0-9a-f.]{0,12}([ep][-+]?[0-9]{0,7})?") {
            if let Some(number) = LongDouble::parse(text.as_bytes()) {
                let _ = number.clone().plus(number).map(|sum| sum.format());
            }
        }
    }
}
