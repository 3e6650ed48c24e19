//! The transaction component, for the models of snapshots (`pando-tc/src/snapshot.rs`,
//! `snapshots.rs`, `settle.rs`, `commit.rs`, `one_key.rs`; `pando-log/src/tail.rs`, `seal.rs`).
//!
//! The functions have the names and the steps of the code. A record writes one key, and may read
//! the other one. What is assumed of the parts that are not copied:
//!
//! * An index loads the word that leads to a value with acquire, and changes it by a CAS that
//!   releases.
//! * `ArcSwap`: a load acquires, a change is one CAS that acquires and releases. (Its documentation
//!   promises a sequentially consistent access in each call, which is more.)
//! * `SkipMap`: a lookup orders nothing. (On Arm it loads with consume.) A change releases.
//! * No record is in a store alone: the model `unread` has that.
//! * No commit is bare: the model `bare` has that. While there are snapshots none begins so. One
//!   that has begun before, and is not free to replace its version, fails and begins again.

use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU64, Ordering, fence};

use crate::atomic::Atomic;

/// The parts that the mutants change.
#[derive(Clone, Copy)]
pub struct Code {
    /// `publish`: a success of the CAS of `newest`.
    pub append: Ordering,
    /// `Snapshots::is_empty`: its fence, and the load of the count.
    pub look_fenced: bool,
    pub look: Ordering,
    /// `Entry::cut`: its fence.
    pub cut_fenced: bool,
    /// `Entry::fix`, and the loads of the cut.
    pub fix: Ordering,
    pub cut_load: Ordering,
    /// `register` counts the snapshot before it is in the list.
    pub counts_first: bool,
    /// The changes of the list.
    pub list: Ordering,
    /// `take_out`: how it counts.
    pub take_out: Ordering,
    /// `Entry::changes`, by which a snapshot is revoked; the load of the state.
    pub revoke: Ordering,
    pub state: Ordering,
    /// `check_live`: its fence; a read calls it last.
    pub check_fenced: bool,
    pub checks_last: bool,
    /// The CAS of a key's value, and its load.
    pub install: Ordering,
    pub find: Ordering,
    /// `settle_within`: `ended_lsn`.
    pub end: Ordering,
    pub ended: Ordering,
    /// A commit looks for snapshots after it is appended.
    pub looks_late: bool,
    /// A snapshot fixes its cut after it is in the list.
    pub cuts_late: bool,
    /// A snapshot settles the commits up to its cut; a commit behind it does.
    pub settles: [bool; 2],
    /// A commit keeps the old value before it installs the new one, if the key still has it.
    pub keeps_first: bool,
    pub looks_at_key: bool,
    /// A commit of one key looks whether a snapshot needs the version that it replaces.
    pub looks_at_stamp: bool,
}

pub const AS_WRITTEN: Code = Code {
    append: AcqRel,
    look_fenced: true,
    look: Acquire,
    cut_fenced: true,
    fix: AcqRel,
    cut_load: Acquire,
    counts_first: true,
    list: AcqRel,
    take_out: Release,
    revoke: AcqRel,
    state: Acquire,
    check_fenced: true,
    checks_last: true,
    install: AcqRel,
    find: Acquire,
    end: Release,
    ended: Acquire,
    looks_late: true,
    cuts_late: true,
    settles: [true, true],
    keeps_first: true,
    looks_at_key: true,
    looks_at_stamp: true,
};

pub const UNDECIDED: u64 = 0;
pub const COMMITTED: u64 = 1;
const FAILED: u64 = 2;

const OPEN: u64 = u64::MAX;

const LIVE: u64 = 0;
const WARNED: u64 = 1;
const REVOKED: u64 = 3;

/// The value that each key has at the beginning, and the LSN before the first record. The record
/// `n` writes the value `n`.
pub const FIRST_VALUE: u64 = 9;
pub const FIRST_LSN: u64 = 1;
/// The value of an absent key. No key is.
const NOTHING: u64 = 0;

/// What a key has in its map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    pub value: u64,
    pub lsn: u64,
    /// The record that has written it; 0 for none.
    record: usize,
    is_undone: bool,
}

pub const FIRST: Version =
    Version { value: FIRST_VALUE, lsn: FIRST_LSN, record: 0, is_undone: false };

impl Version {
    fn word(self) -> u64 {
        self.value | self.lsn << 8 | (self.record as u64) << 16 | u64::from(self.is_undone) << 24
    }

    fn of(word: u64) -> Self {
        let byte = |at: u32| word >> at & 0xFF;
        let (record, is_undone) = (byte(16) as usize, byte(24) & 1 == 1);
        Self { value: byte(0), lsn: byte(8), record, is_undone }
    }
}

