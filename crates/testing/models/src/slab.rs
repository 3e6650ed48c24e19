//! Slabs: blocks that move from thread to thread, and slabs with room that must be found again
//! (`pando-pmem/src/alloc/slab.rs`, `cache.rs`, `slab_search.rs`).
//!
//! A thread claims a block by a CAS of its slab's taken word (`take_block`), and releases it by
//! another CAS (`release_in_slab`). Between these only the holder accesses the block. Its bytes are
//! plain memory.
//!
//! A slab is *current* (a thread allocates from it), *listed* (on the stack of slabs with room) or
//! neither. Two threads decide whether it must be listed:
//!
//! * a thread that releases a block, unless the slab is current (`release_in_slab`, then `list`);
//! * a thread that finds no room and stops using the slab (`release_current`), unless there is room
//!   after all.
//!
//! Each writes its word and then reads the other's. If both could miss the other's write, the
//! allocator would lose the slab.
//!
//! A slab without blocks dissolves, unless a thread has it. Using it and dissolving it need the
//! same claim (`claim_slab`). A claim has a version. A thread that is refused room takes over the
//! claim of an empty slab by raising the version (`take_empty_slabs`), and dissolves the slab. The
//! former holder may be about to take a block: then both CAS the taken bits. Or it may stop using
//! the slab: this must not end the later claim.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{Ordering, fence};
use loom::thread;

use crate::atomic::Atomic;
use crate::explore;

const CURRENT: u64 = 1;
const LISTED: u64 = 2;
const VERSION: u64 = 4;

/// The parts that the mutants change.
#[derive(Clone, Copy)]
struct Code {
    /// A success of the CAS that releases a block.
    release: Ordering,
    /// A success of the CAS that claims a block, and the load before it.
    claim: Ordering,
    claim_load: Ordering,
    /// `find_use`, `release_current`: a full barrier between the write and the read.
    fenced: [bool; 2],
    /// `release_current` looks for room after it has ended its claim.
    looks_again: bool,
    /// A thread claims a slab before it dissolves it, and `claim_slab` checks the chunk again.
    dissolves_its_own: bool,
    looks_what_it_has: bool,
    /// `clear_current` ends only its own claim.
    ends_its_own: bool,
    /// `dissolve_slab` takes all blocks.
    takes_all: bool,
}

const AS_WRITTEN: Code = Code {
    release: SeqCst,
    claim: SeqCst,
    claim_load: Acquire,
    fenced: [true, true],
    looks_again: true,
    dissolves_its_own: true,
    looks_what_it_has: true,
    ends_its_own: true,
    takes_all: true,
};

/// The version of a claim.
type Claim = u64;

/// The first claim of a slab that a thread has.
const FIRST: Claim = VERSION;

/// Words of the chunk table.
const SLAB: u64 = 2;
const CLAIMED: u64 = 1;

/// A slab of two blocks.
struct Slab {
    code: Code,
    taken: Atomic,
    state: Atomic,
    table: Atomic,
    blocks: [UnsafeCell<u64>; 2],
}

// SAFETY: the test is about the cells; loom reports accesses that are not ordered.
unsafe impl Sync for Slab {}
// SAFETY: as for Sync.
unsafe impl Send for Slab {}

