//! The subjects of exploration: each runs real code in a pool, and has a model of its operations.
//!
//! A new index is an entry in [`indexes`], and one line in [`crate::campaign::subjects`].

pub mod blocks;
pub mod catalog;
pub mod dropped;
mod folders;
pub mod indexes;
pub mod map;
mod map_scenarios;
mod operations;
pub mod renamed;
pub mod roots;
pub mod steps;
pub mod stores;
mod transaction_scenarios;
pub mod transactions;
pub mod words;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_device::simulated::Simulated;
use pando_pmem::layout::FIRST_PARTICIPANTS;
use pando_pmem::{Domain, Pool};
use pando_pmwcas::{Algorithm, CONTROL_BITS};

use pando_index::random::Random;

/// The part of the state that an operation concerns, the operation, and its answer.
pub type Noted<M> = (usize, <M as Model>::Op, <M as Model>::Answer);

/// The state of a subject, by part. A part that is not listed is [`Model::blank`].
pub type Observed<M> = BTreeMap<usize, <M as Model>::State>;

/// A model of operations. The state consists of independent parts; each operation concerns one.
///
/// The trials are compiled once for each model, and not for each subject.
pub trait Model: Sized + 'static {
    /// An operation.
    type Op: Clone + Debug + Send + Sync + 'static;
    /// The answer of an operation.
    type Answer: Clone + Debug + Send + Sync + 'static;
    /// The state of a part.
    type State: Clone + Eq + Hash + Debug + 'static;

    /// The part that an operation changes; `None` for a read.
    fn changes(op: &Self::Op) -> Option<usize>;

    /// Whether all that had returned before this operation can be rebuilt from the files once it
    /// returns.
    fn syncs(_op: &Self::Op) -> bool {
        false
    }

    /// The state of a part that was never changed.
    fn blank() -> Self::State;

    /// The state of a part after an operation with this answer, or without one if a crash
    /// interrupted it; `None` if the answer is not possible.
    fn after(
        state: &Self::State,
        op: &Self::Op,
        answer: Option<&Self::Answer>,
    ) -> Option<Self::State>;
}

/// A structure in a pool, whose operations have a model.
pub trait Subject: 'static {
    /// The model.
    type Model: Model;
    /// The subject in an open pool.
    type Open<D: Domain>: Opened<Self::Model>;

    /// Its name on the command line.
    const NAME: &'static str;
    /// Size of its pool.
    const POOL_BYTES: u64 = 1 << 20;
    /// Whether it survives crashes. If not, its schedules are explored, and no crashes.
    const SURVIVES: bool = true;

    /// The domains in which it is explored: with write-backs, without, or both.
    const NEEDS_WRITE_BACK: &'static [bool] = &[true, false];

    /// Opens the subject in the pool, or creates it in a new pool. Most subjects have no `files`.
    fn open<D: Domain>(pool: Arc<Pool<D>>, files: &Simulated) -> Result<Self::Open<D>, String>;

    /// Rebuilds the subject from its files alone; the state, or `None` if it has no files.
    fn rebuild(_files: &Simulated) -> Result<Option<Observed<Self::Model>>, String> {
        Ok(None)
    }

    /// Its scenarios.
    fn scenarios() -> Vec<Scenario<Self::Model>>;
}

/// Performs the operations of one thread.
pub type Session<'open, M> = Box<dyn FnMut(&<M as Model>::Op) -> Vec<Noted<M>> + 'open>;

/// A subject in an open pool.
pub trait Opened<M: Model>: Send + Sync + 'static {
    /// Performs an operation. A read of several parts returns an answer for each.
    fn perform(&self, op: &M::Op) -> Vec<Noted<M>>;

    /// A session of a thread. From one operation to the next it may hold something, such as a
    /// snapshot.
    fn session(&self) -> Session<'_, M> {
        Box::new(|op| self.perform(op))
    }

    /// The present state. Fails if a reader finds a contradiction.
    fn observe(&self) -> Result<Observed<M>, String>;

    /// Checks every invariant, and the allocated blocks against the reached ones.
    fn audit(&self) -> Result<(), String>;

    /// Uses the subject as a program would after a crash. All parts keep their states, which can be
    /// rebuilt from the files on return.
    fn exercise(&self) -> Result<(), String>;
}

