//! The suite on indexes with one mutant each: it must find the mutant, or it tests nothing.
//!
//! The mutants are bugs of released indexes: lost inserts, scans that skip a key or escape
//! their bound, two threads that both insert one key, signed bytes, and so on.

use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};

use pando_index::conformance::{CASES, Reference, Subject, notices};
use pando_index::{
    Change, Cursor, Error, Intent, KeyRange, Limits, Order, RangeIndex, Record, Upserted,
};

/// The bug of an index.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    LosesEvery1000thInsert,
    InsertOverwrites,
    InsertNotAtomic,
    RemoveNotAtomic,
    UpdateInserts,
    RefusedExchangeWrites,
    RemoveReportsAbsentAsRemoved,
    ExchangeNotAtomic,
    ExchangeComparesPrefixes,
    CompareRemoveNotAtomic,
    CompareRemoveComparesPrefixes,
    UpsertNotAtomic,
    UpsertsOfABatchInAnyOrder,
    RemovesOfABatchAllCounted,
    BatchRefusedAsAWhole,
    ModifyNotAtomic,
    RefusedModifyWrites,
    ReadsAreStale,
    ValuesTear,
    LongValuesLoseAByte,
    LenCountsRemoved,
    EmptyKeyRefused,
    SignedByteOrder,
    ScanSkipsAKey,
    ScanRepeatsAKey,
    ScanEscapesLowerBound,
    ScanTakesExcludedForIncluded,
    ScanRestartsAfterAChange,
    ScanMissesWhatIsUpdated,
}

struct Broken {
    bug: Bug,
    inner: Reference,
    calls: AtomicU64,
    removed: AtomicU64,
    /// The record that `ReadsAreStale` read last, and reads again.
    last_read: std::sync::Mutex<Option<(Vec<u8>, Vec<u8>)>>,
}

impl Broken {
    fn new(bug: Bug) -> Self {
        Self {
            bug,
            inner: Reference::default(),
            calls: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            last_read: Default::default(),
        }
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == bug
    }

    /// True at every n-th call; no thread knows beforehand at which of its calls.
    fn every(&self, calls: u64) -> bool {
        self.calls.fetch_add(1, Ordering::Relaxed) % calls == calls - 1
    }

    fn key(&self, key: &[u8]) -> Vec<u8> {
        if self.has(Bug::SignedByteOrder) { flipped(key) } else { key.to_vec() }
    }
}

/// With inverted sign bits, unsigned order is signed order.
fn flipped(key: &[u8]) -> Vec<u8> {
    key.iter().map(|byte| byte ^ 0x80).collect()
}

impl Subject for Broken {
    fn index(&self) -> &dyn RangeIndex {
        self
    }
}

impl RangeIndex for Broken {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn write(&self, key: &[u8], value: &[u8], intent: Intent<'_>) -> Result<Upserted, Error> {
        self.inner.write(&self.key(key), value, intent)
    }

    fn insert(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let key = &self.key(key)[..];
        match self.bug {
            Bug::LosesEvery1000thInsert if self.every(1_000) => {
                if self.inner.get(key)?.is_some() {
                    Err(Error::KeyExists)
                } else {
                    Ok(())
                }
            }
            Bug::InsertOverwrites => self.inner.upsert(key, value).map(|_| ()),
            Bug::InsertNotAtomic => {
                if self.inner.get(key)?.is_some() {
                    return Err(Error::KeyExists);
                }
                std::thread::yield_now();
                self.inner.upsert(key, value).map(|_| ())
            }
            Bug::EmptyKeyRefused if key.is_empty() => Err(Error::KeyExists),
            Bug::LongValuesLoseAByte if value.len() > 4_096 => {
                self.inner.insert(key, &value[..value.len() - 1])
            }
            _ => self.inner.insert(key, value),
        }
    }

    fn update(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let key = &self.key(key)[..];
        if self.has(Bug::UpdateInserts) {
            return self.inner.upsert(key, value).map(|_| ());
        }
        if self.has(Bug::ScanMissesWhatIsUpdated) && self.inner.remove(key)? {
            std::thread::yield_now();
            return self.inner.insert(key, value);
        }
        self.inner.update(key, value)
    }

