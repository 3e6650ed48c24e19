//! Committed operations with clean-up pending: reads and changes of their words, clean-up by other
//! threads, and recovery.

use std::sync::Arc;

use pando_pmem::counting::{Counting, measure};
use pando_pmem::testing::{CutShort, kill_after};
use pando_pmem::{Adr, Domain};
use pando_pmwcas::{Algorithm, Pmwcas};

use super::common::{change, crash, create, folder_and_pool, in_memory, open, raw, read, settled};

const REFERENCE: u64 = 1 << 63;
const TWO: [(u64, u64, u64); 2] = [(0, 0, 5), (90, 0, 6)];

/// Runs the operation in a thread of its own, which then ends, so that it does not clean up.
fn commit<D: Domain>(pmwcas: &Pmwcas<D>) {
    std::thread::scope(|scope| drop(scope.spawn(|| assert!(change(pmwcas, &TWO)))));
}

fn refers<D: Domain>(pmwcas: &Pmwcas<D>) -> bool {
    TWO.iter().any(|&(at, ..)| raw(pmwcas, at) & REFERENCE != 0)
}

#[test]
fn a_reader_of_a_pending_operation_writes_nothing() {
    let pmwcas = in_memory::<CutShort<true>>(1);
    commit(&pmwcas);
    assert_eq!(refers(&pmwcas), super::ALGORITHM != Algorithm::Rdcss);
    let guard = pmwcas.pool().pin().unwrap();
    let seen = kill_after(0, || pmwcas.read(&guard, super::common::word(90)));
    assert_eq!(seen, Some(6));
}

#[test]
fn a_word_of_a_pending_operation_is_changed_by_others() {
    let pmwcas = in_memory::<Adr>(1);
    commit(&pmwcas);
    assert!(!change(&pmwcas, &[(0, 0, 1)]));
    assert!(change(&pmwcas, &[(0, 5, 7), (1, 0, 8)]));
    assert_eq!([0, 1, 90].map(|at| read(&pmwcas, at)), [7, 8, 6]);
    assert_eq!([0, 1, 90].map(|at| settled(&pmwcas, at)), [7, 8, 6]);
}

/// Otherwise a word could lie in a block that is reused, and a recovery would undo the others.
#[test]
fn no_epoch_passes_before_what_an_operation_left_is_done() {
    let pmwcas = in_memory::<Counting>(1);
    commit(&pmwcas);
    let left = refers(&pmwcas);
    let guard = pmwcas.pool().pin().unwrap();
    let ((), counts) = measure(|| guard.collect());
    assert!(!refers(&pmwcas));
    assert_eq!((counts.flushes, counts.fences), if left { (1, 1) } else { (0, 0) });
    // The clean-up is done once.
    assert_eq!(measure(|| guard.collect()).1.flushes, 0);
}

#[test]
fn a_pending_operation_is_recovered_as_a_success() {
    let (_folder, path) = folder_and_pool();
    let pmwcas = create::<Adr>(&path);
    commit(&pmwcas);
    crash(pmwcas);
    for forward in [1, 0] {
        let pmwcas = open::<Adr>(&path);
        let expected = if super::ALGORITHM == Algorithm::Rdcss { 0 } else { forward };
        assert_eq!((pmwcas.recovered().rolled_forward, pmwcas.recovered().rolled_back), (expected, 0));
        assert_eq!(TWO.map(|(at, ..)| raw(&pmwcas, at)), [5, 6]);
        crash(pmwcas);
    }
}

/// The next thread in the slot finds the pending operation of the last one, and cleans up.
#[test]
fn the_next_thread_of_a_slot_takes_over_what_was_left() {
    let pmwcas = Arc::new(in_memory::<Adr>(1));
    for round in 0..20 {
        let own = Arc::clone(&pmwcas);
        let work = move || assert!(change(&own, &[(0, round, round + 1), (90, round, round + 1)]));
        std::thread::spawn(work).join().unwrap();
    }
    assert_eq!([settled(&pmwcas, 0), settled(&pmwcas, 90)], [20, 20]);
}
