//! The sweep: its parts, and when it rests.

use pando::KeyRange;

use super::*;

/// Flushes a database.
pub(super) fn flush(store: &Store, database: u8) {
    let all = store.stripes.lock_all(Access::Exclusive);
    let mut transaction = store.begin(all, store.clock().now_ms());
    transaction.flush(database..=database).expect("flushes");
    transaction.commit().expect("commits");
}

/// The number of heads in a space.
fn heads(store: &Store, space: u8) -> usize {
    let (low, high) = (layout::head_prefix(space, 0), layout::head_prefix(space + 1, 0));
    store.map.range(KeyRange::between(&low, &high)).count()
}

/// A store with 50 heads in a space of a flushed database.
fn with_flushed_heads() -> (Store, u8) {
    let store = volatile();
    let space = store.space(1);
    (0..50u32).for_each(|key| set(&store, 1, &key.to_le_bytes(), b"value", None));
    flush(&store, 1);
    assert_eq!(heads(&store, space), 50);
    (store, space)
}

#[test]
fn dropped_collections_do_not_keep_flushed_keys_from_their_removal() {
    let (store, space) = with_flushed_heads();
    for number in 0..20 {
        let name = format!("hash {number}");
        put_hash(&store, name.as_bytes(), 10);
        set(&store, 0, name.as_bytes(), b"", None);
    }
    assert!(store.sweep_garbage(20).expect("sweeps"));
    assert!(heads(&store, space) < 50);
    assert!(store.map.prefix(own_keys::GARBAGES).count() < 20);
    sweep_all(&store);
    assert_eq!((heads(&store, space), store.map.prefix(own_keys::GARBAGES).count()), (0, 0));
}

#[test]
fn an_error_of_one_part_of_the_sweep_does_not_stop_the_others() {
    let (store, space) = with_flushed_heads();
    let now_ms = store.clock().now_ms();
    (0..5u32).for_each(|key| set(&store, 0, &key.to_le_bytes(), b"value", Some(now_ms)));
    // As many as there are expired keys.
    refuse(&store, 0, 5);
    let sweep = store.sweep(10);
    assert!(sweep.failure.is_some_and(|failure| failure.is_no_memory()));
    assert!(sweep.is_more && heads(&store, space) < 50);
    let mut expired = 0;
    loop {
        let sweep = store.sweep(10);
        assert!(sweep.failure.is_none());
        expired += sweep.expired_keys;
        if !sweep.is_more {
            break;
        }
    }
    assert_eq!((heads(&store, space), expired), (0, 5));
}

#[test]
fn the_sweep_rests_when_the_server_ends() {
    let (store, space) = with_flushed_heads();
    let stopped = store.sweep_space(space, 10, || true).expect("sweeps");
    assert_eq!(stopped, (0, false));
    store.end_long_work();
    let sweep = store.sweep(10);
    assert!(sweep.failure.is_none() && !sweep.is_more);
    assert_eq!(heads(&store, space), 50);
}
