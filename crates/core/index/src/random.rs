//! Random numbers that a seed determines (SplitMix64), for tests, workloads and demonstrations.
//! They are predictable: do not use them for secrets.

/// The number that is added to the state for each random number.
pub const INCREMENT: u64 = 0x9E37_79B9_7F4A_7C15;
/// The two factors by which a state becomes a random number.
pub const FACTORS: [u64; 2] = [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB];

/// A stream of random numbers that its seed determines.
#[derive(Clone, Copy, Debug, Default)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`.
    #[inline]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(INCREMENT);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(FACTORS[0]);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(FACTORS[1]);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be zero. The small bias of the remainder is accepted.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// One of `choices`.
    pub fn pick<'list, T>(&mut self, choices: &'list [T]) -> &'list T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// True with a chance of one in `odds`.
    pub fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    /// Shuffles `items`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the reference implementation for the seed 1234567.
    #[test]
    fn golden_numbers() {
        let mut random = Random::new(1_234_567);
        let drawn = std::array::from_fn(|_| random.draw());
        let expected: [u64; 3] =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(drawn, expected);
    }
}
