//! Words are taken in order of address, in whichever order they were added. So no two operations
//! help each other without end. Tested on a small stack.

use std::sync::{Arc, Barrier};

use pando_pmem::testing::{CutShort, run_until_stopped};
use pando_pmem::Domain;
use pando_pmwcas::Pmwcas;

use super::common::{change, in_each_domain, in_memory, raw, read, settled, within_bounds, word};

const SMALL_STACK: usize = 256 << 10;
const WORDS: u64 = 10;

fn add_one(pmwcas: &Pmwcas<impl Domain>, order: &[u64]) -> bool {
    let guard = pmwcas.pool().pin().unwrap();
    let mut operation = pmwcas.allocate(&guard).unwrap();
    for &at in order {
        let value = pmwcas.read(&guard, word(at));
        operation.add_word(word(at), value, value + 1).unwrap();
    }
    operation.execute()
}

fn opposite_orders<D: Domain>() {
    let pmwcas = in_memory::<D>(1);
    let start = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let (pmwcas, start) = (Arc::clone(&pmwcas), Arc::clone(&start));
            let mut order: Vec<u64> = (0..WORDS).collect();
            if thread % 2 == 1 {
                order.reverse();
            }
            let work = move || {
                start.wait();
                (0..10_000).filter(|_| add_one(&pmwcas, &order)).count() as u64
            };
            std::thread::Builder::new().stack_size(SMALL_STACK).spawn(work).unwrap()
        })
        .collect();
    let successes = within_bounds("opposite orders", move || {
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
    });
    assert!((0..WORDS).all(|at| settled(&pmwcas, at) == successes));
    assert!(successes > 0);
}

#[test]
fn opposite_orders_neither_deadlock_nor_overflow_the_stack() {
    in_each_domain!(opposite_orders);
}

/// A hundred threads have stopped, each with a reference in one word, and each needs the next word.
/// A thread that reads the first word helps all of them, on a small stack.
#[test]
fn a_chain_of_a_hundred_stopped_operations_is_helped_on_a_small_stack() {
    const CHAIN: u64 = 100;
    let holds_first_only = |writes| {
        let pmwcas = in_memory::<CutShort>(1);
        let victim = Arc::clone(&pmwcas);
        let done = run_until_stopped(writes, move || {
            change(&victim, &[(0, 0, 1), (1, 0, 1)]);
        });
        let held = |at| raw(&pmwcas, at) >> 63 == 1;
        assert!(!done, "it never held the first word alone");
        held(0) && raw(&pmwcas, 1) == 0
    };
    let writes = (0..).find(|&writes| holds_first_only(writes)).unwrap();
    let pmwcas = in_memory::<CutShort>(1);
    // From the last to the first, so that none helps the next before it stops.
    for at in (0..CHAIN).rev() {
        let victim = Arc::clone(&pmwcas);
        let stopped = !run_until_stopped(writes, move || {
            change(&victim, &[(at, 0, at + 1), (at + 1, 0, at + 2)]);
        });
        assert!(stopped);
    }
    let reader = Arc::clone(&pmwcas);
    let work = move || read(&reader, 0);
    let reader = std::thread::Builder::new().stack_size(SMALL_STACK).spawn(work).unwrap();
    let first = within_bounds("the chain", move || reader.join().unwrap());
    assert!(first <= 1);
    // Neighbours need one word to be zero, so one of two fails; and all are settled.
    for at in 0..=CHAIN {
        let found = read(&pmwcas, at);
        assert!(found == 0 || found == at + 1, "word {at} holds {found}");
        assert!(change(&pmwcas, &[(at, found, 0)]));
    }
}
