//! Where the pages of a tree are: what differs between a tree whose pages are all in its pool, and
//! one whose pages may be in a store alone (`stored.rs`).

use std::fmt::Debug;

use pando_index::{Error, Limits, Result};
use pando_pmem::{Domain, Guard};
use pando_pmwcas::Descriptor;
use pando_tree::context::Context;
use pando_tree::room::{Attempts, GivenBack};

use crate::context::{At, Damaged, Pid};
use crate::layout::LIMITS;
use crate::pages::absent_pid;
use crate::tree::BwTree;

/// Where the pages of a tree are. By default all are in its pool, and then these functions do
/// nothing; `stored.rs` has the other case.
pub trait Residence: Sized + Copy + Debug + Send + Sync + 'static {
    /// The longest keys and values.
    const LIMITS: Limits = LIMITS;

    /// Whether pages may be absent from the pool.
    const MAY_BE_ABSENT: bool = false;

    /// The error of an operation that needs the page `at`, if that is absent.
    fn missing(_: At) -> Option<Error> {
        None
    }

    /// An operation uses the page `at`.
    #[inline(always)]
    fn touch<D: Domain>(_: &BwTree<D, Self>, _: At) {}

    /// Called without a guard after an operation has failed. Returns if it is to be tried again.
    ///
    /// # Errors
    ///
    /// The operation's own, if it is not to be tried again, or that of the try to help it.
    #[inline(always)]
    fn after_failure<D: Domain>(_: &BwTree<D, Self>, error: Error, _: &mut Attempts) -> Result<()> {
        // No page is absent: the word that says so is damaged.
        Err(absent_pid(&error).map_or(error, |pid| Damaged::at(pid).into()))
    }

    /// Whether blind writes may go to the page at this PID, which is absent or partial
    /// (`blind.rs`).
    fn may_write_blind<D: Domain>(_: &BwTree<D, Self>, _: Context<'_, D>, _: Pid) -> bool {
        false
    }

    /// Whether the thread undoes an operation of its owner.
    fn is_undoing<D: Domain>(_: &BwTree<D, Self>) -> bool {
        false
    }

    /// Gives room back, in a full pool.
    fn give_back<D: Domain>(_: &BwTree<D, Self>, _: &mut Attempts) -> GivenBack {
        GivenBack::Nothing
    }

    /// Runs a part of a write, with the room of the pool that it may use. Writes leave some room
    /// for removes, here (`consolidate_with`) and in other maps.
    #[inline(always)]
    fn in_room<D: Domain, R>(
        _: &BwTree<D, Self>,
        guard: &Guard<'_, D>,
        work: impl FnOnce() -> R,
    ) -> R {
        guard.without_reserve(work)
    }

    /// Called without a guard after a write.
    #[inline(always)]
    fn after_write<D: Domain>(_: &BwTree<D, Self>) {}

    /// Whether the structure may change now. If not, the change is left to a later operation.
    #[inline(always)]
    fn may_change<D: Domain>(_: &BwTree<D, Self>) -> bool {
        true
    }

    /// Adds to a change of structure what else it changes. It concerns the pages `pids`. `None`: it
    /// may not take place now.
    fn note<D: Domain>(
        _: &BwTree<D, Self>,
        _: Context<'_, D>,
        _: &mut Descriptor<'_, '_, D>,
        _: &[Pid],
    ) -> pando_pmwcas::Result<Option<Noted>> {
        Ok(Some(Noted(None)))
    }

    /// The change for which this was noted did not take place.
    fn forget<D: Domain>(_: &BwTree<D, Self>, _: Noted) {}
}

/// What [`Residence::note`] has noted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noted(pub Option<(u64, u64)>);
