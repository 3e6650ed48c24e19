//! The allocator alone: threads allocate blocks for roots, and free them again.
//!
//! A root is written by one thread at a time: each thread has its own roots, and some roots are
//! handed over. Blocks move from thread to thread through slabs and epochs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pando_pmem::layout::{CATALOG_OFF, PARTICIPANT_BYTES, PARTITION_BYTES};
use pando_pmem::{Domain, Pool};

use super::{Model, Noted, Observed, Opened, Scenario, Setup, Subject};
use pando_device::simulated::Simulated;
use pando_index::random::Random;
use pando_pmem::testing::refusal::{Resource, refuse};
use pando_pmem::testing::{give_to, take_from};

/// Roots of each thread.
const OWN: usize = 3;
/// Roots that the first thread fills and other threads empty.
const HANDED: std::ops::Range<usize> = 3 * OWN..3 * OWN + 2;
const ROOTS: usize = HANDED.end;
/// Words that all name one block, one word per thread: only one of them can free it.
const NAMES: std::ops::Range<usize> = ROOTS + 1..ROOTS + 4;
/// The part of the state for this block.
const NAMED: usize = NAMES.start;
const NAMED_STAMP: u64 = 7_777;
/// Largest block in a slab. A larger block is a span of chunks.
const MAX_SLAB_BYTES: u64 = 32 << 10;
/// Most bytes of a slab's header at the beginning of its chunk.
const SLAB_HEADER_BYTES: u64 = 512;

fn root_off(root: usize) -> u64 {
    CATALOG_OFF + root as u64 * 8
}

/// An operation on a root.
#[derive(Clone, Debug)]
pub enum Op {
    /// A root without a block gets a block of this size with this stamp.
    Give(usize, u64, u64),
    /// The root's block is freed, if it owns one.
    Take(usize),
    /// As `Give`, once in a run. Then other threads may take from the root.
    HandOver(usize, u64, u64),
    /// As `Take`, after the root was handed over, and by one thread only.
    Fetch(usize),
    /// A block of this size is reserved, and released at once.
    Reserve(u64),
    /// Unused room is returned to the system.
    Release,
    /// As `Give`, on a file system that is full once: it refuses room for holes.
    GiveWithoutRoom(usize, u64, u64),
    /// As `Release`, on a file system without holes.
    ReleaseWithoutHoles,
    /// A block of this size that each of [`NAMES`] names.
    Name(u64),
    /// Frees the block by one of its names: of all threads that try, one succeeds.
    FreeByName(usize),
}

/// Whether the operation had an effect: `Give` may find the pool full.
#[derive(Clone, Debug)]
pub struct Done(bool);

/// The allocator of `pmem`.
pub struct Roots;

/// The roots in an open pool.
pub struct Open<D: Domain> {
    pool: Arc<Pool<D>>,
    /// For each root that is handed over, whether its block waits to be fetched.
    waiting: [AtomicBool; HANDED.end - HANDED.start],
}

impl Subject for Roots {
    type Model = Self;
    type Open<D: Domain> = Open<D>;

    const NAME: &'static str = "allocator";

    fn open<D: Domain>(pool: Arc<Pool<D>>, _: &Simulated) -> Result<Open<D>, String> {
        Ok(Open { pool, waiting: Default::default() })
    }

    fn scenarios() -> Vec<Scenario<Roots>> {
        let slabs = |random: &mut Random| 1 + random.below(200);
        let few = |random: &mut Random| *random.pick(&[60_u64, 12_000]);
        let spans = |random: &mut Random| *random.pick(&[64_u64, 20_000, 70_000, 140_000]);
        vec![
            scenario("slabs", slabs, 3),
            scenario("full-slabs", few, 5),
            scenario("spans", spans, 4),
            // Long enough for blocks to pass their epochs and to be reused.
            scenario("reuse", |_| 100, 16),
            // Two blocks a slab, so that slabs go from thread to thread.
            scenario("hand-over", |_| 30_000, 12),
            // The same, and a chunk that was a slab becomes a span.
            scenario("dissolve", |random| *random.pick(&[30_000_u64, 60_000]), 12),
            relay("relay"),
            freed_twice("freed-twice"),
            holes("holes", &[Op::Release]),
            holes("refused-holes", &[Op::Release, Op::Release, Op::ReleaseWithoutHoles]),
            stale_claim("stale-claim"),
            // More threads than slots: threads take slots, and the table grows.
            scenario("few-slots", few, 3).short_of_slots(),
        ]
    }
}

