//! Traces: sequences of operations that can be replayed on every system, and two that stand for the
//! real workloads of the Bw-tree paper (section VI-A), whose data is not public.
//!
//! A trace is a table of distinct keys and a list of steps, each of which names a key and says what
//! must come of it. So the same sequence meets every system, a read is checked to the version of
//! the value, and making up a key costs no time that is measured. Values are not stored: the bytes
//! that version `v` of key `k` has follow from both.
//!
//! Threads share a trace by key: all steps of one key are one thread's, in their order, so what
//! each must find is certain whatever the threads do.
//!
//! | file | what |
//! | --- | --- |
//! | [`dedup`] | content-defined chunks of real files, by their SHA-1 |
//! | [`game`] | the shape of an online game's records |
//! | [`text`] | a trace as lines of text, for `--replay` |
//! | [`runner`] | replays a trace on systems, interleaved and checked |

pub mod command;
pub mod dedup;
pub mod game;
pub mod runner;
pub mod text;

use pando_bench::keys::key_of;

/// No write: the key is expected to be absent.
const ABSENT: u32 = u32::MAX;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Adds a record; its key must be absent.
    Insert,
    /// Looks a key up.
    Get,
    /// Replaces the value of a key that is there.
    Update,
    /// Removes a record that is there.
    Delete,
}

impl Action {
    /// What it is called in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Insert => "an insert",
            Self::Get => "a get",
            Self::Update => "an update",
            Self::Delete => "a delete",
        }
    }
}

/// One operation on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub action: Action,
    /// The place of its key in the trace's table.
    pub key: u32,
    version: u32,
}

impl Step {
    /// The version of the value that it writes, or that a get must find; `None` where a get must
    /// find nothing, and for a delete.
    pub fn version(&self) -> Option<u32> {
        Some(self.version).filter(|&version| version != ABSENT)
    }
}

/// A sequence of operations over keys of one size and values of one size.
#[derive(Clone, Debug)]
pub struct Trace {
    name: String,
    key_bytes: usize,
    value_bytes: usize,
    keys: Vec<u8>,
    steps: Vec<Step>,
    /// The version that each key has after the last step, or `ABSENT`.
    last: Vec<u32>,
    loaded: usize,
}

impl Trace {
    /// A trace without steps, over values of `value_bytes` bytes, at least 8, and keys of
    /// `key_bytes`.
    pub fn new(name: impl Into<String>, key_bytes: usize, value_bytes: usize) -> Self {
        let (name, value_bytes) = (name.into(), value_bytes.max(8));
        let empty = (Vec::new(), Vec::new(), Vec::new());
        Self {
            name,
            key_bytes,
            value_bytes,
            keys: empty.0,
            steps: empty.1,
            last: empty.2,
            loaded: 0,
        }
    }

    /// The name in the reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of a key.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Bytes of a value.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Adds a key that the table has not yet; its place. `None` if it has the wrong size, or the
    /// table is full (2^32 - 1 keys).
    pub fn add_key(&mut self, key: &[u8]) -> Option<u32> {
        let place = u32::try_from(self.last.len()).ok().filter(|&place| place != ABSENT)?;
        if key.len() != self.key_bytes {
            return None;
        }
        self.keys.extend_from_slice(key);
        self.last.push(ABSENT);
        Some(place)
    }

    /// Adds a get of a key, wherever the trace then stands.
    pub fn get(&mut self, key: u32) {
        self.steps.push(Step { action: Action::Get, key, version: self.last[key as usize] });
    }

    /// Adds a write of a key: an insert if it is absent by now, an update otherwise.
    pub fn put(&mut self, key: u32) {
        let last = &mut self.last[key as usize];
        let (action, version) = match *last {
            ABSENT => (Action::Insert, 0),
            // One below the mark that stands for absence.
            version => (Action::Update, (version + 1) % ABSENT),
        };
        *last = version;
        self.steps.push(Step { action, key, version });
    }

    /// Adds a delete of a key; nothing if it is absent by now.
    pub fn delete(&mut self, key: u32) {
        if std::mem::replace(&mut self.last[key as usize], ABSENT) != ABSENT {
            self.steps.push(Step { action: Action::Delete, key, version: ABSENT });
        }
    }