impl Slab {
    fn new(code: Code, taken: u64, state: u64) -> Arc<Self> {
        Arc::new(Self {
            code,
            taken: Atomic::new(taken),
            state: Atomic::new(state),
            table: Atomic::new(SLAB),
            blocks: [UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }

    /// `take_block`.
    fn take(&self) -> Option<usize> {
        let mut found = self.taken.load(self.code.claim_load);
        loop {
            let free = !found & 0b11;
            if free == 0 {
                return None;
            }
            let bit = free.trailing_zeros();
            let claimed = found | 1 << bit;
            let failure = self.code.claim_load;
            match self.taken.compare_exchange(found, claimed, self.code.claim, failure) {
                Ok(_) => return Some(bit as usize),
                Err(other) => found = other,
            }
        }
    }

    fn write(&self, block: usize) {
        // SAFETY: the pointer is the cell's, and loom reports a second user.
        self.blocks[block].with_mut(|bytes| unsafe { *bytes += 1 });
    }

    /// The first half of `release_in_slab`.
    fn give_back(&self, block: usize) {
        let mut found = self.taken.load(Acquire);
        while let Err(other) =
            self.taken.compare_exchange(found, found & !(1 << block), self.code.release, Acquire)
        {
            found = other;
        }
    }

    /// The second half (`find_use`): lists the slab if it is not current.
    fn list_unless_current(&self) {
        if self.code.fenced[0] {
            fence(SeqCst);
        }
        if self.state.load(Acquire) & CURRENT == 0 {
            self.list();
        }
    }

    fn list(&self) {
        // After a failure another thread lists it.
        self.change(|found| (found & (CURRENT | LISTED) == 0).then_some(found | LISTED));
    }

    /// `change`: the claim that the new state names.
    fn change(&self, change: impl Fn(u64) -> Option<u64>) -> Option<Claim> {
        let mut found = self.state.load(Acquire);
        loop {
            let new = change(found)?;
            match self.state.compare_exchange(found, new, AcqRel, Acquire) {
                Ok(_) => return Some(new & !(CURRENT | LISTED)),
                Err(other) => found = other,
            }
        }
    }

    /// `holds`.
    fn holds(&self, claim: Claim) -> bool {
        self.state.load(Acquire) & !LISTED == claim | CURRENT
    }

    /// `clear_current`.
    fn clear(&self, claim: Claim) -> bool {
        let is_own = |found: u64| !self.code.ends_its_own || found & !LISTED == claim | CURRENT;
        self.change(|found| is_own(found).then_some(found & !CURRENT)).is_some()
    }

    /// `claim_slab`.
    fn claim(&self) -> Option<Claim> {
        if self.table.load(Acquire) != SLAB {
            return None;
        }
        let claimed = |found| (found & CURRENT == 0).then_some((found | CURRENT) + VERSION);
        let claim = self.change(claimed)?;
        if !self.code.looks_what_it_has || self.table.load(Acquire) == SLAB {
            return Some(claim);
        }
        self.clear(claim);
        None
    }

    /// `take_empty_slabs`.
    fn take_if_empty(&self) {
        if self.state.load(Acquire) & CURRENT == 0
            || self.table.load(Acquire) != SLAB
            || self.taken.load(Acquire) != 0
        {
            return;
        }
        let taken = |found| (found & CURRENT != 0).then_some(found + VERSION);
        if let Some(claim) = self.change(taken)
            && !self.dissolve(claim)
        {
            self.retire(claim);
        }
    }

    /// `take_from_own`.
    fn take_from_own(&self, claim: Claim) -> Option<usize> {
        let block =
            if self.holds(claim) && self.table.load(Acquire) == SLAB { self.take() } else { None };
        if block.is_none() {
            self.retire(claim);
        }
        block
    }

    /// `release_current`.
    fn retire(&self, claim: Claim) {
        let mut claim = claim;
        loop {
            if !self.clear(claim) {
                return;
            }
            if self.code.fenced[1] {
                fence(SeqCst);
            }
            let is_slab = self.table.load(Acquire) == SLAB;
            let taken = self.taken.load(Acquire);
            if !is_slab || !self.code.looks_again || taken == 0b11 {
                return;
            }
            let again = if taken == 0 { self.claim() } else { None };
            let Some(again) = again else { return self.list() };
            if self.dissolve(again) {
                return;
            }
            claim = again;
        }
    }

    /// `dissolve_slab`; the blocks are one word here.
    fn dissolve(&self, claim: Claim) -> bool {
        let found = self.taken.load(Acquire);
        let takes = || self.taken.compare_exchange(found, 0b11, SeqCst, Acquire).is_ok();
        if found != 0 || self.code.takes_all && !takes() {
            return false;
        }
        self.table.store(CLAIMED, Release);
        if self.code.dissolves_its_own {
            self.clear(claim);
        }
        true
    }

    /// The second half of `release_in_slab` (`find_use`), with all that follows
    /// (`dissolve_or_list`, `release_current`).
    fn dissolve_or_list_unless_current(&self) {
        fence(SeqCst);
        if self.state.load(Acquire) & CURRENT != 0 {
            return;
        }
        if self.taken.load(Acquire) != 0 {
            return self.list();
        }
        let claim = if self.code.dissolves_its_own { self.claim() } else { Some(0) };
        if let Some(claim) = claim
            && !self.dissolve(claim)
        {
            self.retire(claim);
        }
    }
}

/// Two threads take blocks, write them and release them. A third claim finds all their writes.
fn hand_over(code: Code) {
    explore(None, move || {
        let slab = Slab::new(code, 0b01, FIRST | CURRENT);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let slab = slab.clone();
                thread::spawn(move || {
                    let taken = slab.take();
                    if let Some(block) = taken {
                        slab.write(block);
                        slab.give_back(block);
                    }
                    u64::from(taken.is_some())
                })
            })
            .collect();
        let taken: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(slab.take(), Some(1));
        // SAFETY: as in `write`.
        slab.blocks[1].with(|bytes| assert_eq!(unsafe { *bytes }, taken));
    });
}

model_tests! { hand_over, AS_WRITTEN;
    holds fn a_block_has_one_holder_at_a_time {}
    fails fn giving_a_block_back_must_release { release: Relaxed }
    fails fn claiming_a_block_must_acquire { claim: Release, claim_load: Relaxed }
}

/// One thread releases a block of a full slab while the slab's user stops using the slab.
fn let_go(code: Code) {
    explore(None, move || {
        let slab = Slab::new(code, 0b11, FIRST | CURRENT);
        let releaser = thread::spawn({
            let slab = slab.clone();
            move || {
                slab.give_back(0);
                slab.list_unless_current();
            }
        });
        let room = slab.take();
        if room.is_none() {
            slab.retire(FIRST);
        }
        releaser.join().unwrap();
        let state = slab.state.load(Acquire);
        assert!(room.is_some() || state & LISTED != 0, "a slab with room is lost");
    });
}

model_tests! { let_go, AS_WRITTEN;
    holds fn a_slab_with_room_is_not_lost {}
    fails fn who_gives_back_looks_behind_a_full_barrier { fenced: [false, true] }
    fails fn who_lets_go_looks_behind_a_full_barrier { fenced: [true, false] }
    fails fn who_lets_go_looks_again { looks_again: false }
}

/// One thread releases the last block of a listed slab while another claims the slab.
fn dissolve(code: Code) {
    explore(None, move || {
        let slab = Slab::new(code, 0b01, LISTED);
        let releaser = thread::spawn({
            let slab = slab.clone();
            move || {
                slab.give_back(0);
                slab.dissolve_or_list_unless_current();
            }
        });
        // `find_slab`, after a pop.
        slab.state.fetch_and(!LISTED, AcqRel);
        let has_it = slab.claim().is_some();
        releaser.join().unwrap();
        let is_slab = slab.table.load(Acquire) == SLAB;
        if has_it {
            assert!(is_slab, "a thread uses a slab that has dissolved");
        } else {
            assert!(!is_slab || slab.state.load(Acquire) & LISTED != 0, "an empty slab is lost");
        }
    });
}

model_tests! { dissolve, AS_WRITTEN;
    holds fn a_slab_that_someone_has_does_not_dissolve {}
    fails fn who_dissolves_a_slab_must_have_it { dissolves_its_own: false }
    fails fn who_claims_a_slab_looks_what_it_has { looks_what_it_has: false }
}

/// Two threads release the two blocks of a slab that no thread uses.
#[test]
fn an_empty_slab_is_not_lost() {
    explore(Some(2), move || {
        let slab = Slab::new(AS_WRITTEN, 0b11, 0);
        let threads = [0, 1].map(|block| {
            let slab = slab.clone();
            thread::spawn(move || {
                slab.give_back(block);
                slab.dissolve_or_list_unless_current();
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let is_slab = slab.table.load(Acquire) == SLAB;
        assert!(!is_slab || slab.state.load(Acquire) & LISTED != 0, "an empty slab is lost");
        assert_eq!(slab.state.load(Acquire) & CURRENT, 0);
    });
}

/// A thread takes blocks from its slab. Another thread, which is refused room, takes over the slab,
/// or finds it in the list.
fn taken_over(code: Code) {
    explore(Some(3), move || {
        let slab = Slab::new(code, 0, FIRST | CURRENT);
        let refused = thread::spawn({
            let slab = slab.clone();
            move || {
                slab.take_if_empty();
                // `find_slab`.
                let is_listed = slab.state.fetch_and(!LISTED, AcqRel) & LISTED != 0;
                if is_listed { slab.claim() } else { None }
            }
        });
        let blocks = [(); 2].map(|()| slab.take_from_own(FIRST));
        let claim = refused.join().unwrap();
        let is_slab = slab.table.load(Acquire) == SLAB;
        let (state, taken) = (slab.state.load(Acquire), slab.taken.load(Acquire));
        assert!(is_slab || blocks == [None; 2], "a block of a slab that has dissolved");
        assert!(is_slab || state & CURRENT == 0, "a slab that has dissolved has a user");
        assert!(claim.is_none_or(|claim| slab.holds(claim)), "another thread has ended the claim");
        let is_known = state & (CURRENT | LISTED) != 0;
        assert!(!is_slab || taken == 0b11 || is_known, "a slab with room is lost");
    });
}

model_tests! { taken_over, AS_WRITTEN;
    holds fn a_slab_that_is_taken_from_its_thread_is_nobodys_twice_and_not_lost {}
    fails fn who_has_lost_a_slab_must_not_end_a_later_claim { ends_its_own: false }
    fails fn who_dissolves_a_slab_takes_all_its_blocks { takes_all: false }
}
