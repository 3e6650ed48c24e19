//! A scan that copies records in batches, the same for all indexes.
//!
//! [`BatchCursor`] copies a batch of records while it is pinned, and lends them while it is not. An
//! index writes only [`Fill::fill`]: it copies the records of the leaf in which the scan continues,
//! or of several leaves, and says where the scan continues after them.
//!
//! [`Scan`] is the rest of the range. In a tree it continues at the edge of the copied leaf
//! ([`Scan::leave`]), and not behind the last returned key, because an empty leaf has a range too.
//! If a batch did not exhaust the leaf, the scan continues behind the batch's last key
//! ([`Scan::go_behind`]), in the leaf that has that key by then.
//!
//! * Each move takes the scan further in its order; a move that would not is damage. So a scan
//!   ends, also on a damaged pool.
//! * A fill that neither moved the scan nor copied a record is repeated, [`Steps`] times: the leaf
//!   was replaced while it was searched.
//! * After damage each call fails. Records that were copied before are not returned, since the path
//!   to them may be damaged too.
//! * Nothing is pinned between two calls of `next`.

use std::cmp::Ordering as Compare;
use std::ops::{Bound, DerefMut};

use pando_index::{Cursor, Error, KeyRange, Order, Record, Result};
use pando_pmem::Guard;

use crate::batch::Batch;
use crate::checked::{Steps, damaged, undamaged};
use crate::key::{Probe, SLICE_BYTES, Side, Target, slice_of};
use crate::maps::Tree;
use crate::room::Attempts;

/// The search for a leaf takes about as long as the copying of so many records.
const FEW_RECORDS: usize = 12;

/// An index whose records a [`BatchCursor`] copies.
pub trait Fill: Tree {
    /// The batch, and other data that the index keeps with it.
    type Batch: DerefMut<Target = Batch> + Default + Send;

    /// Records of the first batch: short scans copy little. Each further batch has twice as many as
    /// the one before.
    const FIRST_BATCH: usize;

    /// Records of the largest batch.
    const LAST_BATCH: usize = usize::MAX;

    /// Copies records from the start of the scan into the empty `batch`, in the scan's order and at
    /// most [`Scan::most`], and moves the scan behind them.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if the pool is damaged.
    fn fill(
        &self,
        guard: &Guard<'_, Self::Domain>,
        scan: &mut Scan,
        batch: &mut Self::Batch,
    ) -> Result<()>;

    /// Called without a guard after a [`fill`](Self::fill) that has failed and copied nothing.
    /// Returns if it is to be called again. `attempts` are those of this
    /// call so far.
    ///
    /// # Errors
    ///
    /// That of the fill, if it is not to be called again, or that of the try to help it.
    fn after_failure(&self, error: Error, attempts: &mut Attempts) -> Result<()> {
        let _ = attempts;
        Err(error)
    }

    /// Whether the records of the batch that were not lent yet must be copied again.
    #[inline(always)]
    fn is_outdated(&self, batch: &Self::Batch) -> bool {
        let _ = batch;
        false
    }
}

/// Where the next batch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// The scan has ended.
    Over,
    /// Damage was met at this offset.
    Failed(u64),
    /// At the first record, or at the last one for a descending scan.
    Edge,
    /// At the scan's key; the key itself only if it is included.
    Key { included: bool },
}

/// The rest of a scan's range.
#[derive(Debug)]
pub struct Scan {
    order: Order,
    start: Start,
    /// The key of [`Start::Key`].
    key: Vec<u8>,
    /// The end of the scan.
    end: Bound<Vec<u8>>,
    /// Records of the next batch.
    most: usize,
    /// Whether the caller will probably take all of them.
    is_expected: bool,
    /// Whether the scan has moved since this was reset.
    has_moved: bool,
}

