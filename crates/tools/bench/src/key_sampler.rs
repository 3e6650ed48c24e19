//! The choice of the record of an operation.
//!
//! Zipfian ranks with a skew below 1 are drawn by the method of Gray and others ("Quickly
//! generating billion-record synthetic databases", 1994), as YCSB does. From a skew of 1 on, where
//! that method has no solution, they are drawn by rejection. Unless keys are monotonic, they are a
//! mix of the record numbers, so that the popular records are spread over the key space.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use rand_distr::{Distribution, Zipf};

use crate::rng::Rng;

/// The least and the greatest skew.
const THETAS: std::ops::RangeInclusive<f64> = 0.5..=1.2;
/// The skew of YCSB.
const USUAL_THETA: f64 = 0.99;

/// A distribution by name, as the command line gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyChoice {
    /// Each live record has the same probability.
    Uniform,
    /// The record of rank `r` has a weight of `1 / r^theta`.
    Zipfian {
        /// The skew, from 0.5 to 1.2.
        theta: f64,
    },
    /// Keys ascend with the record numbers; each live record has the same probability.
    Monotonic,
    /// Zipfian with the skew of YCSB; the newest record is the most popular.
    Latest,
}

impl fmt::Display for KeyChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => formatter.write_str("uniform"),
            Self::Zipfian { theta } => write!(formatter, "zipfian:{theta}"),
            Self::Monotonic => formatter.write_str("monotonic"),
            Self::Latest => formatter.write_str("latest"),
        }
    }
}

impl FromStr for KeyChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let theta = match text.split_once(':') {
            None => match text {
                "uniform" => return Ok(Self::Uniform),
                "monotonic" => return Ok(Self::Monotonic),
                "latest" => return Ok(Self::Latest),
                "zipfian" => Some(USUAL_THETA),
                _ => None,
            },
            Some(("zipfian", theta)) => theta.parse().ok(),
            _ => None,
        };
        match theta {
            Some(theta) if THETAS.contains(&theta) => Ok(Self::Zipfian { theta }),
            _ => Err(format!(
                "expected uniform, monotonic, latest, or zipfian:THETA with THETA from {} to {}",
                THETAS.start(),
                THETAS.end()
            )),
        }
    }
}

/// A distribution for a number of records.
#[derive(Clone, Debug)]
pub enum KeySampler {
    /// See [`KeyChoice::Uniform`] and [`KeyChoice::Monotonic`].
    Uniform,
    /// See [`KeyChoice::Zipfian`].
    Zipfian(Zipfian),
    /// See [`KeyChoice::Latest`].
    Latest(Zipfian),
}

/// The chosen record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picked {
    /// One of the live records, by its number.
    Live(u64),
    /// A record that the thread has added, counted from the first one.
    Added(u64),
}

impl KeySampler {
    /// The sampler of `choice` for about `records` records. The cost is linear in the records for a
    /// skew below 1.
    pub fn new(choice: KeyChoice, records: u64) -> Self {
        let zipfian = |theta| Zipfian::new(records.max(1), theta);
        match choice {
            KeyChoice::Uniform | KeyChoice::Monotonic => Self::Uniform,
            KeyChoice::Zipfian { theta } => Self::Zipfian(zipfian(theta)),
            KeyChoice::Latest => Self::Latest(zipfian(USUAL_THETA)),
        }
    }

    /// A record of `live`, which must not be empty, or of the `added` records after them.
    #[inline]
    pub fn pick(&self, rng: &mut Rng, live: &Range<u64>, added: u64) -> Picked {
        let records = live.end - live.start;
        match self {
            Self::Uniform => Picked::Live(live.start + rng.below(records)),
            Self::Zipfian(zipfian) => Picked::Live(live.start + zipfian.rank(rng) % records),
            Self::Latest(zipfian) => match zipfian.rank(rng) {
                age if age < added => Picked::Added(added - 1 - age),
                age => Picked::Live(live.end - 1 - (age - added) % records),
            },
        }
    }
}

/// Zipfian ranks; rank 0 is the most popular.
#[derive(Clone, Debug)]
pub enum Zipfian {
    /// A skew below 1.
    Gray(Gray),
    /// A skew of 1 or above.
    Rejection(Zipf<f64>),
}

impl Zipfian {
    /// Ranks from 0 to `records`, excluded, with skew `theta`, which must be positive.
    pub fn new(records: u64, theta: f64) -> Self {
        match Zipf::new(records as f64, theta) {
            Ok(zipf) if theta >= 1.0 => Self::Rejection(zipf),
            _ => Self::Gray(Gray::new(records, theta)),
        }
    }

    /// A rank.
    #[inline]
    pub fn rank(&self, rng: &mut Rng) -> u64 {
        match self {
            Self::Gray(gray) => gray.rank(rng),
            Self::Rejection(zipf) => zipf.sample(rng) as u64 - 1,
        }
    }
}

/// The method of Gray and others, for a skew below 1.
#[derive(Clone, Debug)]
pub struct Gray {
    records: f64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Gray {
    fn new(records: u64, theta: f64) -> Self {
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

    #[inline]
    fn rank(&self, rng: &mut Rng) -> u64 {
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
        for theta in [0.5, 0.99, 1.0, 1.2] {
            let zipfian = Zipfian::new(records, theta);
            let mut rng = Rng::new(3);
            let mut seen = vec![0_u32; records as usize];
            for _ in 0..draws {
                seen[zipfian.rank(&mut rng) as usize] += 1;
            }
            let zeta: f64 = (1..=records).map(|rank| (rank as f64).powf(-theta)).sum();
            for rank in [0, 1] {
                let due = f64::from(draws) / zeta / (rank as f64 + 1.0).powf(theta);
                let found = f64::from(seen[rank]);
                assert!((found / due - 1.0).abs() < 0.1, "{theta} {rank}: {found} of {due}");
            }
            assert!(seen[500..].iter().sum::<u32>() > 0, "{theta}");
        }
    }

    #[test]
    fn the_latest_record_is_the_most_popular() {
        let sampler = KeySampler::new(KeyChoice::Latest, 100);
        let mut rng = Rng::new(1);
        let mut times = |picked: Picked, added: u64| {
            (0..1_000).filter(|_| sampler.pick(&mut rng, &(50..150), added) == picked).count()
        };
        assert!(times(Picked::Live(149), 0) > 100);
        assert!(times(Picked::Added(6), 7) > 100);
        assert_eq!(times(Picked::Added(7), 7), 0);
    }

    #[test]
    fn names_are_read_back() {
        for name in ["uniform", "monotonic", "latest", "zipfian:0.99", "zipfian:1.2"] {
            assert_eq!(name.parse::<KeyChoice>().unwrap().to_string(), name);
        }
        for bad in ["zipfian:1.5", "zipfian:0.4", "zipfian:x", "normal"] {
            assert!(bad.parse::<KeyChoice>().unwrap_err().contains("0.5 to 1.2"), "{bad}");
        }
    }
}
