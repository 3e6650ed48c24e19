//! Descriptors run out, are borrowed, and become free again.

use std::sync::Barrier;

use pando_pmem::testing::CutShort;
use pando_pmem::{Domain, Process};
use pando_pmwcas::Error;

use super::common::{in_memory, raw, settled, word};

const OWN: usize = 7;

#[test]
fn a_thread_without_descriptors_is_told_and_has_them_again_when_some_are_discarded() {
    all_of_ones_own::<Process>();
    // Here one descriptor is always in use: the clean-up of its operation is pending.
    all_of_ones_own::<CutShort<true>>();
}

fn all_of_ones_own<D: Domain>() {
    let pmwcas = in_memory::<D>(1);
    let guard = pmwcas.pool().pin().unwrap();
    for _ in 0..100 {
        let held: Vec<_> = (0..OWN).map(|_| pmwcas.allocate(&guard).unwrap()).collect();
        let error = pmwcas.allocate(&guard).unwrap_err();
        assert!(matches!(error, Error::DescriptorsExhausted), "{error}");
        for (at, mut operation) in held.into_iter().enumerate() {
            let value = pmwcas.read(&guard, word(at as u64));
            operation.add_word(word(at as u64), value, value + 1).unwrap();
            assert!(operation.execute());
        }
    }
    assert!((0..OWN as u64).all(|at| settled(&pmwcas, at) == 100));
}

#[test]
fn a_thread_borrows_the_descriptors_of_others() {
    const THREADS: usize = 4;
    let pmwcas = in_memory::<Process>(1);
    let here = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 1..THREADS {
            scope.spawn(|| {
                let _guard = pmwcas.pool().pin().unwrap();
                here.wait();
                here.wait();
                // The borrowed descriptors are free again.
                let guard = pmwcas.pool().pin().unwrap();
                for _ in 0..1000 {
                    pmwcas.allocate(&guard).unwrap().discard();
                }
            });
        }
        let guard = pmwcas.pool().pin().unwrap();
        here.wait();
        let mut held: Vec<_> =
            (0..THREADS * OWN).map(|_| pmwcas.allocate(&guard).unwrap()).collect();
        assert!(matches!(pmwcas.allocate(&guard), Err(Error::DescriptorsExhausted)));
        for (at, operation) in held.iter_mut().enumerate() {
            operation.add_word(word(at as u64), 0, 1).unwrap();
        }
        assert!(held.into_iter().all(|operation| operation.execute()));
        assert!((0..(THREADS * OWN) as u64).all(|at| raw(&pmwcas, at) == 1));
        here.wait();
    });
}
