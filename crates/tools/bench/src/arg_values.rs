//! Arguments and values that several commands use.

use std::path::PathBuf;

use clap::Args;

use crate::record::{MAX_KEY_BYTES, MAX_VALUE_BYTES, WORD_BYTES};

/// The files of the figures.
#[derive(Args, Debug)]
pub struct FilesArgs {
    /// Write the rows to this file, one JSON object per line
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write an HTML page with plots to this file
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
}

/// The rounds of a measure.
#[derive(Args, Debug)]
pub struct RoundsArgs {
    /// Number of rounds
    #[arg(long, value_parser = rounds, default_value = "5")]
    pub rounds: usize,
    /// Seconds of each part of a round
    #[arg(long, value_parser = seconds, default_value = "1")]
    pub seconds: f64,
}

/// A positive number with a decimal suffix: `2000`, `500k`, `10M`, `1G`.
pub fn count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        Some((at, 'g' | 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    match digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)) {
        Some(number) if number > 0 => Ok(number),
        _ => Err("expected a positive number such as 2000, 500k or 10M".to_owned()),
    }
}

/// The least memory of the process of a system.
const LEAST_MEMORY_BYTES: u64 = 64 << 20;

/// Memory of a process in bytes, with a binary suffix: `256M`, `1G`.
pub fn memory_bytes(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    match digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift)) {
        Some(bytes) if bytes >= LEAST_MEMORY_BYTES => Ok(bytes),
        _ => Err("expected bytes such as 256M or 1G, 64M or more".to_owned()),
    }
}

/// A number from `least` to `most`.
pub fn within(text: &str, least: usize, most: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("expected a number from {least} to {most}")),
    }
}

/// A number of threads of a comparison.
pub fn threads(text: &str) -> Result<usize, String> {
    within(text, 1, 64)
}

/// A number from 1 to 1,024: of threads or rounds of an experiment.
pub fn number_to_1024(text: &str) -> Result<usize, String> {
    within(text, 1, 1024)
}

/// A number of rounds.
pub fn rounds(text: &str) -> Result<usize, String> {
    within(text, 1, 1000)
}

/// Length of a key in bytes.
pub fn key_bytes(text: &str) -> Result<usize, String> {
    within(text, WORD_BYTES, MAX_KEY_BYTES)
}

/// Length of a value in bytes.
pub fn value_bytes(text: &str) -> Result<usize, String> {
    within(text, WORD_BYTES, MAX_VALUE_BYTES)
}

/// Maximum rate: the starts of more operations per second are too close for a clock of nanoseconds.
const MAX_RATE: u64 = 100_000_000;

/// Operations per second.
pub fn rate(text: &str) -> Result<f64, String> {
    match count(text) {
        Ok(rate) if rate <= MAX_RATE => Ok(rate as f64),
        _ => Err("expected operations a second from 1 to 100M".to_owned()),
    }
}

/// Time of a slice in seconds.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected seconds from 0.001 to 3600".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_suffixes() {
        assert_eq!(count("10M"), Ok(10_000_000));
        assert_eq!(count("500k"), Ok(500_000));
        assert_eq!(count("7"), Ok(7));
        for bad in ["", "M", "-1", "0", "1.5M", "10MM", "99999999999G"] {
            assert!(count(bad).is_err(), "{bad}");
        }
    }
}
