//! Threads that stall forever at any write: the others make progress, and the stalled operation
//! took place or did not.

use std::sync::Arc;

use pando_pmem::testing::{CutShort, run_until_stopped};
use pando_pmem::{Domain, Guard};
use pando_pmwcas::{Pmwcas, Policy};

use super::common::{active, change, in_memory, raw, read, stamped, within_bounds, word};

/// For every write of `stopped`: stops it there, then runs `others` until they finish.
fn stop_everywhere<D: Domain>(
    what: &'static str,
    stopped: fn(&Pmwcas<D>),
    others: fn(&Pmwcas<D>, bool),
) {
    for writes in 0.. {
        let pmwcas = in_memory::<D>(1);
        let victim = Arc::clone(&pmwcas);
        let done = run_until_stopped(writes, move || stopped(&victim));
        within_bounds(what, move || others(&pmwcas, done));
        if done {
            assert!(writes > 8, "{what}: only {writes} writes");
            return;
        }
    }
}

fn three_words<D: Domain>(pmwcas: &Pmwcas<D>) {
    assert!(change(pmwcas, &[(0, 0, 5), (1, 0, 5), (2, 0, 5)]));
}

fn conflicting_operations<D: Domain>(pmwcas: &Pmwcas<D>, done: bool) {
    // The first word is taken first, so this decides whether the operation takes place.
    let guard = pmwcas.pool().pin().unwrap();
    let found = match pmwcas.compare_exchange(&guard, word(0), 0, 7) {
        Ok(()) => 0,
        Err(found) => {
            assert_eq!(pmwcas.compare_exchange(&guard, word(0), found, 7), Ok(()));
            found
        }
    };
    assert!(found == 5 || (found == 0 && !done));
    assert_eq!(read(pmwcas, 1), found);
    assert!(change(pmwcas, &[(2, found, 8)]));
    assert!(change(pmwcas, &[(0, 7, 1), (1, found, 1), (2, 8, 1)]));
    for round in 1..50 {
        let all = [0, 1, 2].map(|at| (at, round, round + 1));
        assert!(change(pmwcas, &all));
    }
}

#[test]
fn an_operation_stopped_anywhere_holds_up_nobody() {
    stop_everywhere("process", three_words::<CutShort>, conflicting_operations);
    stop_everywhere("adr", three_words::<CutShort<true>>, conflicting_operations);
}

fn larger_operation<D: Domain>(pmwcas: &Pmwcas<D>, done: bool) {
    // This takes an operation that finds the stopped one's references among its own targets.
    let old = if done { 5 } else { 0 };
    let with = |value| [(1, value, 9), (2, value, 9), (3, 0, 9), (60, 0, 9)];
    let succeeded = change(pmwcas, &with(old)) || (!done && change(pmwcas, &with(5)));
    assert!(succeeded, "neither the old nor the new values were there");
    assert_eq!([1, 2, 3, 60].map(|at| read(pmwcas, at)), [9; 4]);
}

#[test]
fn an_operation_stopped_anywhere_is_helped_from_its_middle() {
    stop_everywhere("process", three_words::<CutShort>, larger_operation);
    stop_everywhere("adr", three_words::<CutShort<true>>, larger_operation);
}

fn replace_block<D: Domain>(pmwcas: &Pmwcas<D>) {
    let guard = pmwcas.pool().pin().unwrap();
    swap_block(pmwcas, &guard, 3);
}

fn swap_block<D: Domain>(pmwcas: &Pmwcas<D>, guard: &Guard<'_, D>, stamp: u8) {
    let old = pmwcas.read(guard, word(0));
    let mut operation = pmwcas.allocate(guard).unwrap();
    let entry = operation.reserve_entry(word(0), old, Policy::FreeOne).unwrap();
    operation.activate(entry, stamped(guard, 100, stamp));
    assert!(operation.execute());
}

fn replace_again<D: Domain>(pmwcas: &Pmwcas<D>, done: bool) {
    for round in 0..100 {
        swap_block(pmwcas, &pmwcas.pool().pin().unwrap(), round);
    }
    let current = raw(pmwcas, 0);
    let found = active(pmwcas.pool());
    assert!(found.contains(&current));
    // At most the blocks of the stopped operation itself stay allocated.
    assert!(found.len() <= if done { 1 } else { 3 }, "{} blocks", found.len());
}

#[test]
fn a_replacement_of_a_block_stopped_anywhere_holds_up_nobody() {
    stop_everywhere("process", replace_block::<CutShort>, replace_again);
    stop_everywhere("adr", replace_block::<CutShort<true>>, replace_again);
}

/// A helper stalls forever while it helps a thread that has stalled.
#[test]
fn a_helper_stopped_anywhere_holds_up_nobody() {
    for writes in 0..40 {
        for helper_writes in 0.. {
            let pmwcas = in_memory::<CutShort<true>>(1);
            let victim = Arc::clone(&pmwcas);
            let done = run_until_stopped(writes, move || three_words(&victim));
            let helper = Arc::clone(&pmwcas);
            let helped = run_until_stopped(helper_writes, move || {
                read(&helper, 0);
                let _ = change(&helper, &[(2, 0, 5), (70, 0, 5)]);
            });
            let third = Arc::clone(&pmwcas);
            within_bounds("a third", move || {
                for at in [2, 1, 0, 70] {
                    let found = read(&third, at);
                    assert!(found == 0 || found == 5);
                    assert!(change(&third, &[(at, found, 6)]));
                }
                assert!(change(&third, &[(0, 6, 1), (1, 6, 1), (2, 6, 1), (70, 6, 1)]));
            });
            if helped {
                break;
            }
            if done {
                return;
            }
        }
    }
}

/// Far more operations than descriptors, while one thread stays pinned, and another has stalled in
/// the middle of an operation.
#[test]
fn descriptors_do_not_run_out_behind_a_thread_that_stopped() {
    let pmwcas = in_memory::<CutShort>(16);
    let victim = Arc::clone(&pmwcas);
    assert!(!run_until_stopped(12, move || three_words(&victim)));
    within_bounds("twenty thousand operations", move || {
        let first = read(&pmwcas, 1);
        for round in 0..20_000 {
            let from = if round == 0 { first } else { round };
            assert!(change(&pmwcas, &[(1, from, round + 1), (9, round, round + 1)]));
        }
        // Blocks wait for the stalled thread, but the pool has room for a few thousand of them.
        for round in 0..5_000_u64 {
            swap_block(&pmwcas, &pmwcas.pool().pin().unwrap(), round as u8);
        }
        let shown = pmwcas.pool().participants();
        assert!(shown.iter().any(|found| found.pinned_for_epochs.is_some()), "{shown:?}");
    });
}