impl Model for Roots {
    type Op = Op;
    type Answer = Done;
    /// The stamp of the root's block.
    type State = Option<u64>;

    fn changes(op: &Op) -> Option<usize> {
        match op {
            Op::Give(root, ..)
            | Op::GiveWithoutRoom(root, ..)
            | Op::Take(root)
            | Op::HandOver(root, ..)
            | Op::Fetch(root) => Some(*root),
            Op::Name(_) | Op::FreeByName(_) => Some(NAMED),
            Op::Reserve(_) | Op::Release | Op::ReleaseWithoutHoles => None,
        }
    }

    fn blank() -> Option<u64> {
        None
    }

    fn after(state: &Option<u64>, op: &Op, answer: Option<&Done>) -> Option<Option<u64>> {
        match (op, answer) {
            // A free fails if the block was freed before.
            (Op::FreeByName(_), Some(Done(freed))) if state.is_some() != *freed => None,
            (Op::FreeByName(_), _) => Some(None),
            (Op::Name(_), _) => Some(Some(NAMED_STAMP)),
            (Op::Reserve(_) | Op::Release | Op::ReleaseWithoutHoles, _)
            | (_, Some(Done(false))) => Some(*state),
            (
                Op::Give(_, _, stamp)
                | Op::GiveWithoutRoom(_, _, stamp)
                | Op::HandOver(_, _, stamp),
                _,
            ) => Some(Some(*stamp)),
            (Op::Take(_) | Op::Fetch(_), Some(_)) if state.is_none() => None,
            (Op::Take(_) | Op::Fetch(_), _) => Some(None),
        }
    }
}

fn scenario(name: &'static str, size: fn(&mut Random) -> u64, steps: u64) -> Scenario<Roots> {
    Scenario::new(name, 1, move || {
        Setup::new(
            // The pool contains old blocks, and chunks with any bytes.
            (0..2)
                .flat_map(|root| [Op::Give(root, 150_000, u64::MAX), Op::Take(root)])
                .chain((0..ROOTS).map(|root| Op::Give(root, 100, 1)))
                .collect(),
            move |random| {
                let program = |task: usize, random: &mut Random| {
                    let step = |step: u64| {
                        let root = task * OWN + random.below(OWN as u64) as usize;
                        let stamp = 100 * (task as u64 + 1) + step;
                        let give = Op::Give(root, size(random), stamp);
                        match random.below(5) {
                            0 => Op::Reserve(size(random)),
                            1 | 2 => Op::Take(root),
                            _ => give,
                        }
                    };
                    (0..steps).map(step).collect()
                };
                (0..3).map(|task| program(task, random)).collect()
            },
        )
    })
}

/// In a pool that is full otherwise, a span of two chunks was freed, and its claim is still in the
/// chunk table. The second chunk becomes a slab, then the first one a span of one chunk. Their
/// words in the chunk table are in two lines.
fn stale_claim(name: &'static str) -> Scenario<Roots> {
    const CHUNK: u64 = 60_000;
    const WORDS_OF_A_LINE: usize = 8;
    let (slab, span, last) = (WORDS_OF_A_LINE - 1, WORDS_OF_A_LINE, WORDS_OF_A_LINE + 1);
    let below = (0..WORDS_OF_A_LINE - 1).map(|root| Op::Give(root, CHUNK, 1));
    let then = [Op::Give(span, 70_000, 1), Op::Give(last, CHUNK, 1), Op::Take(span)];
    Scenario::new(name, 1, move || {
        Setup::new(below.chain(then).collect(), move |_| {
            // The search for chunks continues after the one that is reserved and released.
            let gives = [Op::Give(slab, 30_000, 2), Op::Give(span, CHUNK, 3)];
            vec![[Op::Reserve(CHUNK)].into_iter().chain(gives).collect()]
        })
    })
}

