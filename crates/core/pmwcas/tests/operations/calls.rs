//! Which arguments the calls accept and refuse, and what they return, with one thread.

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Process};
use pando_pmwcas::{CONTROL_BITS, DIRTY, Error, MAX_VALUE, MAX_WORDS, Policy};

use super::common::{change, in_each_domain, in_memory, read, settled, word};

fn succeeds_and_fails_as_a_whole<D: Domain>() {
    let pmwcas = in_memory::<D>(1);
    for count in 1..=MAX_WORDS as u64 {
        let words =
            |from: u64, to: u64| (0..count).map(|index| (index, from, to)).collect::<Vec<_>>();
        let base = read(&pmwcas, 0);
        assert!((0..count).all(|index| base == 0 || read(&pmwcas, index) == base));
        assert!(change(&pmwcas, &words(base, count * 10)));
        for wrong in 0..count as usize {
            let mut one_wrong = words(count * 10, 7);
            one_wrong[wrong].1 += 1;
            assert!(!change(&pmwcas, &one_wrong), "word {wrong} of {count} did not match");
            assert!((0..count).all(|index| settled(&pmwcas, index) == count * 10));
        }
        assert!(change(&pmwcas, &words(count * 10, 0)));
    }
}

#[test]
fn an_operation_succeeds_and_fails_as_a_whole() {
    in_each_domain!(succeeds_and_fails_as_a_whole);
}

fn plain_words_stay<D: Domain>() {
    let pmwcas = in_memory::<D>(1);
    assert!(change(&pmwcas, &[(0, 0, MAX_VALUE), (1, 0, 5)]));
    assert!(change(&pmwcas, &[(0, MAX_VALUE, MAX_VALUE), (1, 5, 6)]));
    assert!(!change(&pmwcas, &[(0, 1, 1), (1, 6, 7)]));
    // No control bit is left.
    assert_eq!((settled(&pmwcas, 0), settled(&pmwcas, 1)), (MAX_VALUE, 6));
}

#[test]
fn a_word_may_only_be_compared_and_no_control_bit_stays() {
    in_each_domain!(plain_words_stay);
}

#[test]
fn an_operation_without_words_succeeds() {
    assert!(change(&in_memory::<Process>(1), &[]));
}

fn single_word<D: Domain>() {
    let pmwcas = in_memory::<D>(1);
    let guard = pmwcas.pool().pin().unwrap();
    assert_eq!(pmwcas.compare_exchange(&guard, word(0), 0, 5), Ok(()));
    assert_eq!(pmwcas.compare_exchange(&guard, word(0), 4, 6), Err(5));
    assert_eq!(pmwcas.compare_exchange(&guard, word(0), 5, MAX_VALUE), Ok(()));
    assert_eq!(settled(&pmwcas, 0), MAX_VALUE);
    assert_eq!(pmwcas.compare_exchange_undurable(&guard, word(0), MAX_VALUE, 3), Ok(()));
    assert_eq!(pmwcas.compare_exchange_undurable(&guard, word(0), 4, 3), Err(3));
    assert!(change(&pmwcas, &[(0, 3, 4)]));
}

#[test]
fn a_single_word_is_compared_and_exchanged() {
    in_each_domain!(single_word);
}

/// A swap that leaves the dirty bit: a read clears it; a swap or an operation ignores it.
fn dirty_bit_stays<D: Domain>() {
    let pmwcas = in_memory::<D>(1);
    let guard = pmwcas.pool().pin().unwrap();
    let dirty = if D::needs_write_back() { DIRTY } else { 0 };
    let raw = || pmwcas.pool().word(word(0)).load(Ordering::Acquire);
    assert_eq!(pmwcas.compare_exchange_dirty(&guard, word(0), 0, 5), Ok(()));
    assert_eq!(raw(), 5 | dirty);
    // From a dirty value, and from one whose bit a read has cleared.
    assert_eq!(pmwcas.compare_exchange_dirty(&guard, word(0), 5, 6), Ok(()));
    assert_eq!((pmwcas.read(&guard, word(0)), raw()), (6, 6));
    assert_eq!(pmwcas.compare_exchange_dirty(&guard, word(0), 6, 7), Ok(()));
    assert_eq!(pmwcas.compare_exchange_dirty(&guard, word(0), 6, 8), Err(7));
    pmwcas.clear_dirty(word(0), 6);
    assert_eq!(raw(), 7 | dirty);
    pmwcas.clear_dirty(word(0), 7);
    assert_eq!(raw(), 7);
    assert_eq!(pmwcas.compare_exchange_dirty(&guard, word(0), 7, 8), Ok(()));
    assert!(change(&pmwcas, &[(0, 8, 9)]));
    assert_eq!(settled(&pmwcas, 0), 9);
}

