//! The counting domain: `Adr`, and counts of a thread's writes and reads while it measures.
//!
//! These are the numbers of the papers' cost tables: they do not depend on the machine's speed.
//! Within one measured span, a line counts once as written and once as read, however often it is
//! accessed.

use std::cell::RefCell;
use std::collections::HashSet;

use crate::domain::{Adr, Domain};
use crate::write_back::LINE_BYTES;

/// Like [`Adr`], and counts for each thread within [`measure`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Counting;

/// The counts of one thread in one span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Cache-line write-backs.
    pub flushes: u64,
    /// Store fences.
    pub fences: u64,
    /// Atomic read-modify-writes of a word, mostly compare-and-swaps; failed ones count too.
    pub swaps: u64,
    /// Words stored, compare-and-swapped or copied.
    pub words_written: u64,
    /// Distinct 64-byte lines written.
    pub lines_written: u64,
    /// Distinct 64-byte lines read.
    pub lines_read: u64,
}

impl Counts {
    /// The means of `counts`: words written, write-backs and fences.
    pub fn means(counts: &[Self]) -> [f64; 3] {
        let mean =
            |of: fn(&Self) -> u64| counts.iter().map(of).sum::<u64>() as f64 / counts.len() as f64;
        [mean(|count| count.words_written), mean(|count| count.flushes), mean(|count| count.fences)]
    }
}

#[derive(Default)]
struct Tally {
    flushes: u64,
    fences: u64,
    swaps: u64,
    words_written: u64,
    written: HashSet<usize>,
    read: HashSet<usize>,
}

thread_local! {
    static TALLY: RefCell<Option<Tally>> = const { RefCell::new(None) };
}

/// Runs `work`; returns its result and this thread's counts.
pub fn measure<R>(work: impl FnOnce() -> R) -> (R, Counts) {
    TALLY.set(Some(Tally::default()));
    let result = work();
    let tally = TALLY.take().unwrap_or_default();
    let counts = Counts {
        flushes: tally.flushes,
        fences: tally.fences,
        swaps: tally.swaps,
        words_written: tally.words_written,
        lines_written: tally.written.len() as u64,
        lines_read: tally.read.len() as u64,
    };
    (result, counts)
}

fn count(work: impl FnOnce(&mut Tally)) {
    // A thread that ends gives its participant slots back, perhaps after its tally was dropped.
    let _ = TALLY.try_with(|tally| tally.borrow_mut().as_mut().map(work));
}

fn lines(address: usize, bytes: usize) -> std::ops::RangeInclusive<usize> {
    let line = LINE_BYTES as usize;
    address / line..=(address + bytes.max(1) - 1) / line
}

impl Domain for Counting {
    fn needs_write_back() -> bool {
        true
    }

    unsafe fn write_back(address: *const u8) {
        count(|tally| tally.flushes += 1);
        // SAFETY: the caller guarantees that the address is mapped.
        unsafe { Adr::write_back(address) }
    }

    fn fence() {
        count(|tally| tally.fences += 1);
        Adr::fence();
    }

    fn admit_store(address: usize, bytes: usize) -> bool {
        count(|tally| {
            tally.words_written += bytes.div_ceil(8) as u64;
            tally.written.extend(lines(address, bytes));
        });
        true
    }

    fn admit_swap(address: usize) -> bool {
        count(|tally| tally.swaps += 1);
        Self::admit_store(address, 8)
    }

    fn observe_load(address: usize, bytes: usize) {
        count(|tally| tally.read.extend(lines(address, bytes)));
    }
}
