//! Counters under many threads: every success counts once in each of its words, and an operation
//! that fails has found another value. In every domain.

use std::sync::Barrier;

use pando_pmem::{Adr, Domain, Process};
use pando_pmwcas::{MAX_VALUE, Pmwcas};

use super::common::{distinct, in_each_domain, in_memory, random, settled, word};

const ROUNDS: u64 = 8_000;

/// Adds one to each of a few random words, many times; returns the successes by word.
fn count<D: Domain>(pmwcas: &Pmwcas<D>, words: u64, seed: u64) -> Vec<u64> {
    let mut random = random(seed);
    let mut successes = vec![0; words as usize];
    for _ in 0..ROUNDS {
        let count = 1 + random.below(4) as usize;
        let chosen = distinct(&mut random, count, words);
        let guard = pmwcas.pool().pin().unwrap();
        let found: Vec<u64> = chosen.iter().map(|&at| pmwcas.read(&guard, word(at))).collect();
        let mut operation = pmwcas.allocate(&guard).unwrap();
        for (&at, &value) in chosen.iter().zip(&found) {
            assert!(value <= MAX_VALUE, "a reader saw control bits: {value:#x}");
            operation.add_word(word(at), value, value + 1).unwrap();
        }
        if operation.execute() {
            chosen.iter().for_each(|&at| successes[at as usize] += 1);
        } else {
            // Counters only rise, so a later read finds no smaller number.
            let differs = |(&at, &value): (&u64, &u64)| pmwcas.read(&guard, word(at)) != value;
            assert!(chosen.iter().zip(&found).any(differs), "failed although nothing differed");
        }
    }
    successes
}

fn counters<D: Domain>(words: u64, threads: u64) {
    let pmwcas = in_memory::<D>(1);
    let start = Barrier::new(threads as usize);
    let mut totals = vec![0; words as usize];
    std::thread::scope(|scope| {
        let counting: Vec<_> = (0..threads)
            .map(|thread| {
                let (pmwcas, start) = (&pmwcas, &start);
                scope.spawn(move || {
                    start.wait();
                    count(pmwcas, words, 0xC0_0000 + words * 100 + thread)
                })
            })
            .collect();
        for one in counting {
            let successes = one.join().unwrap();
            totals.iter_mut().zip(successes).for_each(|(total, more)| *total += more);
        }
    });
    // No reference and no dirty bit is left: the words hold the numbers that were counted.
    let found: Vec<u64> = (0..words).map(|at| settled(&pmwcas, at)).collect();
    assert_eq!(found, totals, "{words} words, {threads} threads, {:?}", D::default());
    assert!(totals.iter().sum::<u64>() > ROUNDS, "hardly anything succeeded");
}

#[test]
fn every_success_counts_once_in_few_words() {
    counters::<Process>(8, 8);
    counters::<Adr>(8, 4);
}

#[test]
fn every_success_counts_once_in_many_words() {
    counters::<Process>(100, 8);
    counters::<Adr>(100, 4);
}

/// Each thread has words that only it changes. Other threads read them, and compare them in
/// operations of their own. So threads help each other, but the owner of the words never fails.
fn owners<D: Domain>() {
    const THREADS: u64 = 6;
    let pmwcas = in_memory::<D>(1);
    let work = |own: u64| {
        let mut random = random(0x0A_0000 + own);
        for round in 0..5_000_u64 {
            let guard = pmwcas.pool().pin().unwrap();
            let mut operation = pmwcas.allocate(&guard).unwrap();
            for at in [own, own + THREADS, own + 2 * THREADS] {
                operation.add_word(word(at), round, round + 1).unwrap();
            }
            assert!(operation.execute(), "thread {own} failed in round {round}, spuriously");
            let other = random.below(THREADS);
            let [first, second] = [other, other + THREADS].map(|at| pmwcas.read(&guard, word(at)));
            let mut compare = pmwcas.allocate(&guard).unwrap();
            compare.add_word(word(other), first, first).unwrap();
            compare.add_word(word(other + THREADS), second, second).unwrap();
            if compare.execute() {
                assert_eq!(first, second, "half an operation was seen");
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|own| scope.spawn(move || work(own))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert!((0..3 * THREADS).all(|at| settled(&pmwcas, at) == 5_000));
}

#[test]
fn an_operation_that_nobody_disturbs_never_fails() {
    in_each_domain!(owners);
}