impl Scan {
    #[inline(always)]
    fn new(range: KeyRange, order: Order, most: usize) -> Self {
        let (start, end) = match order {
            Order::Ascending => (range.low, range.high),
            Order::Descending => (range.high, range.low),
        };
        let (start, key) = match start {
            Bound::Unbounded => (Start::Edge, Vec::new()),
            Bound::Included(key) => (Start::Key { included: true }, key),
            Bound::Excluded(key) => (Start::Key { included: false }, key),
        };
        Self { order, start, key, end, most, is_expected: false, has_moved: false }
    }

    /// The scan's order.
    #[inline(always)]
    #[must_use]
    pub fn order(&self) -> Order {
        self.order
    }

    /// Whether the scan has ended.
    #[inline(always)]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.start == Start::Over
    }

    /// The most records of the present batch.
    #[inline(always)]
    #[must_use]
    pub fn most(&self) -> usize {
        self.most
    }

    /// Where the scan continues: the lower bound of the rest if it ascends, otherwise the upper
    /// bound.
    #[inline(always)]
    #[must_use]
    pub fn start(&self) -> Bound<&[u8]> {
        match self.start {
            Start::Key { included: true } => Bound::Included(&self.key),
            Start::Key { included: false } => Bound::Excluded(&self.key),
            Start::Over | Start::Failed(_) | Start::Edge => Bound::Unbounded,
        }
    }

    /// The key in whose leaf, or right before which, the scan continues. `None` means the first
    /// leaf if the scan ascends, otherwise the last.
    #[inline(always)]
    #[must_use]
    pub fn place(&self) -> (Option<&[u8]>, Side) {
        let (key, included) = match self.start {
            Start::Key { included } => (Some(self.key.as_slice()), included),
            Start::Over | Start::Failed(_) | Start::Edge => (None, false),
        };
        let is_before = self.order == Order::Descending && !included;
        (key, if is_before { Side::Before } else { Side::Holding })
    }

    /// The same, for an index whose first leaf is that of the smallest key.
    #[inline(always)]
    #[must_use]
    pub fn target(&self) -> Target<'_> {
        match self.place() {
            (Some(key), Side::Before) => Target::Before(Probe::new(key)),
            (None, Side::Before) => Target::Last,
            (key, Side::Holding) => Target::Holding(Probe::new(key.unwrap_or_default())),
        }
    }

    /// The bound at the end of the scan.
    #[inline(always)]
    #[must_use]
    pub fn end(&self) -> Bound<&[u8]> {
        self.end.as_ref().map(Vec::as_slice)
    }

    /// The lowest and the greatest number that an eight-byte key in the rest of the range may have;
    /// `None` if it has no such key.
    #[inline]
    #[must_use]
    pub fn numbers(&self) -> Option<(u64, u64)> {
        let (low, high) = match self.order {
            Order::Ascending => (self.start(), self.end()),
            Order::Descending => (self.end(), self.start()),
        };
        // A key is below all longer ones that begin with it.
        let low = match low {
            Bound::Unbounded => 0,
            Bound::Included(key) if key.len() <= SLICE_BYTES => slice_of(key),
            Bound::Excluded(key) if key.len() < SLICE_BYTES => slice_of(key),
            Bound::Included(key) | Bound::Excluded(key) => slice_of(key).checked_add(1)?,
        };
        let high = match high {
            Bound::Unbounded => u64::MAX,
            Bound::Included(key) if key.len() >= SLICE_BYTES => slice_of(key),
            Bound::Excluded(key) if key.len() > SLICE_BYTES => slice_of(key),
            Bound::Included(key) | Bound::Excluded(key) => slice_of(key).checked_sub(1)?,
        };
        (low <= high).then_some((low, high))
    }

    /// Whether to continue in the next leaf when the present batch has `count` records. The caller
    /// may want no more; so a few are enough, unless it has said how many it expects.
    #[inline(always)]
    #[must_use]
    pub fn wants_more(&self, count: usize) -> bool {
        let enough = if self.is_expected { self.most } else { self.most.min(FEW_RECORDS) };
        !self.is_over() && count < enough
    }

    /// Whether a key with this order relative to [`start`](Self::start) is in the rest of the
    /// range.
    #[inline(always)]
    #[must_use]
    pub fn is_ahead(&self, found: Compare) -> bool {
        match found {
            Compare::Equal => self.start == (Start::Key { included: true }),
            Compare::Greater => self.order == Order::Ascending,
            Compare::Less => self.order == Order::Descending,
        }
    }

    /// Whether the scan's start is not behind a key that has this order relative to another one.
    #[inline(always)]
    #[must_use]
    pub fn has_begun(&self, compare: impl FnOnce(&[u8]) -> Compare) -> bool {
        !matches!(self.start, Start::Key { .. }) || self.is_ahead(compare(&self.key))
    }

    /// Whether a key that has this order relative to another one lies beyond the end.
    #[inline(always)]
    #[must_use]
    pub fn is_past(&self, compare: impl FnOnce(&[u8]) -> Compare) -> bool {
        let beyond = match self.order {
            Order::Ascending => Compare::Greater,
            Order::Descending => Compare::Less,
        };
        match &self.end {
            Bound::Unbounded => false,
            Bound::Included(end) => compare(end) == beyond,
            Bound::Excluded(end) => {
                let found = compare(end);
                found == beyond || found.is_eq()
            }
        }
    }

    /// Ends the scan.
    #[inline]
    pub fn finish(&mut self) {
        self.start = Start::Over;
    }

    /// Continues behind `key`, the key of the last record that was read in the block at `off`.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if this is not forward in the scan's order.
    #[inline]
    pub fn go_behind(&mut self, off: u64, key: &[u8]) -> Result<()> {
        if !self.has_begun(|start| key.cmp(start)) {
            return Err(stuck(off));
        }
        self.go_to(key, false);
        Ok(())
    }

    /// Leaves the leaf at `off`, whose range ends at `edge` in the scan's order. The upper edge is
    /// the lowest key of the next leaf, the lower edge that of the leaf itself. The scan ends if
    /// there is no edge, or if the range has no key behind it.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if the edge is not forward in the scan's order.
    #[inline]
    pub fn leave(&mut self, off: u64, edge: Option<&[u8]>) -> Result<()> {
        let Some(edge) = edge else {
            self.finish();
            return Ok(());
        };
        let ascends = self.order == Order::Ascending;
        let is_ahead = match self.start {
            // The leaf holds the start, so its upper edge is above.
            Start::Key { .. } if ascends => edge > self.key.as_slice(),
            _ => self.has_begun(|start| edge.cmp(start)),
        };
        if !is_ahead {
            return Err(stuck(off));
        }
        let is_past = match &self.end {
            // In a descending scan the edge itself was copied already.
            Bound::Included(end) if !ascends => edge <= end.as_slice(),
            _ => self.is_past(|end| edge.cmp(end)),
        };
        if is_past {
            self.finish();
        } else {
            self.go_to(edge, ascends);
        }
        Ok(())
    }

    #[inline]
    fn go_to(&mut self, key: &[u8], included: bool) {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.start = Start::Key { included };
        self.has_moved = true;
    }
}

