//! Randomness that a seed replays.

/// SplitMix64.
#[derive(Clone, Copy, Debug, Default)]
pub struct Random(u64);

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// One of `choices`.
    pub fn pick<'list, T>(&mut self, choices: &'list [T]) -> &'list T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    /// Whether something with a chance of one in `odds` happens.
    pub fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }
}
