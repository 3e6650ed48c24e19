//! Tests of the store through its interface. A crash is an intent that is not executed, or a store
//! that is opened again.

mod counts;
mod crashes;
mod disk;
mod full;
mod key_counts;
mod keys;
mod limits;
mod log;
#[path = "../../../server/tests/common/mounted.rs"]
mod mounted;
mod pieces;
mod snapshots;
mod sweeps;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pando::{Order, PoolOptions};

use crate::failure::{Failure, Result};
use crate::layout::{self, CollectionId, Content, Count, Element, Head, Kind, Section};
use crate::memory::{EvictionPolicy, MemoryLimit};
use crate::own_keys;
use crate::store::{Store, StoreOptions};
use crate::stripes::Access;
use crate::transaction::Transaction;

const NO_POOL: Option<&Path> = None;

/// Lets the next `granted` writes of a store succeed, and the next `refused` ones fail.
pub(super) fn refuse(store: &Store, granted: u64, refused: u64) {
    store.refusals.set(granted, refused);
}

fn options() -> StoreOptions {
    StoreOptions { pool: PoolOptions::new().max_bytes(256 << 20), ..StoreOptions::default() }
}

/// Options of a store in the pool `path`, maybe with a log beside it.
fn options_at(path: &Path, has_log: bool) -> StoreOptions {
    let StoreOptions { pool, .. } = options();
    let pool = if has_log { pool.log(path.with_extension("log")) } else { pool };
    StoreOptions { pool, ..options() }
}

pub(super) fn volatile() -> Store {
    Store::open(NO_POOL, &options()).expect("a store")
}

/// Executes and commits a transaction on `keys`.
fn write<Answer>(
    store: &Store,
    keys: &[&[u8]],
    change: impl FnOnce(&mut Transaction<'_>) -> Answer,
) -> Answer {
    let wanted = keys.iter().map(|key| Store::stripe_of_key(key)).collect();
    let held = store.lock(wanted, Access::Exclusive).expect("locks");
    let mut transaction = store.begin(held, store.clock().now_ms());
    let answer = change(&mut transaction);
    transaction.commit().expect("commits");
    answer
}

pub(crate) fn set(store: &Store, database: u8, key: &[u8], value: &[u8], expires_at: Option<u64>) {
    write(store, &[key], |transaction| {
        let head = Head { expires_at, ..Head::string(value) };
        transaction.put_head(transaction.space(database), key, &head).expect("puts");
    });
}

pub(crate) fn get(store: &Store, database: u8, key: &[u8]) -> Option<Vec<u8>> {
    let wanted = [Store::stripe_of_key(key)].into_iter().collect();
    let held = store.lock(wanted, Access::Shared).expect("locks");
    let transaction = store.begin(held, store.clock().now_ms());
    let copied = |head: Option<Head<'_>>| match head?.content {
        Content::String(bytes) => Some(Ok(bytes.to_vec())),
        Content::Long(long) => Some(Err(long)),
        Content::Collection(..) => None,
    };
    let found = transaction.head(transaction.space(database), key, copied).expect("reads")?;
    Some(found.unwrap_or_else(|long| transaction.gather(long).expect("reads")))
}

/// Puts a hash with the fields 0 to `count`.
pub(crate) fn put_hash(store: &Store, key: &[u8], count: u64) {
    let id = store.new_id().expect("an id");
    write(store, &[key], |transaction| {
        for field in 0..count {
            transaction.put_element(id, Element::Field(&field.to_le_bytes()), b"value");
        }
        let content = Content::Collection(Kind::Hash, id, Count::Known(count));
        let head = Head { expires_at: None, memcached: None, content };
        transaction.put_head(transaction.space(0), key, &head).expect("puts");
    });
}