/// The payload of a record.
#[derive(Clone, Copy, Debug)]
pub struct Commit {
    pub key: usize,
    pub old: Version,
    /// The version that it has read of the other key.
    pub read: Option<Version>,
}

impl Commit {
    fn word(self) -> u64 {
        let read = self.read.map_or(0, |read| read.word() << 1 | 1);
        self.old.word() | read << 28 | (self.key as u64) << 60
    }

    fn of(word: u64) -> Self {
        let read = word >> 28 & 0xFFFF_FFFF;
        let read = (read & 1 == 1).then(|| Version::of(read >> 1 & 0x7FF_FFFF));
        Self { key: (word >> 60) as usize, old: Version::of(word & 0xFFF_FFFF), read }
    }
}

#[derive(Default)]
struct Record {
    /// The LSN, and the record before.
    header: AtomicU64,
    payload: AtomicU64,
    status: Atomic,
}

struct Entry {
    cut: Atomic,
    state: AtomicU64,
    /// The values that are kept of the two keys, plus one.
    versions: [AtomicU64; 2],
}

/// An [`Atomic`] is a word that a thread loads and then changes. The others need no more than
/// loom's, which makes fewer schedules.
pub struct Component {
    code: Code,
    newest: Atomic,
    records: [Record; 3],
    keys: [Atomic; 2],
    ended_lsn: Atomic,
    count: AtomicU64,
    /// A bit for each snapshot.
    list: AtomicU64,
    entries: [Entry; 2],
}

impl Component {
    pub fn new(code: Code) -> Arc<Self> {
        let entry = || Entry {
            cut: Atomic::new(OPEN),
            state: AtomicU64::new(LIVE),
            versions: Default::default(),
        };
        Arc::new(Self {
            code,
            newest: Atomic::new(0),
            records: Default::default(),
            keys: [(); 2].map(|()| Atomic::new(FIRST.word())),
            ended_lsn: Atomic::new(0),
            count: AtomicU64::new(0),
            list: AtomicU64::new(0),
            entries: [entry(), entry()],
        })
    }

    fn record(&self, record: usize) -> &Record {
        &self.records[record - 1]
    }

    // The log.

    /// `append`.
    pub fn append(&self, record: usize, commit: Commit) -> u64 {
        self.record(record).payload.store(commit.word(), Relaxed);
        self.publish(record)
    }

    fn publish(&self, record: usize) -> u64 {
        let mut before = self.newest.load(Acquire);
        loop {
            let lsn = self.lsn_of(before) + 1;
            self.record(record).header.store(lsn | before << 8, Relaxed);
            let new = record as u64;
            match self.newest.compare_exchange(before, new, self.code.append, Acquire) {
                Ok(_) => return lsn,
                Err(other) => before = other,
            }
        }
    }

    fn lsn_of(&self, record: u64) -> u64 {
        if record == 0 { FIRST_LSN } else { self.lsn(record as usize) }
    }

    pub fn lsn(&self, record: usize) -> u64 {
        self.record(record).header.load(Acquire) & 0xFF
    }

    fn newest_lsn(&self) -> u64 {
        self.lsn_of(self.newest.load(Acquire))
    }

    /// `records_behind`; the oldest first.
    fn records_behind(&self, first: u64) -> Vec<(usize, u64)> {
        let mut records = Vec::new();
        let mut record = self.newest.load(Acquire) as usize;
        while record != 0 {
            let header = self.record(record).header.load(Acquire);
            if header & 0xFF <= first {
                break;
            }
            records.push((record, header & 0xFF));
            record = (header >> 8) as usize;
        }
        records.reverse();
        records
    }

    pub fn status(&self, record: usize) -> u64 {
        self.record(record).status.load(Acquire)
    }

    /// `decide`; the status.
    fn decide(&self, record: usize, status: u64) -> u64 {
        let word = &self.record(record).status;
        word.compare_exchange(UNDECIDED, status, AcqRel, Acquire).err().unwrap_or(status)
    }

    // Commits.

    /// What the index finds.
    pub fn find(&self, key: usize) -> Version {
        Version::of(self.keys[key].load(self.code.find))
    }

    fn exchange(&self, key: usize, old: Version, new: Version) -> Result<(), Version> {
        let (old, new) = (old.word(), new.word());
        let exchanged = self.keys[key].compare_exchange(old, new, self.code.install, Acquire);
        exchanged.map(drop).map_err(Version::of)
    }

