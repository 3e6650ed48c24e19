//! The median of figures, with the least and the greatest.

use std::fmt;

use serde::Serialize;

/// The median of figures, with the least and the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median; for an even number of figures, the mean of the middle two.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// The spread of `figures`; all zero if there are none.
    pub fn of(figures: &[f64]) -> Self {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        match (sorted.first(), sorted.last()) {
            (Some(&min), Some(&max)) => {
                let middle = sorted.len() / 2;
                let below = if sorted.len().is_multiple_of(2) { middle - 1 } else { middle };
                Self { median: (sorted[below] + sorted[middle]) / 2.0, min, max }
            }
            _ => Self { median: 0.0, min: 0.0, max: 0.0 },
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.2} [{:.2}, {:.2}]", self.median, self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_two_middles_is_their_mean() {
        assert_eq!(Spread::of(&[4.0, 1.0, 3.0]), Spread { median: 3.0, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of(&[4.0, 1.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of(&[]).median, 0.0);
    }
}