/// The number of fields of a hash.
pub(crate) fn fields(store: &Store, key: &[u8]) -> Option<u64> {
    let held = store.lock([Store::stripe_of_key(key)].into_iter().collect(), Access::Shared);
    let transaction = store.begin(held.expect("locks"), store.clock().now_ms());
    let head = transaction.head(transaction.space(0), key, |head| {
        head.map(|head| match head.content {
            Content::Collection(kind, id, count) => (kind, id, count),
            Content::String(_) | Content::Long(_) => panic!("it is a string"),
        })
    });
    let (kind, id, count) = head.expect("reads")?;
    let space = transaction.space(0);
    let count = transaction.count_of(space, key, (kind, id, count)).expect("counts");
    let mut found = 0;
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    let visit = |_: Element<'_>, _: &[u8]| {
        found += 1;
        std::ops::ControlFlow::Continue(())
    };
    transaction.scan_elements(id, Section::Fields, all, Order::Ascending, visit).expect("scans");
    assert_eq!(found, count, "the head counts its elements");
    Some(count)
}

pub(super) fn records(store: &Store) -> usize {
    store.map.len().expect("counts") as usize
}

fn sweep_all(store: &Store) {
    while store.sweep_expired(10).expect("sweeps").is_more {}
    while store.sweep_garbage(10).expect("sweeps") {}
}

/// A transaction with every kind of write: a new key, a replaced key with an expiry, a removed key,
/// a renamed key, a collection that grows and a dropped one. `bytes` is the length of the new
/// element's value.
const OF_ALL_KINDS: [&[u8]; 7] =
    [b"new", b"replaced", b"gone", b"from", b"to", b"hash", b"dropped"];

fn write_all_kinds(store: &Store, bytes: usize) {
    for key in [&b"replaced"[..], b"gone", b"from"] {
        set(store, 0, key, b"old", Some(store.clock().now_ms() + 1_000_000));
    }
    put_hash(store, b"hash", 3);
    put_hash(store, b"dropped", 3);
    let hash = collection_of(store, b"hash");
    write(store, &OF_ALL_KINDS, |transaction| {
        let space = transaction.space(0);
        let mut put = |key: &[u8], head: &Head<'_>| {
            transaction.put_head(space, key, head).expect("puts");
        };
        put(b"new", &Head::string(b"new"));
        put(b"replaced", &Head::string(b"replaced"));
        let content = Content::Collection(Kind::Hash, hash, Count::Known(4));
        put(b"hash", &Head { expires_at: None, memcached: None, content });
        transaction.put_element(hash, Element::Field(&3u64.to_le_bytes()), &vec![7; bytes]);
        transaction.move_head((space, b"from"), (space, b"to")).expect("moves");
        assert!(transaction.remove_head(space, b"gone").expect("removes"));
        assert!(transaction.remove_head(space, b"dropped").expect("removes"));
    });
}

/// Checks that all of it has happened, and removes it.
fn assert_all_kinds_happened(store: &Store, bytes: usize, records_before: usize) {
    assert_eq!(get(store, 0, b"new").as_deref(), Some(&b"new"[..]));
    let element =
        layout::element_key(collection_of(store, b"hash"), Element::Field(&3u64.to_le_bytes()));
    assert!(store.map.get(&element).expect("reads") == Some(vec![7; bytes]));
    assert_eq!(get(store, 0, b"replaced").as_deref(), Some(&b"replaced"[..]));
    assert_eq!(get(store, 0, b"to").as_deref(), Some(&b"old"[..]));
    for key in [&b"gone"[..], b"from", b"dropped"] {
        assert_eq!(get(store, 0, key), None);
    }
    assert_eq!(fields(store, b"hash"), Some(4));
    write(store, &OF_ALL_KINDS, |transaction| {
        for key in OF_ALL_KINDS {
            transaction.remove_head(transaction.space(0), key).expect("removes");
        }
    });
    sweep_all(store);
    store.keep_intent_reserve();
    // Expiry entries without a matching head may be left; the sweep removes them later.
    let late = store.map.prefix(own_keys::EXPIRIES).count();
    assert!(late <= 3, "{late}");
    assert_eq!(records(store), records_before + late);
}

fn collection_of(store: &Store, key: &[u8]) -> CollectionId {
    let held = store.lock([Store::stripe_of_key(key)].into_iter().collect(), Access::Shared);
    let transaction = store.begin(held.expect("locks"), store.clock().now_ms());
    let id = |head: Option<Head<'_>>| head?.content.id();
    transaction.head(transaction.space(0), key, id).expect("reads").expect("a collection")
}