#[cold]
fn stuck(off: u64) -> Error {
    damaged(off, "a scan would not move ahead")
}

/// The methods of `RangeIndex` that call the index in the same way in each index: `read` and `scan`
/// by `Tree::read_with` and [`Fill`], `write`, `remove` and `compare_remove` by its methods `put`
/// and `delete`. With the names `modify`, `read_many`, `upsert_many` and `remove_many` also these,
/// by `read_modify_write`, `visit_many`, `write_many` and `delete_many`.
#[macro_export]
macro_rules! index_operations {
    (@ modify) => {
        fn modify(
            &self,
            key: &[u8],
            change: &mut ::pando_index::Change<'_>,
        ) -> Result<Option<::pando_index::Upserted>, ::pando_index::Error> {
            self.read_modify_write(key, change)
        }
    };
    (@ read_many) => {
        fn read_many(
            &self,
            keys: &[&[u8]],
            visit: &mut ::pando_index::VisitMany<'_>,
        ) -> Result<(), ::pando_index::Error> {
            self.visit_many(keys, visit)
        }
    };
    (@ upsert_many) => {
        fn upsert_many(
            &self,
            records: &[::pando_index::Record<'_>],
        ) -> Result<(), ::pando_index::Error> {
            self.write_many(records)
        }
    };
    (@ remove_many) => {
        fn remove_many(&self, keys: &[&[u8]]) -> Result<u64, ::pando_index::Error> {
            self.delete_many(keys)
        }
    };
    ($($more:ident),*) => {
        fn write(
            &self,
            key: &[u8],
            value: &[u8],
            intent: ::pando_index::Intent<'_>,
        ) -> Result<::pando_index::Upserted, ::pando_index::Error> {
            self.put(key, value, intent)
        }

        fn remove(&self, key: &[u8]) -> Result<bool, ::pando_index::Error> {
            self.delete(key, None)
        }

        fn compare_remove(
            &self,
            key: &[u8],
            expected: &[u8],
        ) -> Result<(), ::pando_index::Error> {
            match self.delete(key, Some(expected))? {
                true => Ok(()),
                false => Err(::pando_index::Error::KeyNotFound),
            }
        }

        fn read(
            &self,
            key: &[u8],
            visit: &mut dyn FnMut(&[u8]),
        ) -> Result<bool, ::pando_index::Error> {
            Ok($crate::maps::Tree::read_with(self, key, visit)?.is_some())
        }

        // Inlined, so that a caller that knows the type of the index also knows that of the cursor.
        #[inline]
        fn scan<'index>(
            &'index self,
            range: ::pando_index::KeyRange,
            order: ::pando_index::Order,
        ) -> Result<Box<dyn ::pando_index::Cursor + 'index>, ::pando_index::Error> {
            Ok(Box::new($crate::cursor::BatchCursor::new(self, range, order)))
        }

        $($crate::index_operations!(@ $more);)*
    };
}

