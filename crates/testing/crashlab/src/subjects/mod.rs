//! What is explored: each subject runs real code in a pool and says what its operations mean.
//!
//! A new index is an entry in [`indexes`], and one line in [`crate::campaign::subjects`].

pub mod blocks;
pub mod catalog;
pub mod dropped;
pub mod indexes;
pub mod map;
mod map_scenarios;
pub mod roots;
pub mod words;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_pmem::layout::FIRST_PARTICIPANTS;
use pando_pmem::{Domain, Pool};
use pando_pmwcas::{Algorithm, CONTROL_BITS};

use pando_index::random::Random;

/// An operation, the part of the state that it is about, and its answer.
pub type Noted<S> = (usize, <S as Subject>::Op, <S as Subject>::Answer);

/// What a subject holds, by part; a part that is not here holds [`Subject::blank`].
pub type Observed<S> = BTreeMap<usize, <S as Subject>::State>;

/// Something that lives in a pool, with operations whose meaning is known.
///
/// The state falls into parts that are independent of each other; each operation is about one.
pub trait Subject: Sized + 'static {
    /// An operation.
    type Op: Clone + Debug + Send + Sync + 'static;
    /// What it answers.
    type Answer: Clone + Debug + Send + Sync + 'static;
    /// What a part holds.
    type State: Clone + Eq + Hash + Debug + 'static;
    /// The subject in an open pool.
    type Open<D: Domain>: Opened<Self>;

    /// Its name, as the command takes it.
    const NAME: &'static str;
    /// Size of its pool.
    const POOL_BYTES: u64 = 1 << 20;
    /// Whether it promises anything after a crash. Of one that does not, schedules are explored,
    /// and no crashes.
    const SURVIVES: bool = true;

    /// Opens what is in the pool, created if nothing is there yet.
    fn open<D: Domain>(pool: Arc<Pool<D>>) -> Result<Self::Open<D>, String>;

    /// What is to be explored of it.
    fn scenarios() -> Vec<Scenario<Self>>;

    /// The part that an operation changes; `None` if it only looks.
    fn changes(op: &Self::Op) -> Option<usize>;

    /// What a part holds that nobody has changed.
    fn blank() -> Self::State;

    /// What a part holds after an operation that was answered so, or that a crash cut short;
    /// `None` if it cannot have been answered so.
    fn after(
        state: &Self::State,
        op: &Self::Op,
        answer: Option<&Self::Answer>,
    ) -> Option<Self::State>;
}

/// A subject in an open pool.
pub trait Opened<S: Subject>: Send + Sync + 'static {
    /// Performs an operation. One that looks at several parts notes an answer for each.
    fn perform(&self, op: &S::Op) -> Vec<Noted<S>>;

    /// What is there now. Fails if something that must hold for every reader does not.
    fn observe(&self) -> Result<Observed<S>, String>;

    /// Checks every invariant, and what is allocated against what is reached.
    fn audit(&self) -> Result<(), String>;

    /// Uses the subject as one would after a crash, leaving all parts as they were.
    fn exercise(&self) -> Result<(), String>;
}

/// Makes the operations of each logical thread of one run.
pub type Programs<S> = Box<dyn Fn(&mut Random) -> Vec<Vec<<S as Subject>::Op>>>;

/// How a subject is prepared, and what is then done to it at once.
pub struct Setup<S: Subject> {
    /// What one thread does first, unobserved.
    pub prepare: Vec<S::Op>,
    /// What it does then in a pool that gives it no block.
    pub cram: Vec<S::Op>,
    /// What several threads then do.
    pub programs: Programs<S>,
}

/// Something to explore.
pub struct Scenario<S: Subject> {
    /// Its name, as the command takes it.
    pub name: &'static str,
    /// How many switches between threads are few enough to try all.
    pub preemptions: u32,
    /// The pool refuses blocks, a few or all, after fewer than so many; none if there is no number.
    pub granted: Option<u64>,
    /// Slots with which the table of participants begins.
    pub slots: usize,
    setup: Box<dyn FnOnce() -> Setup<S>>,
}

impl<S: Subject> Scenario<S> {
    /// A scenario; `setup` is only called when it is explored.
    pub fn new(
        name: &'static str,
        preemptions: u32,
        setup: impl FnOnce() -> Setup<S> + 'static,
    ) -> Self {
        Self { name, preemptions, granted: None, slots: FIRST_PARTICIPANTS, setup: Box::new(setup) }
    }

    /// The same in a pool that refuses blocks, a few or all, after fewer than `granted`.
    pub fn short_of_blocks(self, granted: u64) -> Self {
        Self { granted: Some(granted), ..self }
    }

    /// The same in a pool that has two slots at first, so that threads take slots from each other,
    /// and the table grows.
    pub fn short_of_slots(self) -> Self {
        Self { slots: 2, ..self }
    }

    /// How it begins.
    pub fn set_up(self) -> Setup<S> {
        (self.setup)()
    }
}

/// The algorithm that a subject is explored by.
fn algorithm(rdcss: bool) -> Algorithm {
    if rdcss { Algorithm::Rdcss } else { Algorithm::Direct }
}

/// Looks, without helping anyone, that no word still refers to an operation that is over: its
/// descriptor may be in another life before a reader comes by. What threads have left to their next
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

/// Compares the blocks that are reached, in any order, with those allocated, and looks that none
/// of them would be allocated again.
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
