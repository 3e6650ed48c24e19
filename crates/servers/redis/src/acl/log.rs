//! What was denied lately, for ACL LOG.
//!
//! The same again within a minute is counted and not noted anew, so that a client that tries all
//! the time does not push out what others tried. The log is bounded, and so is each of its entries.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Within this time the same is one entry.
const TOGETHER: Duration = Duration::from_secs(60);
/// Most bytes of an object that are kept.
const MAX_OBJECT_BYTES: usize = 1024;

/// Something that was denied.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// How often, within a minute.
    pub count: u64,
    /// `command`, `key` or `auth`.
    pub reason: &'static str,
    /// `toplevel` or `multi`.
    pub context: &'static str,
    /// The command or the key.
    pub object: Vec<u8>,
    /// Who it was.
    pub user: String,
    /// The client, as CLIENT LIST describes it.
    pub client: String,
    /// When it was last tried.
    pub at: Instant,
}

/// The log, the latest entry first.
#[derive(Debug, Default)]
pub(crate) struct Log {
    entries: VecDeque<Entry>,
}

impl Log {
    /// Notes an entry; the log keeps `most`.
    pub(crate) fn note(&mut self, mut entry: Entry, most: usize) {
        entry.object.truncate(MAX_OBJECT_BYTES);
        let is_same = |other: &Entry| {
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
    pub(crate) fn latest(&self, count: usize) -> Vec<Entry> {
        self.entries.iter().take(count).cloned().collect()
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_again_is_counted() {
        let entry = |object: &str| Entry {
            count: 1,
            reason: "key",
            context: "toplevel",
            object: object.as_bytes().to_vec(),
            user: "ann".into(),
            client: String::new(),
            at: Instant::now(),
        };
        let mut log = Log::default();
        for object in ["a", "b", "a", "c", "d"] {
            log.note(entry(object), 3);
        }
        let kept: Vec<_> = log.latest(10).into_iter().map(|e| (e.object, e.count)).collect();
        assert_eq!(kept, [(b"d".to_vec(), 1), (b"c".to_vec(), 1), (b"a".to_vec(), 2)]);
    }
}
