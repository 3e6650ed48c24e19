//! Which blocks an operation frees, by policy and by outcome.

use pando_pmem::{Domain, Process};
use pando_pmwcas::{Pmwcas, Policy};

use super::common::{active, give, holds, in_each_domain, in_memory, raw, room, stamped, word};

const BYTES: u64 = 5000;

/// Changes one word from an old block to a new one, and a plain word that decides the outcome.
fn replace<D: Domain>(pmwcas: &Pmwcas<D>, policy: Policy, succeed: bool) -> (u64, u64) {
    let old = give(pmwcas, 0, BYTES, 1);
    let guard = pmwcas.pool().pin().unwrap();
    let mut operation = pmwcas.allocate(&guard).unwrap();
    let entry = operation.reserve_entry(word(0), old, policy).unwrap();
    operation.add_word(word(1), if succeed { 0 } else { 1 }, 0).unwrap();
    let new = operation.activate(entry, stamped(&guard, BYTES, 2));
    assert_eq!(operation.execute(), succeed);
    (old, new)
}

fn check<D: Domain>(policy: Policy, succeed: bool, old_stays: bool, new_stays: bool) {
    let pmwcas = in_memory::<D>(1);
    let pool = pmwcas.pool();
    let most = room(pool, BYTES);
    let (old, new) = replace(&pmwcas, policy, succeed);
    let label = format!("{policy:?} in {:?}, success {succeed}", D::default());
    assert_eq!(raw(&pmwcas, 0), if succeed { new } else { old }, "{label}");
    assert_eq!(pool.active_block(old).is_some(), old_stays, "{label}: the old block");
    assert_eq!(pool.active_block(new).is_some(), new_stays, "{label}: the new block");
    let stay = usize::from(old_stays) + usize::from(new_stays);
    assert_eq!(active(pool).len(), stay, "{label}");
    // Freed blocks can be allocated again, and blocks that stay cannot.
    assert_eq!(room(pool, BYTES), most - stay, "{label}");
    assert!(!old_stays || holds(pool, old, BYTES, 1), "{label}");
    assert!(!new_stays || holds(pool, new, BYTES, 2), "{label}");
}

fn policies<D: Domain>() {
    check::<D>(Policy::FreeOne, true, false, true);
    check::<D>(Policy::FreeOne, false, true, false);
    check::<D>(Policy::FreeNewOnFailure, true, true, true);
    check::<D>(Policy::FreeNewOnFailure, false, true, false);
    // After a failure, only the operation can free its new block.
    check::<D>(Policy::FreeOldOnSuccess, true, false, true);
    check::<D>(Policy::FreeOldOnSuccess, false, true, false);
    check::<D>(Policy::None, true, true, true);
    check::<D>(Policy::None, false, true, false);
}

#[test]
fn each_policy_frees_what_it_says_in_each_outcome() {
    in_each_domain!(policies);
}

#[test]
fn a_delete_frees_the_old_block_on_success_only() {
    let pmwcas = in_memory::<Process>(1);
    let old = give(&pmwcas, 0, BYTES, 1);
    let guard = pmwcas.pool().pin().unwrap();
    for (expected, succeeds) in [(1, false), (0, true)] {
        let mut operation = pmwcas.allocate(&guard).unwrap();
        operation.reserve_entry(word(0), old, Policy::FreeOldOnSuccess).unwrap();
        operation.add_word(word(1), expected, 0).unwrap();
        assert_eq!(operation.execute(), succeeds);
        assert_eq!(pmwcas.pool().active_block(old).is_none(), succeeds);
    }
    assert_eq!(raw(&pmwcas, 0), 0);
}

