//! Which of the live records an operation meets.
//!
//! Zipfian ranks are drawn by the method of Gray and others ("Quickly generating billion-record
//! synthetic databases", 1994), as YCSB does. Keys are a mix of record numbers, so the popular
//! records lie all over the key space without further scrambling.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::rng::Rng;

/// A distribution by name, as the command line gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyChoice {
    /// Every live record is as likely as another.
    Uniform,
    /// The record of rank `r` has a weight of `1 / r^theta`.
    Zipfian {
        /// The skew, above 0 and below 1.
        theta: f64,
    },
}

impl fmt::Display for KeyChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => formatter.write_str("uniform"),
            Self::Zipfian { theta } => write!(formatter, "zipfian:{theta}"),
        }
    }
}

impl FromStr for KeyChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let theta = match text.split_once(':') {
            None if text == "uniform" => return Ok(Self::Uniform),
            None if text == "zipfian" => Some(0.99),
            Some(("zipfian", theta)) => theta.parse().ok(),
            _ => None,
        };
        match theta {
            Some(theta) if theta > 0.0 && theta < 1.0 => Ok(Self::Zipfian { theta }),
            _ => Err("expected uniform, or zipfian:THETA with THETA between 0 and 1".to_owned()),
        }
    }
}

/// A distribution made ready for a number of records.
#[derive(Clone, Debug)]
pub enum Chooser {
    /// See [`KeyChoice::Uniform`].
    Uniform,
    /// See [`KeyChoice::Zipfian`].
    Zipfian(Zipfian),
}

impl Chooser {
    /// Makes `choice` ready for about `records` records; the cost is linear in them for zipfian.
    pub fn new(choice: KeyChoice, records: u64) -> Self {
        match choice {
            KeyChoice::Uniform => Self::Uniform,
            KeyChoice::Zipfian { theta } => Self::Zipfian(Zipfian::new(records.max(1), theta)),
        }
    }

    /// The number of a record in `live`, which must not be empty.
    #[inline]
    pub fn pick(&self, rng: &mut Rng, live: &Range<u64>) -> u64 {
        let records = live.end - live.start;
        match self {
            Self::Uniform => live.start + rng.below(records),
            Self::Zipfian(zipfian) => live.start + zipfian.rank(rng) % records,
        }
    }
}

/// Zipfian ranks, the most popular being 0.
#[derive(Clone, Debug)]
pub struct Zipfian {
    records: f64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    /// Ranks from 0 to `records`, excluded, with skew `theta` between 0 and 1.
    pub fn new(records: u64, theta: f64) -> Self {
        let zeta = |ranks: u64| (1..=ranks).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
        let all = zeta(records);
        Self {
            records: records as f64,
            theta,
            zeta: all,
            alpha: 1.0 / (1.0 - theta),
            eta: (1.0 - (2.0 / records as f64).powf(1.0 - theta)) / (1.0 - zeta(2) / all),
        }
    }

    /// A rank.
    #[inline]
    pub fn rank(&self, rng: &mut Rng) -> u64 {
        let unit = rng.unit();
        let weight = unit * self.zeta;
        if weight < 1.0 {
            0
        } else if weight < 1.0 + 0.5_f64.powf(self.theta) {
            1
        } else {
            (self.records * (self.eta * unit - self.eta + 1.0).powf(self.alpha)) as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipfian_ranks_have_their_weights() {
        let (records, draws) = (1_000, 200_000);
        let zipfian = Zipfian::new(records, 0.99);
        let mut rng = Rng::new(3);
        let mut seen = vec![0_u32; records as usize];
        for _ in 0..draws {
            seen[zipfian.rank(&mut rng) as usize] += 1;
        }
        let due = f64::from(draws) / zipfian.zeta;
        assert!((f64::from(seen[0]) / due - 1.0).abs() < 0.05, "{} of {due}", seen[0]);
        assert!((f64::from(seen[1]) / due * 1.99 - 1.0).abs() < 0.1, "{} of {due}", seen[1]);
        assert!(seen[500..].iter().sum::<u32>() > 0);
    }

    #[test]
    fn names_are_read_back() {
        for name in ["uniform", "zipfian:0.99", "zipfian:0.5"] {
            assert_eq!(name.parse::<KeyChoice>().unwrap().to_string(), name);
        }
        assert!("zipfian:1.5".parse::<KeyChoice>().is_err());
    }
}