    /// `replace`: a commit of one key. The call of the index appends, looks and installs.
    pub fn replace(&self, record: usize, key: usize) -> u64 {
        loop {
            let old = self.find(key);
            if old.record != 0 && !old.is_undone && self.status(old.record) == UNDECIDED {
                self.complete(old.record);
                continue;
            }
            let early = !self.code.looks_late && self.is_empty();
            let lsn = self.append(record, Commit { key, old, read: None });
            let new = Version { value: record as u64, lsn, record, is_undone: false };
            let is_free = early || self.is_free_to_replace(lsn, old);
            let is_written = is_free && self.exchange(key, old, new).is_ok();
            return match is_written && self.decide(record, COMMITTED) == COMMITTED {
                true => COMMITTED,
                false => self.complete(record),
            };
        }
    }

    /// `is_free_to_replace`, of a version that has a value.
    fn is_free_to_replace(&self, lsn: u64, old: Version) -> bool {
        let is_kept = |cut| old.lsn > cut || !self.code.looks_at_stamp;
        self.before(lsn).iter().all(|&(cut, _)| self.ended_lsn() >= cut && is_kept(cut))
    }

    /// `complete`; the status.
    pub fn complete(&self, record: usize) -> u64 {
        let lsn = self.lsn(record);
        // Relaxed: the caller has acquired the record.
        let commit = Commit::of(self.record(record).payload.load(Relaxed));
        let new = Version { value: record as u64, lsn, record, is_undone: false };
        if self.code.keeps_first && self.status(record) == UNDECIDED {
            self.keep_versions(lsn, commit);
        }
        self.attempt(record, commit, new);
        if !self.code.keeps_first {
            self.keep_versions(lsn, commit);
        }
        let status = self.status(record);
        if status == FAILED {
            self.undo(commit, new);
        }
        status
    }

    fn attempt(&self, record: usize, commit: Commit, new: Version) {
        if self.status(record) != UNDECIDED {
            return;
        }
        let is_installed = match self.exchange(commit.key, commit.old, new) {
            Ok(()) => true,
            Err(found) => found == new,
        };
        let is_valid = is_installed
            && commit.read.is_none_or(|read| self.is_valid(&[(1 - commit.key, read)], Some(new)));
        self.decide(record, if is_valid { COMMITTED } else { FAILED });
    }

    /// `validate`: reads of keys that the commit does not write. `own` is what it writes.
    pub fn is_valid(&self, reads: &[(usize, Version)], own: Option<Version>) -> bool {
        fence(SeqCst);
        reads.iter().all(|(key, read)| self.seen(*key, own) == Some(*read))
    }

    fn seen(&self, key: usize, own: Option<Version>) -> Option<Version> {
        let found = self.find(key);
        if found.record == 0 || found.is_undone {
            return Some(found);
        }
        let mut status = self.status(found.record);
        if status == UNDECIDED {
            if own.is_none_or(|own| found.lsn < own.lsn) {
                return None;
            }
            status = self.decide(found.record, FAILED);
        }
        match status {
            COMMITTED => Some(found),
            _ => Some(Commit::of(self.record(found.record).payload.load(Relaxed)).old),
        }
    }

    fn undo(&self, commit: Commit, new: Version) {
        let Commit { key, old, .. } = commit;
        let undone = Version { value: old.value, is_undone: true, ..new };
        let mut found = self.find(key);
        while found == old || found == new {
            match self.exchange(key, found, undone) {
                Ok(()) => return,
                Err(other) => found = other,
            }
        }
    }

    fn settle_within(&self, lsn: u64) {
        let from = self.ended_lsn();
        if from >= lsn {
            return;
        }
        for (record, _) in self.records_behind(from).into_iter().take_while(|next| next.1 <= lsn) {
            if self.status(record) != COMMITTED {
                self.complete(record);
            }
        }
        self.ended_lsn.fetch_max(lsn, self.code.end);
    }

    fn ended_lsn(&self) -> u64 {
        self.ended_lsn.load(self.code.ended)
    }

    fn keep_versions(&self, lsn: u64, commit: Commit) {
        let snapshots = self.before(lsn);
        for &(cut, _) in &snapshots {
            if self.code.settles[1] {
                self.settle_within(cut);
            }
        }
        let Commit { key, old, .. } = commit;
        let lacks = |&(cut, entry): &(u64, usize)| old.lsn <= cut && self.keeps(entry);
        let mut lacking = snapshots.into_iter().filter(lacks).peekable();
        if lacking.peek().is_some() && (!self.code.looks_at_key || self.find(key) == old) {
            lacking.for_each(|(_, entry)| self.keep(entry, key, old.value));
        }
    }

    // Snapshots.

