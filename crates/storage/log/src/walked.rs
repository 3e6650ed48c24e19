//! What log writers have seen of the tail: the records for which the last block had no room.
//!
//! A walk begins at the newest record, and each of its steps waits for memory. When commits are
//! faster than the disk, the tail is many blocks long, and without this each block would cost a
//! walk over all of it. A record that is published does not move, and what comes before it does not
//! change. So what one thread has seen holds for each later one, until the records are durable.
//!
//! The list is process memory, and only a hint: a thread takes it, and gives it back longer. If
//! another thread has it, or stops with it, a walk is longer.

use std::collections::VecDeque;
use std::sync::Mutex;

/// Places for records that a list keeps when it is short.
const MOST_KEPT: usize = 1 << 12;

/// Records of the tail without a gap, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The LSN of the record before the first one.
    pub after_lsn: u64,
    /// The LSN of each record, and its offset in the pool.
    pub records: VecDeque<(u64, u64)>,
}

impl Seen {
    /// The LSN of the last record.
    pub fn last_lsn(&self) -> u64 {
        self.records.back().map_or(self.after_lsn, |&(lsn, _)| lsn)
    }

    /// Leaves out the records up to the LSN `lsn`, which is that of a record.
    pub fn leave_out(&mut self, lsn: u64) {
        let count = self.records.partition_point(|&(found, _)| found <= lsn);
        self.records.drain(..count);
        self.after_lsn = lsn;
        // The tail has been much longer.
        if self.records.len() < self.records.capacity() / 4 {
            self.records.shrink_to(MOST_KEPT.max(2 * self.records.len()));
        }
    }
}

/// The records that one thread has seen, for the next one.
#[derive(Debug, Default)]
pub(crate) struct Walked(Mutex<Seen>);

impl Walked {
    /// Takes the records above the LSN `first`, which is that of a record; none, if there would be
    /// a gap. The caller was pinned before it found that records above `first` are not durable, so
    /// their arenas stay.
    pub fn take(&self, first: u64) -> Seen {
        let unknown = || Seen { after_lsn: first, ..Seen::default() };
        let Ok(mut list) = self.0.try_lock() else { return unknown() };
        let mut seen = std::mem::take(&mut *list);
        drop(list);
        if !(seen.after_lsn..=seen.last_lsn()).contains(&first) {
            return unknown();
        }
        seen.leave_out(first);
        seen
    }

    /// Gives them back.
    pub fn give_back(&self, seen: Seen) {
        if let Ok(mut list) = self.0.try_lock() {
            *list = seen;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(after_lsn: u64, lsns: &[u64]) -> Seen {
        Seen { after_lsn, records: lsns.iter().map(|&lsn| (lsn, lsn * 100)).collect() }
    }

    #[test]
    fn what_was_seen_is_taken_once_and_never_with_a_gap() {
        let walked = Walked::default();
        assert_eq!(walked.take(7).last_lsn(), 7, "nothing is known at first");

        walked.give_back(seen(10, &[20, 30, 40]));
        assert_eq!(walked.take(20).records, [(30, 3000), (40, 4000)]);
        assert_eq!(walked.take(20).records, [], "another thread has it");

        // A thread that has looked at the seal before others sealed more finds a gap.
        walked.give_back(seen(20, &[30, 40]));
        let found = walked.take(10);
        assert_eq!((found.after_lsn, found.last_lsn()), (10, 10));

        walked.give_back(seen(20, &[30, 40]));
        let found = walked.take(40);
        assert_eq!((found.after_lsn, found.last_lsn()), (40, 40));

        walked.give_back(seen(20, &[30, 40]));
        let found = walked.take(50);
        assert_eq!(
            (found.after_lsn, found.last_lsn()),
            (50, 50),
            "without the list, more was sealed"
        );
    }

    /// After a long tail the list has at most four times the places that it needs.
    #[test]
    fn a_list_that_becomes_short_gives_its_memory_back() {
        let lsns: Vec<u64> = (1..=100_000).collect();
        let mut seen = seen(0, &lsns);
        for lsn in (0..=100_000).step_by(1000) {
            seen.leave_out(lsn);
            let (places, records) = (seen.records.capacity(), seen.records.len());
            assert_eq!(records as u64, 100_000 - lsn);
            assert!(places <= MOST_KEPT.max(4 * records + 3), "{places} places for {records}");
        }
        // A short list keeps its places, so that it does not allocate for each block.
        let places = seen.records.capacity();
        assert!(places > 0);
        seen.leave_out(100_001);
        assert_eq!(seen.records.capacity(), places);
    }
}
