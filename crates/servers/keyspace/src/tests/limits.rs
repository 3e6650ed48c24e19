//! The memory limit.

use super::*;

fn limit(store: &Store, bytes: u64, policy: EvictionPolicy) {
    store.limit_memory(MemoryLimit { bytes, policy, samples: 5 });
}

/// Sets keys of a hundred bytes until the store has no room, or until there are `most` keys.
fn fill(store: &Store, most: u32) -> u32 {
    for number in 0..most {
        if number % 1000 == 0 {
            store.measure();
        }
        if !store.make_room().expect("looks") {
            return number;
        }
        set(store, 0, &number.to_be_bytes(), &[7; 100], None);
    }
    most
}

#[test]
fn without_a_policy_writes_are_refused_at_the_limit() {
    let store = volatile();
    let limit_bytes = store.pool().used_bytes() + (4 << 20);
    limit(&store, limit_bytes, EvictionPolicy::NoEviction);
    let kept = fill(&store, 1_000_000);
    assert!((10_000..60_000).contains(&kept), "{kept} keys of 100 bytes in 4 MiB");
    assert_eq!(store.take_evicted_keys(), 0);
    limit(&store, 0, EvictionPolicy::NoEviction);
    assert!(store.make_room().expect("looks"));
}

#[test]
fn keys_that_are_used_outlive_those_that_are_not() {
    let store = volatile();
    let limit_bytes = store.pool().used_bytes() + (4 << 20);
    limit(&store, limit_bytes, EvictionPolicy::AllKeysLru);
    let now_ms = store.clock().now_ms();
    // The first thousand keys are used long after all others.
    for number in 0u32..1000 {
        set(&store, 0, &number.to_be_bytes(), &[7; 100], None);
        store.memory.note_use(layout::hash_of(&number.to_be_bytes()), now_ms + 1_000_000);
    }
    for number in 1000u32..60_000 {
        if number % 1000 == 0 {
            store.measure();
        }
        assert!(store.make_room().expect("evicts"), "{number}");
        set(&store, 0, &number.to_be_bytes(), &[7; 100], None);
    }
    let left = |from: u32, to: u32| {
        (from..to).filter(|number| get(&store, 0, &number.to_be_bytes()).is_some()).count()
    };
    let (used, unused) = (left(0, 1000), left(1000, 10_000) / 9);
    let evicted = store.take_evicted_keys();
    assert!(evicted > 10_000, "{evicted} evicted");
    assert!(used > 900 && unused < 700, "{used} used and {unused} unused of 1,000 are left");
}

#[test]
fn what_expires_soonest_goes_first_and_what_does_not_stays() {
    let store = volatile();
    set(&store, 0, b"forever", b"value", None);
    let later = store.clock().now_ms() + 1_000_000;
    for number in 0u32..100 {
        set(&store, 0, &number.to_be_bytes(), b"value", Some(later - u64::from(number)));
    }
    // Below the used bytes: every key that may be evicted is evicted.
    limit(&store, 1, EvictionPolicy::VolatileTtl);
    assert!(store.make_room().expect("evicts"), "a hundred keys may go for one command");
    assert!(!store.make_room().expect("evicts"), "nothing is left that may go");
    assert_eq!(store.take_evicted_keys(), 100);
    assert!(get(&store, 0, b"forever").is_some());
}

#[test]
fn a_key_whose_removal_finds_no_room_is_passed_over() {
    let store = volatile();
    let later = store.clock().now_ms() + 1_000_000;
    for number in 0u64..3 {
        set(&store, 0, &number.to_be_bytes(), b"value", Some(later + number));
    }
    limit(&store, 1, EvictionPolicy::VolatileTtl);
    refuse(&store, 0, 1);
    assert!(!store.make_room().expect("evicts"), "nothing is left that may go");
    assert_eq!(store.take_evicted_keys(), 2);
    assert!(get(&store, 0, &0u64.to_be_bytes()).is_some());
    assert!(!store.make_room().expect("evicts"));
    assert_eq!(store.take_evicted_keys(), 1);
}