    /// `is_empty`.
    fn is_empty(&self) -> bool {
        if self.code.look_fenced {
            fence(SeqCst);
        }
        self.count.load(self.code.look) == 0
    }

    /// `before`: the snapshots with their cuts. A cut that is fixed is loaded once: it stays.
    pub fn before(&self, lsn: u64) -> Vec<(u64, usize)> {
        if self.is_empty() {
            return Vec::new();
        }
        let list = self.list.load(Acquire);
        let kept = (0..2).filter(|entry| list & 1 << entry != 0 && self.keeps(*entry));
        let cuts = kept.map(|entry| (self.cut(entry), entry));
        let mut before: Vec<_> = cuts.filter(|(cut, _)| *cut < lsn).collect();
        before.sort();
        before
    }

    /// `Entry::cut`.
    pub fn cut(&self, entry: usize) -> u64 {
        let cut = self.entries[entry].cut.load(self.code.cut_load);
        if cut != OPEN {
            return cut;
        }
        if self.code.cut_fenced {
            fence(SeqCst);
        }
        self.fix(entry, self.newest_lsn())
    }

    fn fix(&self, entry: usize, newest: u64) -> u64 {
        // The load and the failure have one ordering.
        let (fix, load) = (self.code.fix, self.code.cut_load);
        let fixed = self.entries[entry].cut.compare_exchange(OPEN, newest, fix, load);
        fixed.err().unwrap_or(newest)
    }

    fn state(&self, entry: usize) -> u64 {
        self.entries[entry].state.load(self.code.state)
    }

    fn keeps(&self, entry: usize) -> bool {
        self.state(entry) <= WARNED
    }

    fn changes(&self, entry: usize, from: u64, to: u64) -> bool {
        let state = &self.entries[entry].state;
        state.compare_exchange(from, to, self.code.revoke, Relaxed).is_ok()
    }

    pub fn revoke(&self, entry: usize) {
        self.changes(entry, LIVE, WARNED);
        self.changes(entry, WARNED, REVOKED);
    }

    fn keep(&self, entry: usize, key: usize, value: u64) {
        let _ = self.entries[entry].versions[key].compare_exchange(0, value + 1, AcqRel, Acquire);
    }

    fn kept(&self, entry: usize, key: usize) -> u64 {
        self.entries[entry].versions[key].load(Relaxed).checked_sub(1).unwrap_or(NOTHING)
    }

    pub fn free_versions(&self, entry: usize, key: usize) {
        self.entries[entry].versions[key].fetch_and(0, AcqRel);
    }

    pub fn register(&self, entry: usize) {
        if self.code.counts_first {
            self.count.fetch_add(1, Relaxed);
        }
        self.list.fetch_or(1 << entry, self.code.list);
        if !self.code.counts_first {
            self.count.fetch_add(1, Relaxed);
        }
    }

    /// `take_out`, of a snapshot that this thread has seen revoked.
    pub fn take_out(&self, entry: usize) {
        if self.list.fetch_and(!(1 << entry), self.code.list) & 1 << entry != 0 {
            self.count.fetch_sub(1, self.code.take_out);
        }
    }

    /// `take_snapshot`; the cut, if it lives.
    pub fn take_snapshot(&self, entry: usize) -> Option<u64> {
        let early = (!self.code.cuts_late).then(|| self.newest_lsn());
        self.register(entry);
        early.map(|early| self.fix(entry, early));
        let cut = self.cut(entry);
        if self.code.settles[0] {
            self.settle_within(cut);
        }
        self.is_live(entry).then_some(cut)
    }

    /// `get` of a snapshot: the value at the cut, unless it is revoked.
    pub fn get(&self, (cut, entry): (u64, usize), key: usize) -> Option<u64> {
        let early = !self.code.checks_last && self.is_live(entry);
        let found = self.find(key);
        let value = match found.lsn <= cut {
            true => found.value,
            false => self.kept(entry, key),
        };
        (early || self.is_live(entry)).then_some(value)
    }

    /// `check_live`.
    fn is_live(&self, entry: usize) -> bool {
        if self.code.check_fenced {
            fence(Acquire);
        }
        self.state(entry) != REVOKED
    }

    /// The value that a snapshot with this cut must see, after all threads have ended.
    pub fn expected(&self, cut: u64, key: usize) -> u64 {
        let committed = (1..=self.records.len()).filter(|&record| {
            let lsn = self.lsn(record);
            let is_seen = lsn != 0 && lsn <= cut && self.status(record) == COMMITTED;
            is_seen && Commit::of(self.record(record).payload.load(Relaxed)).key == key
        });
        committed.max_by_key(|&record| self.lsn(record)).map_or(FIRST_VALUE, |last| last as u64)
    }
}
