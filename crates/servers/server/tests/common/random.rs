//! Reproducible random numbers, and choices from them.

/// A source of random numbers.
#[derive(Clone, Debug)]
pub struct Random(pando_index::random::Random);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(pando_index::random::Random::new(seed))
    }

    pub fn number(&mut self) -> u64 {
        self.0.draw()
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end.max(1) as u64) as usize
    }

    /// True with a probability of one in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn pick<'list, T>(&mut self, list: &'list [T]) -> &'list T {
        self.0.pick(list)
    }

    pub fn word(&mut self, words: &[&str]) -> Vec<u8> {
        self.pick(words).as_bytes().to_vec()
    }

    /// One of several names, which are separated by spaces.
    pub fn name(&mut self, names: &'static str) -> &'static str {
        let names: Vec<_> = names.split_ascii_whitespace().collect();
        names[self.below(names.len())]
    }

    /// At most `most` random bytes.
    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        let count = self.below(most + 1);
        (0..count).map(|_| self.number() as u8).collect()
    }
}