/// `releases` return the room of chunks to the system while other threads claim the chunks and get
/// room again. (A store into a chunk without room panics.) If one of the releases is refused, some
/// claims are refused too.
fn holes(name: &'static str, releases: &'static [Op]) -> Scenario<Roots> {
    let is_full = releases.iter().any(|op| matches!(op, Op::ReleaseWithoutHoles));
    Scenario::new(name, 1, move || {
        Setup::new(
            (0..2)
                .flat_map(|root| [Op::Give(root, 140_000, 1), Op::Take(root)])
                .chain([Op::Give(2, 300_000, 1), Op::Take(2), Op::Release, Op::Give(3, 60_000, 1)])
                .collect(),
            move |random| {
                let program = |task: usize, random: &mut Random| {
                    let steps = 2 + random.below(2);
                    let step = |step: u64| {
                        let root = task * OWN + random.below(OWN as u64) as usize;
                        let bytes = *random.pick(&[20_000, 60_000, 140_000]);
                        let stamp = 100 * (task as u64 + 1) + step;
                        match random.below(6) {
                            0 | 1 => random.pick(releases).clone(),
                            2 => Op::Take(root),
                            3 if is_full => Op::GiveWithoutRoom(root, bytes, stamp),
                            _ => Op::Give(root, bytes, stamp),
                        }
                    };
                    (0..steps).map(step).collect()
                };
                (0..2).map(|task| program(task, random)).collect()
            },
        )
    })
}

/// Each thread has a word that names one span, and frees it.
fn freed_twice(name: &'static str) -> Scenario<Roots> {
    Scenario::new(name, 1, move || Setup {
        prepare: vec![Op::Name(140_000), Op::Give(0, 100, 1)],
        cram: Vec::new(),
        // Nothing else is allocated: a name may exist longer than its block, and must not name
        // another block.
        programs: Box::new(|random| {
            (0..2 + random.below(2) as usize).map(|task| vec![Op::FreeByName(task)]).collect()
        }),
    })
}

/// One thread allocates blocks for roots, and ends. Other threads free and reuse them.
fn relay(name: &'static str) -> Scenario<Roots> {
    const BYTES: u64 = 30_000;
    Scenario::new(name, 1, move || {
        Setup::new(
            // Two slabs with room for one block each. So a thread that has filled the first one
            // uses the second one without a fence, and leaves the first to others.
            (0..4).map(|root| Op::Give(root, BYTES, 1)).chain([Op::Take(1), Op::Take(3)]).collect(),
            |random| {
                let hand = |root: usize| Op::HandOver(root, BYTES, root as u64);
                let other = |task: usize, random: &mut Random| {
                    let step = |step: u64| {
                        let root = task * OWN + random.below(OWN as u64) as usize;
                        match random.below(6) {
                            0 | 1 => Op::Fetch(HANDED.start + random.below(2) as usize),
                            2 => Op::Reserve(BYTES),
                            3 => Op::Take(root),
                            _ => Op::Give(root, BYTES, 100 * (task as u64 + 1) + step),
                        }
                    };
                    (0..14).map(step).collect()
                };
                // After that the thread has nothing to do: root 1 is empty after the first take.
                let mut first: Vec<Op> =
                    HANDED.take(1 + random.below(2) as usize).map(hand).collect();
                first.push(Op::Reserve(BYTES));
                first.extend([Op::Take(1), Op::Take(1), Op::Take(1)]);
                vec![first, other(1, random), other(2, random)]
            },
        )
    })
}

impl<D: Domain> Open<D> {
    fn give(&self, root: usize, bytes: u64, stamp: u64) -> bool {
        let guard = self.pool.pin().expect("a participant slot");
        let Ok(mut block) = guard.reserve(bytes) else { return false };
        let last = block.bytes() - 8;
        if bytes > MAX_SLAB_BYTES {
            // Where a slab has its bits, at the beginning of the chunk.
            (0..SLAB_HEADER_BYTES).step_by(8).for_each(|at| block.write_u64(at, u64::MAX));
            block.flush(0, SLAB_HEADER_BYTES);
        }
        if stamp == u64::MAX {
            (0..last).step_by(8).for_each(|at| block.write_u64(at, stamp));
        }
        block.write_u64(0, stamp);
        block.write_u64(last, stamp);
        block.flush(0, 8);
        block.flush(last, 8);
        give_to(&guard, root_off(root), block);
        true
    }

    /// Allocates a block that each of its names holds.
    fn name(&self, bytes: u64) -> bool {
        let given = self.give(NAMES.start, bytes, NAMED_STAMP);
        let block = self.owned(NAMES.start);
        for name in NAMES.skip(1) {
            let word = self.pool.word(root_off(name));
            word.store(block, Ordering::Release);
            word.flush();
        }
        D::fence();
        given
    }

    /// The block with names, if it is still allocated. The words of its names may exist longer.
    fn named(&self) -> Option<u64> {
        let is_it = |&off: &u64| {
            let stamp = || self.pool.word(off).load(Ordering::Acquire);
            off != 0 && self.pool.active_block(off).is_some() && stamp() == NAMED_STAMP
        };
        NAMES.map(|name| self.owned(name)).find(is_it)
    }