/// Makes the operations of each logical thread of one run.
pub type Programs<M> = Box<dyn Fn(&mut Random) -> Vec<Vec<<M as Model>::Op>>>;

/// The preparation of a subject, and the concurrent operations.
pub struct Setup<M: Model> {
    /// The operations of one thread at first, not recorded.
    pub prepare: Vec<M::Op>,
    /// Its operations after that, in a pool that refuses every block.
    pub cram: Vec<M::Op>,
    /// The concurrent operations of several threads.
    pub programs: Programs<M>,
}

impl<M: Model> Setup<M> {
    /// A setup that fills no pool.
    pub fn new(
        prepare: Vec<M::Op>,
        programs: impl Fn(&mut Random) -> Vec<Vec<M::Op>> + 'static,
    ) -> Self {
        Self { prepare, cram: Vec::new(), programs: Box::new(programs) }
    }
}

/// A scenario of a subject.
pub struct Scenario<M: Model> {
    /// Its name on the command line.
    pub name: &'static str,
    /// The bound of preemptions for the exhaustive schedules.
    pub preemptions: u32,
    /// The pool refuses some or all blocks after fewer than this number; `None`: it refuses none.
    pub granted: Option<u64>,
    /// First size of the table of participants, in slots.
    pub slots: usize,
    setup: Box<dyn FnOnce() -> Setup<M>>,
}

impl<M: Model> Scenario<M> {
    /// A scenario. `setup` is called only when it is explored.
    pub fn new(
        name: &'static str,
        preemptions: u32,
        setup: impl FnOnce() -> Setup<M> + 'static,
    ) -> Self {
        Self { name, preemptions, granted: None, slots: FIRST_PARTICIPANTS, setup: Box::new(setup) }
    }

    /// The same in a pool that refuses some or all blocks after fewer than `granted`.
    pub fn short_of_blocks(self, granted: u64) -> Self {
        Self { granted: Some(granted), ..self }
    }

    /// The same in a pool with two slots at first. So threads take slots from each other, and the
    /// table grows.
    pub fn short_of_slots(self) -> Self {
        Self { slots: 2, ..self }
    }

    /// Its setup.
    pub fn set_up(self) -> Setup<M> {
        (self.setup)()
    }
}

/// The algorithm of PMwCAS in a subject.
fn algorithm(rdcss: bool) -> Algorithm {
    if rdcss { Algorithm::Rdcss } else { Algorithm::Direct }
}

/// Checks, without helping, that no word refers to a finished operation: its descriptor may be in
/// another life before a reader finds the word. Work that threads have deferred to their next
/// operation is done when an epoch passes.
pub(crate) fn no_references<D: Domain>(
    pool: &Pool<D>,
    words: impl Iterator<Item = u64>,
) -> Result<(), String> {
    const REFERENCES: u64 = 3 << 62;
    pool.pin().map_err(|error| error.to_string())?.collect();
    for off in words {
        let found = pool.word(off).load(Ordering::Acquire);
        if found & REFERENCES & CONTROL_BITS != 0 {
            return Err(format!("the word at {off:#x} still refers to an operation: {found:#x}"));
        }
    }
    Ok(())
}

/// Compares the reached blocks, in any order, with the allocated ones, and checks that none of them
/// would be allocated again.
pub(crate) fn compare_blocks<D: Domain>(pool: &Pool<D>, reached: &[u64]) -> Result<(), String> {
    let mut reached = reached.to_vec();
    reached.extend(pool.segment_spans().iter().map(|span| span.off));
    reached.sort_unstable();
    if let Some(pair) = reached.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("the block at {:#x} is reached twice", pair[0]));
    }
    let mut active = Vec::new();
    let visited = pool.visit_active(&mut |block| {
        active.push(block.off);
        std::ops::ControlFlow::Continue(())
    });
    visited.map_err(|error| error.to_string())?;
    active.sort_unstable();
    if let Some(off) = active.iter().find(|off| reached.binary_search(off).is_err()) {
        return Err(format!("the block at {off:#x} is allocated and not reached: a leak"));
    }
    if let Some(off) = active.iter().find(|&&off| pool.would_give_out(off)) {
        return Err(format!("the block at {off:#x} would be allocated again"));
    }
    match reached.iter().find(|off| active.binary_search(off).is_err()) {
        Some(off) => Err(format!("the block at {off:#x} is reached and not allocated")),
        None => Ok(()),
    }
}
