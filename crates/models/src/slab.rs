//! Slabs: blocks handed from thread to thread, and slabs with room that must be found again
//! (`pando-pmem/src/alloc/slab.rs`, `cache.rs`).
//!
//! A block is claimed by a CAS of its slab's taken word (`take_block`), and given back by another
//! (`release_in_slab`). In between it is its holder's alone, though its bytes are plain memory.
//!
//! A slab is *current* (a thread allocates from it), *listed* (on the stack of slabs with room) or
//! neither. Two threads decide whether it must be listed: one that gives a block back, unless the
//! slab is current (`release_in_slab`, then `list`); one that finds no room and lets go of the slab
//! (`retire_current`), unless there is room after all. Each writes its word and then looks at the
//! other's. If both could miss the other's write, the slab would be lost to allocation.
//!
//! A slab whose last block comes back dissolves, unless someone has it: to have it, and to dissolve it,
//! is the same claim (`claim_slab`).

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{Ordering, fence};
use loom::thread;

use crate::atomic::Atomic;
use crate::explore;

const CURRENT: u64 = 1;
const LISTED: u64 = 2;

/// What the planted faults change.
#[derive(Clone, Copy)]
struct Code {
    /// A success of the CAS that gives a block back.
    release: Ordering,
    /// A success of the CAS that claims a block, and the load before it.
    claim: Ordering,
    claim_load: Ordering,
    /// `release_in_slab`, `retire_current`: a full barrier between one's write and one's look.
    fenced: [bool; 2],
    /// `retire_current` looks for room after it has let go.
    looks_again: bool,
    /// Who dissolves a slab has claimed it, and `claim_slab` looks once more what it has.
    dissolves_its_own: bool,
    looks_what_it_has: bool,
}

const AS_WRITTEN: Code = Code {
    release: SeqCst,
    claim: SeqCst,
    claim_load: Acquire,
    fenced: [true, true],
    looks_again: true,
    dissolves_its_own: true,
    looks_what_it_has: true,
};

/// What the chunk table says.
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

// SAFETY: the cells are what is on trial; loom reports accesses that are not ordered.
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
        // SAFETY: the pointer is the cell's own, and loom reports a second user.
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

    /// The second half: lists the slab if it is not current.
    fn list_unless_current(&self) {
        if self.code.fenced[0] {
            fence(SeqCst);
        }
        if self.state.load(Acquire) & CURRENT == 0 {
            self.list();
        }
    }

    fn list(&self) {
        // A failure says that another thread lists it.
        let _ = self.state.compare_exchange(0, LISTED, AcqRel, Acquire);
    }

    /// `retire_current`, after a `take_block` that found no room.
    fn retire(&self) {
        self.state.fetch_and(!CURRENT, AcqRel);
        if self.code.fenced[1] {
            fence(SeqCst);
        }
        if self.code.looks_again && !self.taken.load(Acquire) & 0b11 != 0 {
            self.list();
        }
    }
}

impl Slab {
    /// `claim_slab`.
    fn claim(&self) -> bool {
        if self.table.load(Acquire) != SLAB || self.state.fetch_or(CURRENT, AcqRel) & CURRENT != 0 {
            return false;
        }
        if !self.code.looks_what_it_has || self.table.load(Acquire) == SLAB {
            return true;
        }
        self.state.fetch_and(!CURRENT, AcqRel);
        false
    }

    /// `dissolve_slab`; the blocks are one word here.
    fn dissolve(&self) -> bool {
        let found = self.taken.load(Acquire);
        if found != 0 || self.taken.compare_exchange(found, 0b11, SeqCst, Acquire).is_err() {
            return false;
        }
        self.table.store(CLAIMED, Release);
        if self.code.dissolves_its_own {
            self.state.fetch_and(!CURRENT, AcqRel);
        }
        true
    }

    /// The second half of `release_in_slab`, with all that follows (`dissolve_or_list`,
    /// `retire_current`).
    fn dissolve_or_list_unless_current(&self) {
        fence(SeqCst);
        if self.state.load(Acquire) & CURRENT != 0 {
            return;
        }
        if self.taken.load(Acquire) != 0 {
            return self.list();
        }
        if self.code.dissolves_its_own && !self.claim() {
            return;
        }
        while !self.dissolve() {
            self.state.fetch_and(!CURRENT, AcqRel);
            fence(SeqCst);
            let taken = self.taken.load(Acquire);
            if self.table.load(Acquire) != SLAB || taken == 0b11 {
                return;
            }
            if taken != 0 || !self.claim() {
                return self.list();
            }
        }
    }
}

/// Two threads take blocks, write them and give them back; a third claim finds all settled.
fn hand_over(code: Code) {
    explore(None, move || {
        let slab = Slab::new(code, 0b01, CURRENT);
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

#[test]
fn a_block_has_one_holder_at_a_time() {
    hand_over(AS_WRITTEN);
}

#[test]
#[should_panic]
fn giving_a_block_back_must_release() {
    hand_over(Code { release: Relaxed, ..AS_WRITTEN });
}

#[test]
#[should_panic]
fn claiming_a_block_must_acquire() {
    hand_over(Code { claim: Release, claim_load: Relaxed, ..AS_WRITTEN });
}

/// One thread gives the only free block of a full slab back while its user lets go of the slab.
fn let_go(code: Code) {
    explore(None, move || {
        let slab = Slab::new(code, 0b11, CURRENT);
        let releaser = thread::spawn({
            let slab = slab.clone();
            move || {
                slab.give_back(0);
                slab.list_unless_current();
            }
        });
        let room = slab.take();
        if room.is_none() {
            slab.retire();
        }
        releaser.join().unwrap();
        let state = slab.state.load(Acquire);
        assert!(room.is_some() || state & LISTED != 0, "a slab with room is lost");
    });
}

#[test]
fn a_slab_with_room_is_not_lost() {
    let_go(AS_WRITTEN);
}

#[test]
#[should_panic]
fn who_gives_back_looks_behind_a_full_barrier() {
    let_go(Code { fenced: [false, true], ..AS_WRITTEN });
}

#[test]
#[should_panic]
fn who_lets_go_looks_behind_a_full_barrier() {
    let_go(Code { fenced: [true, false], ..AS_WRITTEN });
}

#[test]
#[should_panic]
fn who_lets_go_looks_again() {
    let_go(Code { looks_again: false, ..AS_WRITTEN });
}

/// One thread gives the last block of a listed slab back while another takes the slab for its own.
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
        let has_it = slab.claim();
        releaser.join().unwrap();
        let is_slab = slab.table.load(Acquire) == SLAB;
        if has_it {
            assert!(is_slab, "a thread has a slab that has dissolved");
        } else {
            assert!(!is_slab || slab.state.load(Acquire) & LISTED != 0, "an empty slab is lost");
        }
    });
}

#[test]
fn a_slab_that_someone_has_does_not_dissolve() {
    dissolve(AS_WRITTEN);
}

#[test]
#[should_panic]
fn who_dissolves_a_slab_must_have_it() {
    dissolve(Code { dissolves_its_own: false, ..AS_WRITTEN });
}

#[test]
#[should_panic]
fn who_claims_a_slab_looks_what_it_has() {
    dissolve(Code { looks_what_it_has: false, ..AS_WRITTEN });
}

/// Two threads give the two blocks of a slab back that is nobody's.
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
