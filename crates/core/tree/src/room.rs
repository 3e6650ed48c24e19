//! Another try for an operation to which a full pool refused room.
//!
//! A pool is full when no block is free. But a block that was replaced or removed is free only when
//! no thread can look at it any more, and a thread that is pinned holds its own blocks back. So a
//! refused operation lets go of its guard first, and then:
//!
//! | step | what it does |
//! | --- | --- |
//! | reclaim | the epoch is raised as far as other threads allow; what nobody can see any more is free |
//! | try | the operation begins again, under a new guard |
//! | free dropped maps | some of what is left of them, if there is one |
//! | give back | if it is refused again: the index merges, or makes smaller, some nodes that hold more room than they need |
//! | reclaim, try | as above; from *give back* on again while that finds something, up to a limit |
//! | report | the operation returns the error of its last try |
//!
//! No step waits for another thread: each is a bounded piece of work, and there are [`Tries`] of
//! them. So an operation may be refused while a thread that has stopped holds the epoch back, or
//! while other threads take what was given back. A refused operation has changed nothing.
//!
//! Nothing here is durable. A crash leaves what the operation leaves, or what the index leaves of a
//! merge.

use std::cell::Cell;

use pando_index::Error;
use pando_pmem::Domain;

use crate::maps::{Catalog, MapError};

/// An error that may say that the pool had no room.
pub trait Refusal {
    /// Whether the operation may succeed once the pool has given something back.
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
            // Some descriptors wait for their epoch, as blocks do.
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
        source.downcast_ref::<pando_pmem::Error>().is_some_and(Refusal::is_full)
            || source.downcast_ref::<pando_pmwcas::Error>().is_some_and(Refusal::is_full)
    }
}

impl Refusal for Box<Error> {
    fn is_full(&self) -> bool {
        (**self).is_full()
    }
}

/// Parts of dropped maps that one refusal frees: a few hundred KiB.
const DROP_STEPS: u32 = 256;

/// How often an operation is tried again after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tries {
    /// An operation that takes room: few times, so that a full pool says so quickly.
    Few,
    /// One that gives back more than it takes, as a remove: it is refused only if others'
    /// operations take the room each time.
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

/// What an index could give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenBack {
    /// Blocks that it no longer needs.
    Some,
    /// Nothing was found.
    Nothing,
}

/// For an index whose nodes never hold more room than they need.
pub fn nothing_to_give() -> GivenBack {
    GivenBack::Nothing
}

/// Runs `attempt`, and again after a refusal: see [the module](self). `attempt` and `give_back` pin
/// themselves, and hold no guard when they return; nor does the caller, or nothing can be
/// reclaimed.
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

/// Makes room after so many `refusals`. Whether to try again.
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
    // Looking for dropped maps reads the whole catalog: once, if there is none.
    *may_be_dropped = *may_be_dropped && free_dropped(catalog);
    let is_hopeless = !*may_be_dropped
        && refusals > 1
        && give_back() == GivenBack::Nothing
        && tries == Tries::Few;
    // An error of the reclamation is that of the pin, which the next try would meet.
    !is_hopeless && catalog.pool().reclaim().is_ok()
}

/// Frees some of what is left of dropped maps; whether there was any.
fn free_dropped<D: Domain>(catalog: &Catalog<D>) -> bool {
    let steps = Cell::new(0);
    let is_enough = || steps.replace(steps.get() + 1) >= DROP_STEPS;
    // Whoever dropped the map meets the same error, or the next opening does.
    catalog.pool().has_dropped_maps() && catalog.free_dropped(&is_enough).unwrap_or(false)
}
