//! The random numbers of the suite: one seed for the process, and its streams.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// The seed of this process: `PANDO_SEED`, decimal or `0x` hexadecimal, or a new one.
pub(super) fn base_seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| match std::env::var("PANDO_SEED") {
        Ok(text) => {
            let parsed = match text.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => text.parse(),
            };
            parsed.unwrap_or_else(|error| panic!("PANDO_SEED={text:?} is no number: {error}"))
        }
        // The hash keys of a process are random; using them saves a dependency.
        Err(_) => RandomState::new().hash_one("PANDO_SEED"),
    })
}

/// The amount of work, as a multiple of the default: `PANDO_CONFORMANCE_SCALE`.
pub(super) fn scale() -> f64 {
    static SCALE: OnceLock<f64> = OnceLock::new();
    *SCALE.get_or_init(|| match std::env::var("PANDO_CONFORMANCE_SCALE") {
        Ok(text) => text.parse().unwrap_or_else(|error| {
            panic!("PANDO_CONFORMANCE_SCALE={text:?} is no number: {error}")
        }),
        Err(_) => 1.0,
    })
}

/// A stream of random numbers that its seed determines.
pub(super) struct Random(crate::random::Random);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(crate::random::Random::new(seed))
    }

    /// A separate stream, for a thread.
    pub(super) fn fork(&mut self) -> Self {
        Self::new(self.next())
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0.draw()
    }

    /// A number below `limit`, which must be above zero.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit as u64) as usize
    }

    pub(super) fn coin(&mut self) -> bool {
        self.next() & 1 == 0
    }

    pub(super) fn pick<'items, T>(&mut self, items: &'items [T]) -> &'items T {
        self.0.pick(items)
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        self.0.shuffle(items);
    }
}
