//! Descriptors run out, are borrowed, and come back.

use std::sync::Barrier;

use pando_pmem::testing::CutShort;
use pando_pmem::{Domain, Process, Volatile};
use pando_pmwcas::{Error, Finalization};

use super::common::{in_memory, raw, settled, word};

const OWN: usize = 7;

#[test]
fn a_thread_without_descriptors_is_told_and_has_them_again_when_some_are_discarded() {
    all_of_ones_own::<Volatile>();
    // Here one of them waits, each time, for the write-back of what it did.
    all_of_ones_own::<CutShort<true>>();
}

fn all_of_ones_own<D: Domain>() {
    let pmwcas = in_memory::<D>(1, &[]);
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
    let pmwcas = in_memory::<Process>(1, &[]);
    let here = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 1..THREADS {
            scope.spawn(|| {
                let _guard = pmwcas.pool().pin().unwrap();
                here.wait();
                here.wait();
                // Those that were lent are back.
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

fn nothing(_: &Finalization<'_, '_, Process>) {}

/// Callbacks wait for the epoch, so behind a reader that stalls they use descriptors up: a clean
/// error, and they are back when the reader goes on.
#[test]
fn callbacks_behind_a_stalled_reader_exhaust_descriptors_cleanly() {
    let pmwcas = in_memory::<Process>(1, &[nothing]);
    let here = Barrier::new(2);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let _guard = pmwcas.pool().pin().unwrap();
            here.wait();
            here.wait();
        });
        here.wait();
        let mut done = 0;
        let error = loop {
            let guard = pmwcas.pool().pin().unwrap();
            match pmwcas.allocate_with_callback(&guard, 0) {
                Ok(mut operation) => {
                    operation.add_word(word(0), done, done + 1).unwrap();
                    assert!(operation.execute());
                    done += 1;
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::DescriptorsExhausted), "{error}");
        assert!(done >= OWN as u64 && raw(&pmwcas, 0) == done);
        here.wait();
        reader.join().unwrap();
        let back = (0..10).any(|_| {
            let guard = pmwcas.pool().pin().unwrap();
            pmwcas.allocate_with_callback(&guard, 0).is_ok()
        });
        assert!(back, "the descriptors never came back");
    });
}