#[test]
fn a_dirty_bit_stays_until_someone_wants_the_word_without() {
    in_each_domain!(dirty_bit_stays);
}

#[test]
fn an_address_may_stand_once() {
    let pmwcas = in_memory::<Process>(1);
    let guard = pmwcas.pool().pin().unwrap();
    let mut operation = pmwcas.allocate(&guard).unwrap();
    for index in [5, 1, 9, 3] {
        operation.add_word(word(index), 0, 1).unwrap();
    }
    for index in [5, 1, 9, 3] {
        let again = operation.add_word(word(index), 0, 2).unwrap_err();
        assert!(matches!(again, Error::DuplicateAddress { off } if off == word(index)));
        let again = operation.reserve_entry(word(index), 0, Policy::None).unwrap_err();
        assert!(matches!(again, Error::DuplicateAddress { .. }), "{again}");
    }
    assert!(operation.execute());
    assert!([5, 1, 9, 3].iter().all(|&index| settled(&pmwcas, index) == 1));
}

#[test]
fn too_many_words_are_refused_and_the_others_stay() {
    let pmwcas = in_memory::<Process>(1);
    let guard = pmwcas.pool().pin().unwrap();
    let mut operation = pmwcas.allocate(&guard).unwrap();
    for index in (0..MAX_WORDS as u64).rev() {
        operation.add_word(word(index), 0, index + 1).unwrap();
    }
    assert!(matches!(operation.add_word(word(50), 0, 1), Err(Error::TooManyWords)));
    assert!(matches!(operation.own_block(0, Policy::None), Err(Error::TooManyWords)));
    assert!(operation.execute());
    for index in 0..MAX_WORDS as u64 {
        assert_eq!(settled(&pmwcas, index), index + 1, "the order of words mixed up their values");
    }
    assert_eq!(settled(&pmwcas, 50), 0);
}

#[test]
fn values_that_need_control_bits_are_refused() {
    let pmwcas = in_memory::<Process>(1);
    let guard = pmwcas.pool().pin().unwrap();
    let mut operation = pmwcas.allocate(&guard).unwrap();
    for bit in (0..64).map(|bit| 1_u64 << bit).filter(|bit| bit & CONTROL_BITS != 0) {
        for value in [bit, bit | 5, u64::MAX] {
            let refused = [
                operation.add_word(word(0), value, 1).unwrap_err(),
                operation.add_word(word(0), 1, value).unwrap_err(),
                operation.reserve_entry(word(0), value, Policy::None).unwrap_err(),
                operation.own_block(value, Policy::None).unwrap_err(),
            ];
            for error in refused {
                assert!(matches!(error, Error::ControlBits { value: found } if found == value));
            }
        }
    }
    assert!(operation.execute());
    assert_eq!(settled(&pmwcas, 0), 0);
}

#[test]
fn addresses_that_are_no_words_are_refused() {
    let pmwcas = in_memory::<Process>(1);
    let guard = pmwcas.pool().pin().unwrap();
    let mut operation = pmwcas.allocate(&guard).unwrap();
    for off in [0, 1, word(0) + 4, u64::MAX] {
        assert!(matches!(operation.add_word(off, 0, 1), Err(Error::NotAWord { .. })), "{off}");
        let error = operation.reserve_entry(off, 0, Policy::None).unwrap_err();
        assert!(matches!(error, Error::NotAWord { .. }), "{off}");
    }
}

#[test]
fn a_discarded_operation_changes_nothing_and_gives_its_descriptor_back() {
    let pmwcas = in_memory::<Process>(1);
    let guard = pmwcas.pool().pin().unwrap();
    for _ in 0..10_000 {
        let mut operation = pmwcas.allocate(&guard).unwrap();
        operation.add_word(word(0), 0, 9).unwrap();
        operation.discard();
    }
    assert_eq!(settled(&pmwcas, 0), 0);
}

#[test]
fn operations_are_begun_once_in_each_opening_of_a_pool() {
    let pmwcas = in_memory::<Process>(1);
    assert!(change(&pmwcas, &[(0, 0, 1)]));
    let pool = std::sync::Arc::into_inner(pmwcas).unwrap().into_pool();
    let again = pando_pmwcas::Pmwcas::open(pool);
    assert!(matches!(again, Err(Error::BegunBefore)));
}