/// A scan of an index.
#[derive(Debug)]
pub struct BatchCursor<'index, I: Fill> {
    index: &'index I,
    scan: Scan,
    batch: I::Batch,
}

impl<'index, I: Fill> BatchCursor<'index, I> {
    /// A scan of the records of `range`.
    #[inline]
    pub fn new(index: &'index I, range: KeyRange, order: Order) -> Self {
        let scan = Scan::new(range, order, I::FIRST_BATCH);
        Self { index, scan, batch: I::Batch::default() }
    }

    /// The batch, for tests.
    #[cfg(feature = "testing")]
    pub fn batch(&self) -> &I::Batch {
        &self.batch
    }

    fn fill(&mut self) -> Result<()> {
        self.batch.clear();
        if let Start::Failed(off) = self.scan.start {
            return Err(damaged(off, "the scan met damage before"));
        }
        let (mut steps, mut attempts) = (Steps::of_attempts(), Attempts::default());
        while self.batch.is_empty() && !self.scan.is_over() {
            let index = self.index;
            let guard = index.pin()?;
            self.scan.has_moved = false;
            let mut done = index
                .fill(&guard, &mut self.scan, &mut self.batch)
                .and_then(|()| undamaged(&guard));
            if done.is_ok() && !self.scan.has_moved {
                done = steps.take(&guard, index.root_off);
            }
            if let Err(error) = done {
                self.batch.clear();
                if let Error::Damaged { off, .. } = error {
                    self.scan.start = Start::Failed(off);
                }
                drop(guard);
                index.after_failure(error, &mut attempts)?;
                continue;
            }
            self.scan.most = self.scan.most.saturating_mul(2).min(I::LAST_BATCH);
            self.scan.is_expected = false;
        }
        Ok(())
    }

    /// Copies again the batch's records that were not lent.
    #[cold]
    fn refill(&mut self) -> Result<()> {
        if let Some(lent) = self.batch.lent_key() {
            self.scan.go_to(lent, false);
        } else if let Some(first) = self.batch.first_key() {
            self.scan.go_to(first, true);
        }
        self.scan.most = I::FIRST_BATCH;
        self.fill()
    }
}