    fn upsert(&self, key: &[u8], value: &[u8]) -> Result<Upserted, Error> {
        let key = &self.key(key)[..];
        if self.has(Bug::ValuesTear) && self.inner.get(key)?.is_some_and(|old| !old.is_empty()) {
            // In place: first one half of the value, then all of it.
            let mut torn = self.inner.get(key)?.unwrap_or_default();
            let half = torn.len().min(value.len()) / 2;
            torn[..half].copy_from_slice(&value[..half]);
            self.inner.upsert(key, &torn)?;
            std::thread::yield_now();
        }
        if self.has(Bug::UpsertNotAtomic) {
            let present = self.inner.get(key)?.is_some();
            std::thread::yield_now();
            self.inner.upsert(key, value)?;
            return Ok(if present { Upserted::Updated } else { Upserted::Inserted });
        }
        self.inner.upsert(key, value)
    }

    fn upsert_many(&self, records: &[Record<'_>]) -> Result<(), Error> {
        let upsert = |(key, value): &Record<'_>| self.upsert(key, value).map(drop);
        match self.bug {
            Bug::UpsertsOfABatchInAnyOrder => records.iter().rev().try_for_each(upsert),
            Bug::BatchRefusedAsAWhole => {
                records.iter().try_for_each(|(key, _)| self.limits().check_key(key))?;
                records.iter().try_for_each(upsert)
            }
            _ => records.iter().try_for_each(upsert),
        }
    }

    fn remove_many(&self, keys: &[&[u8]]) -> Result<u64, Error> {
        let mut removed = 0;
        for key in keys {
            let counts = self.remove(key)? || self.has(Bug::RemovesOfABatchAllCounted);
            removed += u64::from(counts);
        }
        Ok(removed)
    }

    fn read(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool, Error> {
        let key = &self.key(key)[..];
        if self.has(Bug::ReadsAreStale) {
            let mut last = self.last_read.lock().expect("no reader panics");
            if self.every(3)
                && let Some((_, value)) = last.as_ref().filter(|(of, _)| of == key)
            {
                visit(value);
                return Ok(true);
            }
            *last = self.inner.get(key)?.map(|value| (key.to_vec(), value));
        }
        self.inner.read(key, visit)
    }

    fn remove(&self, key: &[u8]) -> Result<bool, Error> {
        let key = &self.key(key)[..];
        if self.has(Bug::RemoveNotAtomic) {
            let present = self.inner.get(key)?.is_some();
            std::thread::yield_now();
            self.inner.remove(key)?;
            return Ok(present);
        }
        let removed = self.inner.remove(key)?;
        self.removed.fetch_add(u64::from(removed), Ordering::Relaxed);
        Ok(removed || self.has(Bug::RemoveReportsAbsentAsRemoved))
    }

    fn compare_exchange(&self, key: &[u8], expected: &[u8], new: &[u8]) -> Result<(), Error> {
        let key = &self.key(key)[..];
        let found = self.inner.get(key)?.ok_or(Error::KeyNotFound);
        match self.bug {
            Bug::ExchangeNotAtomic => {
                if found? != expected {
                    return Err(Error::ValueMismatch);
                }
                std::thread::yield_now();
                self.inner.update(key, new)
            }
            Bug::ExchangeComparesPrefixes => {
                let found = found?;
                let expected = if found.starts_with(expected) { &found } else { expected };
                self.inner.compare_exchange(key, expected, new)
            }
            Bug::RefusedExchangeWrites if found.is_ok_and(|found| found != expected) => {
                self.inner.update(key, new)?;
                Err(Error::ValueMismatch)
            }
            _ => self.inner.compare_exchange(key, expected, new),
        }
    }

    fn compare_remove(&self, key: &[u8], expected: &[u8]) -> Result<(), Error> {
        let key = &self.key(key)[..];
        let found = self.inner.get(key)?.ok_or(Error::KeyNotFound);
        match self.bug {
            Bug::CompareRemoveNotAtomic => {
                if found? != expected {
                    return Err(Error::ValueMismatch);
                }
                std::thread::yield_now();
                self.inner.remove(key).map(drop)
            }
            Bug::CompareRemoveComparesPrefixes => {
                let found = found?;
                let expected = if found.starts_with(expected) { &found } else { expected };
                self.inner.compare_remove(key, expected)
            }
            _ => {
                self.inner.compare_remove(key, expected)?;
                self.removed.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    fn modify(&self, key: &[u8], change: &mut Change<'_>) -> Result<Option<Upserted>, Error> {
        let key = &self.key(key)[..];
        match self.bug {
            Bug::ModifyNotAtomic => {
                let (found, mut new) = (self.inner.get(key)?, Vec::new());
                if !change(found.as_deref(), &mut new) {
                    return Ok(None);
                }
                std::thread::yield_now();
                self.inner.upsert(key, &new).map(Some)
            }
            Bug::RefusedModifyWrites => {
                let mut is_wanted = true;
                let made = self.inner.modify(key, &mut |found, new| {
                    is_wanted = change(found, new);
                    true
                })?;
                Ok(made.filter(|_| is_wanted))
            }
            _ => self.inner.modify(key, change),
        }
    }

    fn scan<'index>(
        &'index self,
        range: KeyRange,
        order: Order,
    ) -> Result<Box<dyn Cursor + 'index>, Error> {
        let included = |bound: Bound<Vec<u8>>| match bound {
            Bound::Excluded(key) if self.has(Bug::ScanTakesExcludedForIncluded) => {
                Bound::Included(key)
            }
            bound => bound.map(|key| self.key(&key)),
        };
        let mut range = KeyRange { low: included(range.low), high: included(range.high) };
        if self.has(Bug::ScanEscapesLowerBound) && order == Order::Descending {
            // One key too far: to the next one below, as if the bound were checked too late.
            if let Bound::Included(low) | Bound::Excluded(low) = &range.low {
                let below = KeyRange { low: Bound::Unbounded, high: Bound::Excluded(low.clone()) };
                let mut cursor = self.inner.scan(below, Order::Descending)?;
                if let Some((key, _)) = cursor.next()? {
                    range.low = Bound::Included(key.to_vec());
                }
            }
        }
        let cursor = self.inner.scan(range.clone(), order)?;
        let removed_before = Some(self.removed.load(Ordering::Relaxed));
        Ok(Box::new(BrokenCursor {
            index: self,
            cursor,
            range,
            order,
            seen: 0,
            held: None,
            removed_before,
        }))
    }

    fn len(&self) -> Result<u64, Error> {
        let removed = self.removed.load(Ordering::Relaxed);
        let counted = if self.has(Bug::LenCountsRemoved) { removed } else { 0 };
        Ok(self.inner.len()? + counted)
    }
}

struct BrokenCursor<'index> {
    index: &'index Broken,
    cursor: Box<dyn Cursor + 'index>,
    range: KeyRange,
    order: Order,
    seen: u64,
    held: Option<(Vec<u8>, Vec<u8>)>,
    /// The number of removes before this scan began or was restarted.
    removed_before: Option<u64>,
}

impl Cursor for BrokenCursor<'_> {
    fn next(&mut self) -> Result<Option<Record<'_>>, Error> {
        self.seen += 1;
        let bug = self.index.bug;
        if bug == Bug::ScanSkipsAKey && self.seen == 100 {
            self.cursor.next()?;
        }
        if bug == Bug::ScanRestartsAfterAChange && self.seen.is_multiple_of(50) {
            // Like a scan that takes the parent's separator for the last key that it has returned.
            let removed = self.index.removed.load(Ordering::Relaxed);
            if let Some(before) = self.removed_before.take_if(|before| *before != removed) {
                assert!(before < removed);
                self.cursor = self.index.inner.scan(self.range.clone(), self.order)?;
            }
        }
        if bug == Bug::ScanRepeatsAKey && self.seen == 100 && self.held.is_some() {
            return Ok(self.held.as_ref().map(|(key, value)| (&key[..], &value[..])));
        }
        self.held = self.cursor.next()?.map(|(key, value)| (self.index.key(key), value.to_vec()));
        Ok(self.held.as_ref().map(|(key, value)| (&key[..], &value[..])))
    }
}

