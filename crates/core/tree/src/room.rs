//! Further attempts of an operation for which a full pool had no room.
//!
//! A pool is full when no block is free. But a replaced or removed block becomes free only when no
//! thread can read it any more, and a pinned thread delays its own blocks too. So a refused
//! operation first drops its guard, and then:
//!
//! | step | what it does |
//! | --- | --- |
//! | reclaim | the epoch is raised as far as other threads allow; blocks that no thread can read become free |
//! | try | the operation starts again, under a new guard |
//! | free dropped maps | some of the rest of them, if there are any |
//! | give back | if it is refused again: the index merges, or makes smaller, some nodes that have more room than they need |
//! | reclaim, try | as above; from *give back* on again while that finds something, up to a limit |
//! | report | the operation returns the error of its last attempt |
//!
//! No step waits for another thread: each is a bounded piece of work, and their number is bounded
//! ([`Tries`]). So an operation may be refused while a stopped thread delays the epoch, or while
//! other threads take the room that was given back. A refused operation has changed nothing.
//!
//! None of these steps is durable by itself. A crash leaves what the operation leaves, or what a
//! merge of the index leaves.

use std::cell::Cell;
use std::error::Error as StdError;
use std::time::{Duration, Instant};

use pando_index::Error;
use pando_pmem::Domain;

use crate::maps::{Catalog, MapError};

/// An error that may say that the pool had no room.
pub trait Refusal {
    /// Whether the operation may succeed when the pool has more room.
    fn is_full(&self) -> bool;
}

impl Refusal for pando_pmem::Error {
    fn is_full(&self) -> bool {
        matches!(
            self,
            Self::PoolFull { .. } | Self::FileSystemFull { .. } | Self::FileTooLarge { .. }
        )
    }
}

impl Refusal for pando_pmwcas::Error {
    fn is_full(&self) -> bool {
        match self {
            Self::Pool(error) => error.is_full(),
            // They are free again when the operations that use them have ended.
            Self::DescriptorsExhausted => true,
            _ => false,
        }
    }
}

impl Refusal for MapError {
    fn is_full(&self) -> bool {
        matches!(self, Self::Pmwcas(error) if error.is_full())
    }
}

impl Refusal for Error {
    fn is_full(&self) -> bool {
        let Self::Storage(source) = self else { return false };
        let mut next: Option<&(dyn StdError + 'static)> = Some(&**source);
        while let Some(error) = next {
            if error.downcast_ref::<pando_pmem::Error>().is_some_and(Refusal::is_full)
                || error.downcast_ref::<pando_pmwcas::Error>().is_some_and(Refusal::is_full)
            {
                return true;
            }
            next = error.source();
        }
        false
    }
}

impl Refusal for Box<Error> {
    fn is_full(&self) -> bool {
        (**self).is_full()
    }
}

/// Parts of dropped maps that one refusal frees: a few hundred KiB.
const DROP_STEPS: u32 = 256;

/// How often a refused operation is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tries {
    /// An operation that takes room: few times, so that a full pool reports it quickly.
    Few,
    /// An operation that frees more than it takes, such as a remove: it is refused only if
    /// operations of other threads take the room each time.
    Many,
}

impl Tries {
    fn count(self) -> u32 {
        match self {
            Self::Few => 12,
            Self::Many => 64,
        }
    }
}

/// The attempts of one operation that an index whose nodes are in a store makes beside these: the
/// limits are the index's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attempts {
    /// To make room.
    count: u32,
    /// When room was lacking first.
    begin: Option<Instant>,
    others: u32,
    /// When there were too many others.
    begin_of_others: Option<Instant>,
}

impl Attempts {
    /// How often it has made room.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Counts one more, for another reason than lack of room; false if there were `most`, and so
    /// much time has passed since then. What other threads undo may take many attempts.
    pub fn may_try(&mut self, most: u32, wait: Duration) -> bool {
        self.others = self.others.saturating_add(1);
        if self.others <= most {
            return true;
        }
        std::thread::yield_now();
        self.begin_of_others.get_or_insert_with(Instant::now).elapsed() < wait
    }

    /// Counts one more, because room is lacking; false if there were `most`, or if so much time has
    /// passed since the first of these, which may take place in any case.
    pub fn may_make_room(&mut self, most: u32, most_wait: Duration) -> bool {
        let is_in_time = self.begin.is_none_or(|begin| begin.elapsed() < most_wait);
        self.begin.get_or_insert_with(Instant::now);
        let may = is_in_time && self.count < most;
        self.count += u32::from(may);
        may
    }
}

/// The room that an index could give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenBack {
    /// Blocks that it no longer needs.
    Some,
    /// None.
    Nothing,
}

/// For an index whose nodes never have more room than they need.
pub fn nothing_to_give() -> GivenBack {
    GivenBack::Nothing
}

/// Runs `attempt`, and again if it is refused: see [the module](self). `attempt` and `give_back`
/// pin themselves, and hold no guard when they return. The caller must hold none either, or nothing
/// can be reclaimed.
#[inline(always)]
pub fn with_room<D: Domain, R, E: Refusal>(
    catalog: &Catalog<D>,
    tries: Tries,
    mut give_back: impl FnMut() -> GivenBack,
    mut attempt: impl FnMut() -> Result<R, E>,
) -> Result<R, E> {
    let (mut refusals, mut may_be_dropped) = (0, true);
    loop {
        match attempt() {
            Err(error) if error.is_full() => {
                refusals += 1;
                if !may_try_again(catalog, tries, refusals, &mut may_be_dropped, &mut give_back) {
                    return Err(error);
                }
            }
            done => return done,
        }
    }
}

/// Makes room after so many `refusals`; returns whether to try again.
#[cold]
#[inline(never)]
fn may_try_again<D: Domain>(
    catalog: &Catalog<D>,
    tries: Tries,
    refusals: u32,
    may_be_dropped: &mut bool,
    give_back: &mut impl FnMut() -> GivenBack,
) -> bool {
    if refusals > tries.count() {
        return false;
    }
    // The search for dropped maps reads the whole catalog: only once, if there are none.
    *may_be_dropped = *may_be_dropped && free_dropped(catalog);
    let is_hopeless = !*may_be_dropped
        && refusals > 1
        && give_back() == GivenBack::Nothing
        && tries == Tries::Few;
    // An error of the reclamation is that of the pin, which the next attempt would also return.
    !is_hopeless && catalog.pool().reclaim().is_ok()
}

/// Frees some of the rest of dropped maps; returns whether there was any.
fn free_dropped<D: Domain>(catalog: &Catalog<D>) -> bool {
    let steps = Cell::new(0);
    let is_enough = || steps.replace(steps.get() + 1) >= DROP_STEPS;
    // The thread that dropped the map gets the same error, or the next opening does.
    catalog.slots().has_dropped_maps() && catalog.free_dropped(&is_enough).unwrap_or(false)
}