impl<I: Fill> Cursor for BatchCursor<'_, I> {
    #[inline]
    fn expect(&mut self, records: usize) {
        self.scan.most = records.clamp(1, I::LAST_BATCH);
        self.scan.is_expected = true;
    }

    #[inline]
    fn next(&mut self) -> Result<Option<Record<'_>>> {
        if self.batch.is_used_up() {
            self.fill()?;
        } else if self.index.is_outdated(&self.batch) {
            self.refill()?;
        }
        Ok(self.batch.lend())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(low: Bound<&[u8]>, high: Bound<&[u8]>, order: Order) -> Scan {
        let range = KeyRange { low: low.map(<[u8]>::to_vec), high: high.map(<[u8]>::to_vec) };
        Scan::new(range, order, 1)
    }

    #[test]
    fn a_scan_moves_ahead_or_reports_damage() {
        let (low, high) = (Bound::Included(&b"c"[..]), Bound::Excluded(&b"m"[..]));
        let mut up = scan(low, high, Order::Ascending);
        assert!(up.leave(8, Some(b"c")).is_err() && up.go_behind(8, b"b").is_err());
        up.go_behind(8, b"c").expect("it is the start");
        assert!(up.go_behind(8, b"c").is_err());
        up.leave(8, Some(b"e")).expect("ahead");
        assert_eq!(up.start(), Bound::Included(&b"e"[..]));
        up.leave(8, Some(b"m")).expect("ahead");
        assert!(up.is_over());

        let mut down = scan(low, high, Order::Descending);
        assert!(down.leave(8, Some(b"m")).is_err());
        down.leave(8, Some(b"k")).expect("ahead");
        assert_eq!(down.start(), Bound::Excluded(&b"k"[..]));
        assert!(down.go_behind(8, b"k").is_err());
        down.leave(8, Some(b"c")).expect("ahead");
        assert!(down.is_over());
    }

    /// The numbers are those of the eight-byte keys in the range, and of no others.
    #[test]
    fn a_scan_knows_the_numbers_in_its_range() {
        let numbers = [0, 1, 2, 255, 256, u64::MAX - 1, u64::MAX];
        let mut ends: Vec<Vec<u8>> = vec![vec![], vec![0], vec![0xFF], vec![0xFF; 9]];
        for number in numbers.map(u64::to_be_bytes) {
            ends.extend([number[..7].to_vec(), number.to_vec(), [&number[..], &[0]].concat()]);
        }
        let bounds = |key: &Vec<u8>| {
            [Bound::Unbounded, Bound::Included(key.clone()), Bound::Excluded(key.clone())]
        };
        for (low, high) in ends.iter().flat_map(|low| ends.iter().map(move |high| (low, high))) {
            for (low, high) in
                bounds(low).into_iter().flat_map(|low| bounds(high).map(|high| (low.clone(), high)))
            {
                let range = KeyRange { low, high };
                for order in [Order::Ascending, Order::Descending] {
                    let found = Scan::new(range.clone(), order, 1).numbers();
                    for number in numbers {
                        let is_found =
                            found.is_some_and(|(low, high)| low <= number && number <= high);
                        assert_eq!(is_found, range.contains(&number.to_be_bytes()), "{range:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_scan_knows_its_ends() {
        let ends = (Bound::Excluded(&b"c"[..]), Bound::Included(&b"m"[..]));
        for order in [Order::Ascending, Order::Descending] {
            let scan = scan(ends.0, ends.1, order);
            for (key, is_within) in [(b"b", false), (b"c", false), (b"d", true), (b"m", true)] {
                let has_begun = scan.has_begun(|other| key[..].cmp(other));
                let is_past = scan.is_past(|other| key[..].cmp(other));
                assert_eq!(has_begun && !is_past, is_within, "{order:?} {key:?}");
            }
        }
        let all = scan(Bound::Unbounded, Bound::Unbounded, Order::Descending);
        assert!(all.has_begun(|_| Compare::Greater) && !all.is_past(|_| Compare::Less));
    }
}
