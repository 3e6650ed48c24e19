//! The chain of blocks, walked and surveyed one run of leaves at a time.
//!
//! A walk waits for memory at each block, and a survey computes. So a single thread surveys while
//! it walks, and fetches a block while it surveys the one before. Several threads take turns at the
//! walk, one run each, and survey their runs in parallel. One thread surveys a small tree.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use pando_pmem::{Domain, Guard, mutant};
use pando_pmwcas::Pmwcas;

use super::survey::survey;
use crate::layers::Damaged;
use crate::layout::{LINE_BYTES, MARK_AT, NEXT_AT, REPLACED, block_bytes, mark};
use crate::separator::Separator;
use crate::volatile::nodes::Leaf;

/// Leaves of a run.
const RUN: usize = 1024;
/// Runs that one thread surveys before others help.
const SURVEYED_ALONE: usize = 4;

/// The leaves of a part of the chain.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// In order. The first one with a live slot has no separator yet to those before it.
    pub leaves: Vec<Surveyed>,
    /// The blocks of those that must be settled.
    pub unsettled: Vec<u64>,
    /// The lowest and the highest key; `None` if no slot is live.
    pub ends: Option<(Vec<u8>, Vec<u8>)>,
}

/// A leaf with the result of its survey.
#[derive(Debug)]
pub(super) struct Surveyed {
    pub leaf: Box<Leaf>,
    /// Whether no slot is live.
    pub is_empty: bool,
}

const NO_LEAF: &str = "it is no leaf of this tree, or a record of it is lost";
const NO_BLOCK: &str = "no block is allocated there";

/// The position of a run in the chain, and the run, or the damage that was found.
type Placed = (usize, Result<Run, Damaged>);