#[test]
fn owned_blocks_share_the_fate_of_the_operation() {
    for succeed in [false, true] {
        let pmwcas = in_memory::<Process>(1);
        let old = give(&pmwcas, 0, BYTES, 1);
        let guard = pmwcas.pool().pin().unwrap();
        let mut operation = pmwcas.allocate(&guard).unwrap();
        let both = operation.own_block(old, Policy::FreeOne).unwrap();
        let first = operation.own_block(0, Policy::FreeNewOnFailure).unwrap();
        let second = operation.own_block(0, Policy::FreeNewOnFailure).unwrap();
        // Words may be added after blocks; the descriptor has them first all the same.
        operation.add_word(word(1), u64::from(!succeed), 5).unwrap();
        let new: Vec<u64> = [both, first, second]
            .map(|entry| operation.activate(entry, stamped(&guard, BYTES, 2)))
            .into();
        assert_eq!(operation.execute(), succeed);
        let mut expected = if succeed { new } else { vec![old] };
        expected.sort_unstable();
        assert_eq!(active(pmwcas.pool()), expected);
        assert_eq!(raw(&pmwcas, 1), if succeed { 5 } else { 0 });
    }
}

/// A word may have a hint above the offset of its block; the policies must use the offset alone.
#[test]
fn a_hint_above_an_offset_does_not_hide_the_block() {
    let pmwcas = in_memory::<Process>(1);
    let most = room(pmwcas.pool(), BYTES);
    for (round, succeed) in [true, true, false, true, false].into_iter().enumerate() {
        let guard = pmwcas.pool().pin().unwrap();
        let mut operation = pmwcas.allocate(&guard).unwrap();
        let old = pmwcas.read(&guard, word(0));
        let entry = operation.reserve_entry(word(0), old, Policy::FreeOne).unwrap();
        operation.add_word(word(1), u64::from(!succeed), 0).unwrap();
        let new = operation.activate_with_hint(entry, stamped(&guard, BYTES, 2), 0x1FFF);
        assert_eq!(operation.execute(), succeed);
        let named = if succeed { new } else { old };
        assert_eq!(raw(&pmwcas, 0), named);
        assert!(named > 1 << 48, "no hint");
        assert_eq!(active(pmwcas.pool()), [named & 0xFFFF_FFFF_FFFF], "round {round}");
    }
    let guard = pmwcas.pool().pin().unwrap();
    let mut operation = pmwcas.allocate(&guard).unwrap();
    let entry = operation.reserve_entry(word(5), 0, Policy::FreeNewOnFailure).unwrap();
    operation.activate_with_hint(entry, stamped(&guard, BYTES, 2), 77);
    operation.discard();
    drop(guard);
    assert_eq!(room(pmwcas.pool(), BYTES), most - 1);
}

#[test]
fn blocks_of_discarded_operations_are_free_again() {
    let pmwcas = in_memory::<Process>(1);
    let most = room(pmwcas.pool(), BYTES);
    for _ in 0..2 * most {
        let guard = pmwcas.pool().pin().unwrap();
        let mut operation = pmwcas.allocate(&guard).unwrap();
        let entry = operation.reserve_entry(word(0), 0, Policy::FreeNewOnFailure).unwrap();
        let owned = operation.own_block(0, Policy::FreeOne).unwrap();
        operation.activate(entry, stamped(&guard, BYTES, 2));
        operation.activate(owned, stamped(&guard, BYTES, 2));
        operation.discard();
    }
    assert_eq!((active(pmwcas.pool()), room(pmwcas.pool(), BYTES)), (vec![], most));
}

/// An index frees one block twice, the second time when another thread has reserved it: the
/// reservation must stay valid.
#[test]
fn an_old_block_that_is_not_allocated_is_not_freed() {
    let pmwcas = in_memory::<Process>(1);
    let pool = pmwcas.pool();
    let most = room(pool, BYTES);
    let reserved = pool.pin().unwrap().reserve(BYTES).unwrap().into_logged();
    let guard = pool.pin().unwrap();
    let mut operation = pmwcas.allocate(&guard).unwrap();
    operation.own_block(reserved, Policy::FreeOldOnSuccess).unwrap();
    assert!(operation.execute());
    drop(guard);
    let mut taken = Vec::new();
    for _ in 0..8 {
        let guard = pool.pin().unwrap();
        guard.collect();
        taken.extend(std::iter::from_fn(|| Some(guard.reserve(BYTES).ok()?.into_logged())));
    }
    assert!(!taken.contains(&reserved), "a reserved block was allocated again");
    assert_eq!(taken.len(), most - 1);
}