    fn free_by_name(&self, name: usize) -> bool {
        let guard = self.pool.pin().expect("a participant slot");
        take_from(&guard, root_off(NAMES.start + name))
    }

    fn owned(&self, root: usize) -> u64 {
        self.pool.word(root_off(root)).load(Ordering::Acquire)
    }

    fn take(&self, root: usize) -> bool {
        let guard = self.pool.pin().expect("a participant slot");
        assert!(take_from(&guard, root_off(root)), "the root's block is not allocated");
        // Always, and not only when many blocks wait: runs are short.
        guard.collect();
        true
    }
}

impl<D: Domain> Opened<Roots> for Open<D> {
    fn perform(&self, op: &Op) -> Vec<Noted<Roots>> {
        let (root, done) = match *op {
            Op::Give(root, bytes, stamp) => {
                (root, self.owned(root) == 0 && self.give(root, bytes, stamp))
            }
            Op::GiveWithoutRoom(root, bytes, stamp) => {
                let give = || self.owned(root) == 0 && self.give(root, bytes, stamp);
                (root, refuse(Resource::FileRoom, 0, 1, give).0)
            }
            Op::Take(root) => (root, self.owned(root) != 0 && self.take(root)),
            Op::HandOver(root, bytes, stamp) => {
                let done = self.owned(root) == 0 && self.give(root, bytes, stamp);
                // Release, and acquire below: a thread that fetches sees the block.
                self.waiting[root - HANDED.start].store(done, Ordering::Release);
                (root, done)
            }
            Op::Fetch(root) => {
                let waiting = &self.waiting[root - HANDED.start];
                (root, waiting.swap(false, Ordering::AcqRel) && self.take(root))
            }
            Op::Reserve(bytes) => {
                let guard = self.pool.pin().expect("a participant slot");
                guard.collect();
                (0, guard.reserve(bytes).is_ok())
            }
            Op::Release => (0, self.pool.release_unused(128 << 10).is_ok()),
            Op::ReleaseWithoutHoles => {
                let release = || self.pool.release_unused(128 << 10).is_ok();
                (0, refuse(Resource::Hole, 0, u64::MAX, release).0)
            }
            Op::Name(bytes) => (NAMED, self.name(bytes)),
            Op::FreeByName(name) => (NAMED, self.free_by_name(name)),
        };
        vec![(root, op.clone(), Done(done))]
    }

    fn observe(&self) -> Result<Observed<Roots>, String> {
        let mut observed = Observed::<Roots>::new();
        for root in 0..ROOTS {
            let off = self.owned(root);
            if off == 0 {
                continue;
            }
            let bytes = self.pool.active_block(off).ok_or(format!("root {root} owns no block"))?;
            let at = |at: u64| self.pool.word(off + at).load(Ordering::Acquire);
            let stamp = at(0);
            if at(bytes - 8) != stamp {
                return Err(format!("the block of root {root} is torn"));
            }
            observed.insert(root, Some(stamp));
        }
        if self.named().is_some() {
            observed.insert(NAMED, Some(NAMED_STAMP));
        }
        Ok(observed)
    }

    fn audit(&self) -> Result<(), String> {
        self.pool.check_holes()?;
        // A segment of the table of participants has no old bytes of its chunks.
        for span in self.pool.segment_spans() {
            let word = |off: &u64| self.pool.word(*off).load(Ordering::Acquire) == u64::MAX;
            let end = span.off + 2 * (PARTICIPANT_BYTES + PARTITION_BYTES);
            if let Some(off) = (span.off..end).step_by(8).find(word) {
                return Err(format!("the segment at {:#x} is not blank at {off:#x}", span.off));
            }
        }
        let owned: Vec<u64> = (0..ROOTS).map(|root| self.owned(root)).collect();
        let owned = owned.into_iter().filter(|&off| off != 0);
        let owned: Vec<u64> = owned.chain(self.named()).collect();
        super::compare_blocks(&self.pool, &owned)
    }

    fn exercise(&self) -> Result<(), String> {
        let before = self.observe()?;
        for bytes in [64, 100, 3_000, 30_000, 70_000] {
            // A full pool may have no room; that is no fault.
            if self.give(ROOTS, bytes, 7) {
                if self.observe()? != before {
                    return Err(format!("a new block of {bytes} bytes was in use"));
                }
                self.take(ROOTS);
            }
        }
        Ok(())
    }
}