    /// The steps so far only fill the index, and are not timed.
    pub fn end_of_load(&mut self) {
        self.loaded = self.steps.len();
    }

    /// The steps that only fill the index.
    pub fn load(&self) -> &[Step] {
        &self.steps[..self.loaded]
    }

    /// The steps that are timed.
    pub fn steps(&self) -> &[Step] {
        &self.steps[self.loaded..]
    }

    /// The key at `place`, which must be in the table.
    pub fn key(&self, place: u32) -> &[u8] {
        let at = place as usize * self.key_bytes;
        &self.keys[at..at + self.key_bytes]
    }

    /// How many distinct keys the table has.
    pub fn key_count(&self) -> usize {
        self.last.len()
    }

    /// The records that are there after the last step: places of keys and versions of values.
    pub fn final_records(&self) -> impl Iterator<Item = (u32, u32)> {
        let records = self.last.iter().enumerate().map(|(key, &version)| (key as u32, version));
        records.filter(|&(_, version)| version != ABSENT)
    }

    /// Gets for each write among the timed steps.
    pub fn reads_a_write(&self) -> f64 {
        let reads = self.steps().iter().filter(|step| step.action == Action::Get).count();
        reads as f64 / (self.steps().len() - reads).max(1) as f64
    }

    /// Fills `value` with what version `version` of the key at `place` is worth.
    pub fn fill_value(&self, place: u32, version: u32, value: &mut Vec<u8>) {
        let stamp = stamp(place, version);
        value.clear();
        let words = (0..).map(|word: u64| stamp.wrapping_add(word).to_le_bytes());
        value.extend(words.flatten().take(self.value_bytes));
    }

    /// Whether `value` is that version of the key at `place`; its size, its ends and its middle
    /// are looked at.
    pub fn is_value(&self, place: u32, version: u32, value: &[u8]) -> bool {
        let stamp = stamp(place, version);
        let has_word = |word: usize| {
            let due = stamp.wrapping_add(word as u64).to_le_bytes();
            value.get(word * 8..word * 8 + 8) == Some(&due)
        };
        let words = self.value_bytes / 8;
        value.len() == self.value_bytes && has_word(0) && has_word(words / 2) && has_word(words - 1)
    }

    /// The thread, of `threads`, whose the steps of the key at `place` are.
    #[inline]
    pub fn thread_of(place: u32, threads: usize) -> usize {
        // Mixed: neighbours in the table would otherwise take turns in lockstep.
        (key_of(u64::from(place)) % threads.max(1) as u64) as usize
    }
}

/// The first word of a value; the others count on from it.
fn stamp(place: u32, version: u32) -> u64 {
    key_of(u64::from(place) << 32 | u64::from(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_know_what_must_come_of_them() {
        let mut trace = Trace::new("small", 3, 20);
        let key = trace.add_key(b"abc").unwrap();
        assert_eq!(trace.add_key(b"four"), None, "a key of another size");
        trace.delete(key);
        trace.get(key);
        trace.put(key);
        trace.end_of_load();
        trace.get(key);
        trace.put(key);
        trace.get(key);
        trace.delete(key);
        trace.get(key);
        let load: Vec<_> = trace.load().iter().map(|step| (step.action, step.version())).collect();
        assert_eq!(load, [(Action::Get, None), (Action::Insert, Some(0))]);
        let timed: Vec<_> =
            trace.steps().iter().map(|step| (step.action, step.version())).collect();
        let due = [
            (Action::Get, Some(0)),
            (Action::Update, Some(1)),
            (Action::Get, Some(1)),
            (Action::Delete, None),
            (Action::Get, None),
        ];
        assert_eq!(timed, due);
        assert_eq!(trace.final_records().count(), 0);
        assert_eq!(trace.reads_a_write(), 1.5);
    }

    #[test]
    fn a_value_is_known_by_its_key_and_version() {
        let trace = Trace::new("values", 3, 20);
        let mut value = Vec::new();
        trace.fill_value(7, 1, &mut value);
        assert_eq!(value.len(), 20);
        assert!(trace.is_value(7, 1, &value));
        assert!(!trace.is_value(7, 2, &value) && !trace.is_value(8, 1, &value));
        value[15] ^= 1;
        assert!(!trace.is_value(7, 1, &value) && !trace.is_value(7, 1, &value[..19]));
    }
}