/// Surveys all leaves of the tree whose entry word is at `root_off`: consecutive runs.
pub(super) fn survey_all<D: Domain>(
    pmwcas: &Pmwcas<D>,
    guard: &Guard<'_, D>,
    root_off: u64,
    slots: usize,
) -> Result<Vec<Run>, Damaged> {
    let first = pmwcas.read(guard, root_off);
    if first == 0 {
        // Also if the map was dropped meanwhile.
        return Err(Damaged { off: root_off, what: "its entry names no leaf" });
    }
    let walk = Mutex::new(Walk { next: first, begun: 0, steps: 0, landmark: 0, slots });
    let mut placed = survey_alone(pmwcas, guard, &walk, SURVEYED_ALONE);
    let helpers = std::thread::available_parallelism().map_or(1, usize::from) - 1;
    if helpers == 0 {
        placed.extend(survey_alone(pmwcas, guard, &walk, usize::MAX));
    } else if !locked(&walk).is_over() {
        std::thread::scope(|scope| {
            let work = || match pmwcas.pool().pin() {
                Ok(guard) => survey_in_turn(pmwcas, &guard, &walk),
                // Without a participant slot it leaves all runs to the other threads.
                Err(_) => Vec::new(),
            };
            let others: Vec<_> = (0..helpers)
                .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok())
                .collect();
            placed.extend(survey_in_turn(pmwcas, guard, &walk));
            for other in others {
                match other.join() {
                    Ok(surveyed) => placed.extend(surveyed),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
    }
    placed.sort_unstable_by_key(|&(place, _)| place);
    placed.into_iter().map(|(_, run)| run).collect()
}

/// Surveys at most so many runs, while it walks.
fn survey_alone<D: Domain>(
    pmwcas: &Pmwcas<D>,
    guard: &Guard<'_, D>,
    walk: &Mutex<Walk>,
    most: usize,
) -> Vec<Placed> {
    let mut walk = locked(walk);
    let mut runs = Vec::new();
    while runs.len() < most
        && let Some(place) = walk.begin()
    {
        let slots = walk.slots;
        runs.push((place, survey_run(guard, walk.run(pmwcas, guard), slots)));
    }
    runs
}

/// Walks a run and then surveys it while other threads walk the next one, until no run is left.
fn survey_in_turn<D: Domain>(
    pmwcas: &Pmwcas<D>,
    guard: &Guard<'_, D>,
    walk: &Mutex<Walk>,
) -> Vec<Placed> {
    let mut runs = Vec::new();
    let next = || {
        let mut walk = locked(walk);
        let place = walk.begin()?;
        Some((place, walk.slots, walk.run(pmwcas, guard).collect::<Vec<_>>()))
    };
    while let Some((place, slots, offs)) = next() {
        runs.push((place, survey_run(guard, offs.into_iter(), slots)));
    }
    runs
}

fn locked(walk: &Mutex<Walk>) -> std::sync::MutexGuard<'_, Walk> {
    walk.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The position of the walk.
struct Walk {
    /// The next block; zero behind the last.
    next: u64,
    /// Runs that were started.
    begun: usize,
    /// Blocks that were passed.
    steps: u64,
    /// The last block whose number was a power of two. If the chain is a cycle, the walk reaches
    /// such a block again after a few rounds.
    landmark: u64,
    slots: usize,
}

impl Walk {
    fn is_over(&self) -> bool {
        self.next == 0
    }

    /// The position of the next run, if there is one.
    fn begin(&mut self) -> Option<usize> {
        if self.is_over() {
            return None;
        }
        self.begun += 1;
        Some(self.begun - 1)
    }

    /// The blocks of a run. Nothing follows a damaged one.
    fn run<D: Domain>(
        &mut self,
        pmwcas: &Pmwcas<D>,
        guard: &Guard<'_, D>,
    ) -> impl Iterator<Item = Result<u64, Damaged>> {
        let step = move || {
            let off = (self.next != 0).then_some(self.next)?;
            let next = self.behind(pmwcas, guard, off);
            self.next = next.as_ref().copied().unwrap_or(0);
            Some(next.map(|_| off))
        };
        std::iter::from_fn(step).take(RUN)
    }

    /// The block behind that at `off`, which may not be a block yet.
    fn behind<D: Domain>(
        &mut self,
        pmwcas: &Pmwcas<D>,
        guard: &Guard<'_, D>,
        off: u64,
    ) -> Result<u64, Damaged> {
        let damaged = |what| Err(Damaged { off, what });
        let bytes = block_bytes(self.slots);
        let pool = pmwcas.pool();
        let end = off.checked_add(bytes).filter(|_| off.is_multiple_of(LINE_BYTES));
        // A read of a PMwCAS word may settle it, so only leaves may be read in this way.
        let is_marked = end.is_some_and(|end| end <= pool.size_bytes())
            && pool.word(off + MARK_AT).load(Ordering::Relaxed) == mark(self.slots);
        if !is_marked {
            return damaged(if pool.active_block(off).is_some() { NO_LEAF } else { NO_BLOCK });
        }
        if off == self.landmark {
            return damaged("the chain of leaves has no end");
        }
        self.steps += 1;
        if self.steps.is_power_of_two() {
            self.landmark = off;
        }
        let next = pmwcas.read(guard, off + NEXT_AT);
        if next & REPLACED != 0 {
            return damaged("it is replaced, and still linked");
        }
        // While the blocks before it are surveyed.
        pool.prefetch(next);
        Ok(next)
    }
}

/// Surveys the consecutive leaves at these offsets, and writes them back.
fn survey_run<D: Domain>(
    guard: &Guard<'_, D>,
    offs: impl Iterator<Item = Result<u64, Damaged>>,
    slots: usize,
) -> Result<Run, Damaged> {
    let mut run = Run::default();
    let mut ends = None;
    let mut offs = offs.peekable();
    while let Some(off) = offs.next() {
        let off = off?;
        if let Some(Ok(ahead)) = offs.peek() {
            let lines = block_bytes(slots) / LINE_BYTES;
            (0..lines).for_each(|line| guard.pool().prefetch(ahead + line * LINE_BYTES));
            guard.pool().prefetch_block_state(*ahead);
        }
        let damaged = |what| Damaged { off, what };
        if guard.pool().active_block(off).is_none_or(|bytes| bytes < block_bytes(slots)) {
            return Err(damaged(NO_BLOCK));
        }
        let survey = survey(guard, off, slots);
        let survey = survey.ok_or(damaged(NO_LEAF))?;
        if !mutant!("nbtree-recovery-believes-slots") {
            guard.pool().flush(off, block_bytes(slots));
        }
        if survey.is_unsettled {
            run.unsettled.push(off);
        }
        let is_empty = survey.ends.is_none();
        let mut low = Separator::lowest();
        ends = match (ends, survey.ends) {
            (None, ends) | (ends, None) => ends,
            (Some((lowest, highest)), Some((own_lowest, own_highest))) => {
                if !highest.is_below(&own_lowest) {
                    return Err(damaged("its keys are not above those of the leaf before"));
                }
                low = highest.divided_from(&own_lowest);
                Some((lowest, own_highest))
            }
        };
        let leaf = Box::new(survey.into_leaf::<D>(low));
        run.leaves.push(Surveyed { leaf, is_empty });
    }
    // By the thread that has written them back.
    D::fence();
    run.ends = ends.map(|(lowest, highest)| (lowest.to_vec(), highest.to_vec()));
    Ok(run)
}
