//! Numbers that a seed repeats, and what the tests make of them.

/// A source of numbers.
#[derive(Clone, Debug)]
pub struct Random(pando_index::random::Random);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(pando_index::random::Random::new(seed))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0.draw()
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end.max(1) as u64) as usize
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of several.
    pub fn pick<'list, T>(&mut self, list: &'list [T]) -> &'list T {
        self.0.pick(list)
    }

    /// One of several words.
    pub fn word(&mut self, words: &[&str]) -> Vec<u8> {
        self.pick(words).as_bytes().to_vec()
    }

    /// One of several names, which stand with spaces between them.
    pub fn name(&mut self, names: &'static str) -> &'static str {
        let names: Vec<_> = names.split_ascii_whitespace().collect();
        names[self.below(names.len())]
    }

    /// Bytes, any, at most so many.
    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        let count = self.below(most + 1);
        (0..count).map(|_| self.number() as u8).collect()
    }
}
