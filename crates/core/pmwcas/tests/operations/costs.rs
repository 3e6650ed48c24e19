//! The costs of an uncontended operation, by the counting domain.

use pando_pmem::counting::{Counting, Counts, measure};
use pando_pmem::testing::{CutShort, kill_after, run_until_stopped};
use pando_pmwcas::Algorithm;

use super::common::{change, in_memory, read, word};

/// Words far enough apart that each lies in a line of its own.
fn apart(words: u64, expected: u64, new: u64) -> Vec<(u64, u64, u64)> {
    (0..words).map(|at| (at * 8, expected, new)).collect()
}

/// The costs of the second operation, which also cleans up the first.
fn cost(words: u64) -> Counts {
    let pmwcas = in_memory::<Counting>(1);
    assert!(change(&pmwcas, &apart(words, 0, 1)));
    let (succeeded, counts) = measure(|| change(&pmwcas, &apart(words, 1, 2)));
    assert!(succeeded);
    counts
}

#[test]
fn swaps_flushes_and_fences_of_an_operation() {
    for words in 1..=4 {
        let counts = cost(words);
        let found = (counts.swaps, counts.flushes, counts.fences);
        let descriptor_lines = if words > 2 { 2 } else { 1 };
        let expected = match super::ALGORITHM {
            // A claim, an install and a replacement for each word, and the decision.
            Algorithm::Direct | Algorithm::Transactional => (2 + 2 * words, descriptor_lines + 2 * words + 1, 2),
            // Two swaps for each install, the clearing of dirty bits, a fence for the final values.
            Algorithm::Rdcss => (3 + 4 * words, descriptor_lines + 2 * words + 1, 4),
        };
        assert_eq!(found, expected, "{words} words");
    }
}

#[test]
fn an_operation_that_cannot_match_writes_no_line_back() {
    if super::ALGORITHM == Algorithm::Rdcss {
        return;
    }
    let pmwcas = in_memory::<Counting>(1);
    assert!(change(&pmwcas, &apart(4, 0, 1)));
    let (succeeded, counts) = measure(|| change(&pmwcas, &[(0, 1, 2), (8, 7, 8)]));
    assert!(!succeeded);
    assert_eq!((counts.flushes, counts.fences), (0, 0));
}

/// Wherever an operation has stopped, a reader of its words finishes without a write, unless the
/// operation is decided.
#[test]
fn a_reader_of_an_undecided_operation_writes_nothing() {
    if super::ALGORITHM == Algorithm::Rdcss {
        return;
    }
    let mut undecided = 0;
    for writes in 0.. {
        let pmwcas = in_memory::<CutShort>(1);
        let victim = std::sync::Arc::clone(&pmwcas);
        let done = run_until_stopped(writes, move || assert!(change(&victim, &apart(4, 0, 1))));
        if done {
            break;
        }
        let guard = pmwcas.pool().pin().unwrap();
        let seen = kill_after(0, || pmwcas.read(&guard, word(0)));
        drop(guard);
        match seen {
            Some(value) => {
                assert_eq!(value, read(&pmwcas, 0));
                undecided += u64::from(value == 0);
            }
            // Decided: the reader had to store the new value.
            None => assert_eq!(read(&pmwcas, 0), 1),
        }
    }
    assert!(undecided > 6, "{undecided}");
}
