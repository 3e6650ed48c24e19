//! Quantities, as printed for people and as read from the command line.

use std::fmt::Display;
use std::ops::RangeInclusive;

use clap::builder::TypedValueParser;
use indicatif::HumanCount;

/// A number and its noun, whose singular is `one`: "1 map", "2,000 maps".
pub fn counted(count: u64, one: &str) -> impl Display {
    let ending = if count == 1 { "" } else { "s" };
    format!("{} {one}{ending}", HumanCount(count))
}

/// A size in bytes, with K, M, G or T for powers of 1024.
pub fn size_bytes(text: &str) -> Result<u64, &'static str> {
    const WRONG: &str =
        "not a size; it is a number of bytes, with K, M, G or T behind it if wanted";
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        Some((at, 'T' | 't')) => (&text[..at], 40),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| WRONG)?;
    number.checked_mul(1 << shift).ok_or(WRONG)
}

/// A length in memory, in bytes, as [`size_bytes`].
pub fn length_bytes(text: &str) -> Result<usize, &'static str> {
    usize::try_from(size_bytes(text)?).map_err(|_| "longer than the memory of this machine can be")
}

/// A parser of whole numbers in `range`, which `N` can hold.
pub fn number<N: TryFrom<u64> + Clone + Send + Sync + 'static>(
    range: RangeInclusive<u64>,
) -> impl TypedValueParser<Value = N> {
    move |text: &str| {
        let number = text.parse::<u64>().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| N::try_from(number).ok());
        let (least, most) = (range.start(), range.end());
        number.ok_or_else(|| format!("not a whole number from {least} to {most}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one() {
        assert_eq!(counted(0, "map").to_string(), "0 maps");
        assert_eq!(counted(1, "map").to_string(), "1 map");
        assert_eq!(counted(1234, "map").to_string(), "1,234 maps");
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(size_bytes("4096"), Ok(4096));
        assert_eq!(size_bytes("2G"), Ok(2 << 30));
        assert_eq!(size_bytes("16t"), Ok(16 << 40));
        for wrong in ["", "G", "1.5G", "-1", "1 G", "9999999999T", "2é"] {
            assert!(size_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