/// Each of these cases must find the bug.
fn noticed_by(bug: Bug, cases: &[&str]) {
    for case in cases {
        assert!(notices(case, &move || Broken::new(bug)), "{case} did not notice that {bug:?}");
    }
}

macro_rules! mutants {
    ($($name:ident: $bug:ident by [$($case:ident),+];)*) => {
        $(
            #[test]
            fn $name() {
                noticed_by(Bug::$bug, &[$(stringify!($case)),+]);
            }
        )*
    };
}

mutants! {
    lost_insert: LosesEvery1000thInsert by [
        model_integers, filled_and_emptied, race_disjoint_inserts, every_pair_of_bounds
    ];
    insert_that_overwrites: InsertOverwrites by [
        empty_key, refusals_change_nothing, model_few_keys, race_same_inserts
    ];
    insert_that_is_not_atomic: InsertNotAtomic by [
        race_same_inserts, linearizable_histories
    ];
    compare_remove_that_is_not_atomic: CompareRemoveNotAtomic by [linearizable_histories];
    compare_remove_that_compares_prefixes: CompareRemoveComparesPrefixes by [model_few_keys];
    remove_that_is_not_atomic: RemoveNotAtomic by [
        race_same_removes, race_insert_and_remove, linearizable_histories
    ];
    update_that_inserts: UpdateInserts by [
        refusals_change_nothing, model_few_keys, race_insert_and_remove, linearizable_histories
    ];
    refused_exchange_that_writes: RefusedExchangeWrites by [
        refusals_change_nothing, model_few_keys, linearizable_histories
    ];
    remove_that_is_always_true: RemoveReportsAbsentAsRemoved by [
        empty_key, one_key_inserted_and_removed, model_few_keys, race_same_removes,
        race_insert_and_remove, linearizable_histories
    ];
    exchange_that_is_not_atomic: ExchangeNotAtomic by [
        race_counters, linearizable_histories
    ];
    exchange_that_compares_prefixes: ExchangeComparesPrefixes by [model_few_keys];
    upsert_that_is_not_atomic: UpsertNotAtomic by [linearizable_histories];
    upserts_of_a_batch_in_any_order: UpsertsOfABatchInAnyOrder by [batches_like_single_upserts];
    removes_of_a_batch_all_counted: RemovesOfABatchAllCounted by [
        batches_like_single_upserts, batches_beside_writers
    ];
    batch_refused_as_a_whole: BatchRefusedAsAWhole by [batches_end_at_an_error];
    modify_that_is_not_atomic: ModifyNotAtomic by [race_counters];
    refused_modify_that_writes: RefusedModifyWrites by [model_few_keys];
    stale_read: ReadsAreStale by [
        race_torn_values, one_key_updated, model_few_keys, linearizable_histories
    ];
    torn_value: ValuesTear by [race_torn_values];
    shortened_long_value: LongValuesLoseAByte by [model_mixed_keys, value_of_20_mebibytes];
    miscounted_length: LenCountsRemoved by [
        one_key_inserted_and_removed, model_few_keys, filled_and_emptied
    ];
    refused_empty_key: EmptyKeyRefused by [empty_key, bytewise_order, model_few_keys];
    signed_byte_order: SignedByteOrder by [
        bytewise_order, model_few_keys, model_adversarial_bytes, model_mixed_keys
    ];
    scan_that_skips: ScanSkipsAKey by [
        model_integers, filled_and_emptied, every_pair_of_bounds, ranges_under_writers
    ];
    scan_that_repeats: ScanRepeatsAKey by [
        model_integers, filled_and_emptied, every_pair_of_bounds, ranges_under_writers
    ];
    scan_that_escapes: ScanEscapesLowerBound by [
        model_integers, model_few_keys, every_pair_of_bounds, ranges_under_writers
    ];
    scan_that_includes_the_excluded: ScanTakesExcludedForIncluded by [
        model_few_keys, every_pair_of_bounds, ranges_under_writers
    ];
    scan_that_restarts: ScanRestartsAfterAChange by [cursors_across_changes, ranges_under_writers];
    scan_that_misses_updates: ScanMissesWhatIsUpdated by [ranges_under_writers, race_torn_values];
}

/// The check of an index runs in each case, after the work, and may fail the case.
#[test]
fn every_case_runs_the_check_of_the_index() {
    struct Leaking(Reference);

    impl Subject for Leaking {
        fn index(&self) -> &dyn RangeIndex {
            &self.0
        }

        fn check(&self) {
            panic!("a leak");
        }
    }

    for case in CASES {
        let noticed = notices(case.name, &|| Leaking(Reference::default()));
        assert!(noticed, "{} did not check the index", case.name);
    }
}
