//! The log of refused accesses.
//!
//! A refusal that repeats within a minute is counted in its entry. So repeated attempts of one
//! client do not displace the entries of others. The size of the log and of each entry is bounded.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Equal refusals within this time are one entry.
const TOGETHER: Duration = Duration::from_secs(60);
/// The most bytes of an object in an entry.
const MAX_OBJECT_BYTES: usize = 1024;

/// A refused access.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The number of attempts within a minute.
    pub count: u64,
    /// The reason, in the protocol's words.
    pub reason: &'static str,
    /// The place of the attempt, in the protocol's words.
    pub context: &'static str,
    /// The refused command, key or other object.
    pub object: Vec<u8>,
    /// The user's name.
    pub user: String,
    /// A description of the client.
    pub client: String,
    /// The time of the last attempt.
    pub at: Instant,
}

/// The log, the latest entry first.
#[derive(Debug, Default)]
pub struct Refusals {
    entries: VecDeque<Refusal>,
}

impl Refusals {
    /// Adds a refusal; the log keeps `most` entries.
    pub fn note(&mut self, mut entry: Refusal, most: usize) {
        entry.object.truncate(MAX_OBJECT_BYTES);
        let is_same = |other: &Refusal| {
            other.reason == entry.reason
                && other.context == entry.context
                && other.object == entry.object
                && other.user == entry.user
                && entry.at.duration_since(other.at) <= TOGETHER
        };
        if let Some(at) = self.entries.iter().take(10).position(is_same)
            && let Some(known) = self.entries.remove(at)
        {
            entry.count = known.count + 1;
        }
        self.entries.push_front(entry);
        self.entries.truncate(most);
    }

    /// The latest `count` entries.
    pub fn latest(&self, count: usize) -> Vec<Refusal> {
        self.entries.iter().take(count).cloned().collect()
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_again_is_counted() {
        let entry = |object: &str| Refusal {
            count: 1,
            reason: "key",
            context: "toplevel",
            object: object.as_bytes().to_vec(),
            user: "ann".into(),
            client: String::new(),
            at: Instant::now(),
        };
        let mut log = Refusals::default();
        for object in ["a", "b", "a", "c", "d"] {
            log.note(entry(object), 3);
        }
        let kept: Vec<_> = log.latest(10).into_iter().map(|e| (e.object, e.count)).collect();
        assert_eq!(kept, [(b"d".to_vec(), 1), (b"c".to_vec(), 1), (b"a".to_vec(), 2)]);
    }
}
