//! How many words each PMwCAS of a tree operation has (BzTree paper, table 1), counted.
//!
//! A domain of this file's own watches descriptors: each is published by a write-back of its
//! status, whose state is then *installing* or *undecided*, and its entries stand in the pool by
//! then. So the product needs no counter. The layout of a descriptor is drawn in
//! `pmwcas/src/descriptor.rs`; what is needed of it stands here as constants, and a test on known
//! operations fails if it changes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use pando_bztree::{BzTree, BzTrees, Options, ValueMode};
use pando_index::RangeIndex;
use pando_pmem::Domain;
use pando_pmem::layout::{DESCRIPTORS_OFF, FIRST_PARTICIPANTS, PARTITION_BYTES};
use pando_tree::maps::IndexOptions;

use super::{Error, bztree};
use pando_bench::keys::key_of;
use pando_bench::record::Shape;
use pando_bench::rng::Rng;
use pando_bench::systems::stored::{Stored, of_kind};
use pando_bench::systems::{BuildError, BuildOptions};

const DESCRIPTOR_BYTES: usize = 256;
const INFO_AT: usize = 8;
const ENTRIES_AT: usize = 16;
const ENTRY_BYTES: usize = 24;
const STATE_SHIFT: u32 = 48;
/// *Undecided*, and *installing*.
const PUBLISHED: [u64; 2] = [2, 6];

/// As `Process`, and watching descriptors on the threads that ask for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watched;

#[derive(Default)]
struct Watch {
    /// Where the pool begins; 0 while nothing is counted.
    base: usize,
    /// The next load sets `base`.
    is_asked: bool,
    /// Words of each PMwCAS.
    sizes: Vec<u8>,
}

thread_local! {
    static WATCH: RefCell<Watch> = RefCell::new(Watch::default());
}

fn watch(work: impl FnOnce(&mut Watch)) {
    // A thread that ends gives its participant slots back, perhaps after its watch is gone.
    let _ = WATCH.try_with(|watch| work(&mut watch.borrow_mut()));
}

fn word(address: usize) -> u64 {
    // SAFETY: only called for words of a descriptor whose status line is being written back, so
    // the pool is mapped there; words of a pool are only accessed atomically.
    unsafe { AtomicU64::from_ptr(address as *mut u64) }.load(Ordering::Acquire)
}

impl Domain for Watched {
    fn needs_write_back() -> bool {
        false
    }

    unsafe fn write_back(address: *const u8) {
        watch(|watch| {
            let Some(at) = (address as usize).checked_sub(watch.base + DESCRIPTORS_OFF as usize)
            else {
                return;
            };
            let all_bytes = FIRST_PARTICIPANTS * PARTITION_BYTES as usize;
            if watch.base == 0 || at >= all_bytes || !at.is_multiple_of(DESCRIPTOR_BYTES) {
                return;
            }
            let descriptor = address as usize;
            if !PUBLISHED.contains(&(word(descriptor) >> STATE_SHIFT)) {
                return;
            }
            let entries = (word(descriptor + INFO_AT) & 0xF) as usize;
            let is_target =
                |entry: &usize| word(descriptor + ENTRIES_AT + entry * ENTRY_BYTES) != 0;
            watch.sizes.push((0..entries).filter(is_target).count() as u8);
        });
    }

    fn fence() {}

    fn observe_load(address: usize, _bytes: usize) {
        watch(|watch| {
            if std::mem::take(&mut watch.is_asked) {
                watch.base = address;
            }
        });
    }
}

/// The words of each PMwCAS that `work` executes on `tree` in this thread, in order.
pub fn sizes_of<R>(tree: &BzTree<Watched>, work: impl FnOnce() -> R) -> (R, Vec<u8>) {
    watch(|watch| *watch = Watch { is_asked: true, ..Watch::default() });
    tree.catalog.pool().word(0).load(Ordering::Relaxed);
    let result = work();
    let mut sizes = Vec::new();
    watch(|watch| sizes = std::mem::take(watch).sizes);
    (result, sizes)
}

/// What operations of one kind did: sequences of sizes, with how many operations had each.
pub type Sequences = BTreeMap<Vec<u8>, u64>;

/// One kind of operation.
#[derive(Clone, Debug)]
pub struct Kind {
    /// The operation.
    pub name: &'static str,
    /// What the paper's table 1 says of it, without structure modifications.
    pub paper: &'static str,
    /// What was counted.
    pub sequences: Sequences,
}

impl Kind {
    /// The sequence of most operations, and their share.
    pub fn plain(&self) -> Option<(&[u8], f64)> {
        let all: u64 = self.sequences.values().sum();
        let (sequence, &times) = self.sequences.iter().max_by_key(|(_, times)| **times)?;
        Some((sequence, times as f64 / all.max(1) as f64))
    }
}

/// Runs `operations` of each kind on trees of their own and counts; pages of 1 KiB.
pub fn count(operations: u64, build: &BuildOptions) -> Result<Vec<Kind>, Error> {
    let refused = |source| Error::Refused { what: "counting the words of a PMwCAS", source };
    let inline = bztree::PAGES_OF_1_KIB;
    let pointer = Options { value_mode: ValueMode::Pointer, ..inline };
    let one = |name, paper, options, action| {
        let sequences = one_kind(operations, build, options, action).map_err(refused)?;
        Ok::<_, Error>(Kind { name, paper, sequences })
    };
    Ok(vec![
        one("insert", "2, 2", inline, Action::Insert)?,
        one("delete", "2", inline, Action::Delete)?,
        one("update, record pointer", "3", pointer, Action::Update)?,
        one("update, inlined payload", "2", inline, Action::Update)?,
    ])
}

#[derive(Clone, Copy)]
enum Action {
    Insert,
    Delete,
    Update,
}

fn one_kind(
    operations: u64,
    build: &BuildOptions,
    options: Options,
    action: Action,
) -> Result<Sequences, BuildError> {
    let build = build.clone().for_records(operations, Shape::EIGHT);
    let build = BuildOptions { settings: Some(options.values()?), ..build };
    let tree = Stored::anonymous(&build, of_kind::<BzTrees, Watched>)?.index;
    let value = [7_u8; 8];
    let mut sequences = Sequences::new();
    let mut rng = Rng::new(1);
    for number in 0..operations {
        let key = key_of(number).to_be_bytes();
        let (done, sizes) = sizes_of(&tree, || tree.insert(&key, &value));
        done?;
        if matches!(action, Action::Insert) {
            *sequences.entry(sizes).or_default() += 1;
        }
    }
    for number in 0..operations {
        let (done, sizes) = match action {
            Action::Insert => break,
            Action::Delete => {
                let key = key_of(number).to_be_bytes();
                sizes_of(&tree, || tree.remove(&key).map(|_| ()))
            }
            Action::Update => {
                let key = key_of(rng.below(operations)).to_be_bytes();
                sizes_of(&tree, || tree.update(&key, &number.to_le_bytes()))
            }
        };
        done?;
        *sequences.entry(sizes).or_default() += 1;
    }
    Ok(sequences)
}
