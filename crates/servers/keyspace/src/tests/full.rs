//! Full pools and full file systems: writes are refused, and succeed once there is room.

use super::mounted::Mounted;
use super::*;

const ROOM_BYTES: u64 = 16 << 20;

/// Executes a transaction on a key that needs memory; returns whether it succeeded.
fn try_write(
    store: &Store,
    key: &[u8],
    change: impl FnOnce(&mut Transaction<'_>) -> Result<()>,
) -> bool {
    if !store.make_room().expect("looks") {
        return false;
    }
    let held = store.lock([Store::stripe_of_key(key)].into_iter().collect(), Access::Exclusive);
    let mut transaction = store.begin(held.expect("locks"), store.clock().now_ms());
    change(&mut transaction).and_then(|()| transaction.commit()).is_ok()
}

fn try_set(store: &Store, key: &[u8], bytes: usize) -> bool {
    try_write(store, key, |transaction| {
        transaction.put_head(transaction.space(0), key, &Head::string(&vec![7; bytes]))
    })
}

/// A hash of one field: two writes, and so an intent.
fn try_hash(store: &Store, key: &[u8], bytes: usize) -> bool {
    let Ok(id) = store.new_id() else { return false };
    try_write(store, key, |transaction| {
        transaction.put_element(id, Element::Field(b"field"), &vec![7; bytes]);
        let content = Content::Collection(Kind::Hash, id, Count::Known(1));
        transaction.put_head(
            transaction.space(0),
            key,
            &Head { expires_at: None, memcached: None, content },
        )
    })
}

fn intent_reserve(store: &Store) -> usize {
    store.map.prefix(own_keys::RESERVES).count()
}

/// Does what the server does ten times a second, until a write succeeds.
fn goes_on_soon(store: &Store) -> bool {
    (0..2000).any(|_| {
        while store.sweep_garbage(1000).expect("sweeps") {}
        store.keep_intent_reserve();
        store.measure();
        try_set(store, b"after", 100) || {
            std::thread::sleep(Duration::from_millis(1));
            false
        }
    })
}

/// Commits a transaction whose writes find no room.
fn use_up_intent_reserve(store: &Store, keys: u32) {
    for key in (0..keys).map(u32::to_be_bytes) {
        store.refusals.set(0, 2);
        if try_hash(store, b"hash", 10) {
            assert!(store.has_pending_writes());
            assert_eq!(fields(store, b"hash"), Some(1));
            return;
        }
        // There was no room to commit it.
        store.refusals.set(0, 0);
        write(store, &[&key], |transaction| {
            transaction.remove_head(transaction.space(0), &key).expect("removes");
        });
    }
    panic!("no transaction is decided in an empty store");
}

/// Fills a store until writes are refused, uses up the reserve, and removes all keys or a part.
fn fill_and_empty(store: &Store) {
    let mut random = fastrand::Rng::with_seed(11);
    let kept = intent_reserve(store);
    for round in 0..4 {
        let bytes = [100, 3000, 300][round % 3];
        let mut keys = 0u32;
        let mut refused = 0;
        while refused < 100 {
            match try_set(store, &keys.to_be_bytes(), random.usize(1..2 * bytes)) {
                true => keys += 1,
                false => refused += 1,
            }
        }
        assert!(keys > 100, "round {round}: {keys} keys");
        use_up_intent_reserve(store, keys);
        assert!(intent_reserve(store) < kept, "round {round}");
        if round % 2 == 0 {
            let held = store.stripes.lock_all(Access::Exclusive);
            let mut transaction = store.begin(held, store.clock().now_ms());
            transaction.flush(0..1).expect("flushes");
            transaction.commit().expect("commits");
        } else {
            for number in (0..keys).filter(|number| number % 8 != 0) {
                let key = number.to_be_bytes();
                write(store, &[&key], |transaction| {
                    transaction.remove_head(transaction.space(0), &key).expect("removes");
                });
            }
        }
        assert!(goes_on_soon(store), "round {round}: no write is made any more");
    }
}

#[test]
fn a_file_system_that_was_full_takes_writes_once_there_is_room() {
    let Some(mounted) = Mounted::tmpfs(ROOM_BYTES) else { return };
    let path = mounted.path().join("pool");
    let options = StoreOptions { pool: PoolOptions::new(), ..StoreOptions::default() };
    fill_and_empty(&Store::open(Some(&path), &options).expect("a store"));
}

#[test]
fn a_pool_that_was_full_takes_writes_once_there_is_room() {
    let pool = PoolOptions::new().max_bytes(ROOM_BYTES);
    fill_and_empty(
        &Store::open(NO_POOL, &StoreOptions { pool, ..StoreOptions::default() }).expect("a store"),
    );
}

/// Sets keys of `bytes` bytes from `first` on, until three in a row are refused; returns how many
/// were set.
fn fill(store: &Store, first: u32, bytes: usize) -> u32 {
    let (mut set, mut refused) = (0, 0);
    while refused < 3 {
        if set % 64 == 0 || refused > 0 {
            while store.sweep_garbage(1000).expect("sweeps") {}
            store.measure();
        }
        match try_set(store, &(first + set).to_be_bytes(), bytes) {
            true => (set, refused) = (set + 1, 0),
            false => refused += 1,
        }
    }
    set
}

/// The number of new keys that fit per hundred deleted ones, if every eighth key of a full store is
/// deleted.
fn refilled(pool_bytes: u64, limit_bytes: u64, bytes: usize) -> u32 {
    let pool = PoolOptions::new().max_bytes(pool_bytes);
    let store =
        Store::open(NO_POOL, &StoreOptions { pool, ..StoreOptions::default() }).expect("a store");
    let policy = EvictionPolicy::NoEviction;
    store.limit_memory(MemoryLimit { bytes: limit_bytes, policy, samples: 5 });
    let keys = fill(&store, 0, bytes);
    for number in (0..keys).step_by(8) {
        let key = number.to_be_bytes();
        write(&store, &[&key], |transaction| {
            assert!(transaction.remove_head(transaction.space(0), &key).expect("removes"));
        });
    }
    let new = fill(&store, keys, bytes);
    println!("{new} of {} values of {bytes} bytes", keys.div_ceil(8));
    new * 100 / keys.div_ceil(8)
}

/// Deleted records leave gaps in leaves. The pool's figure shows them late, or never if they are
/// small.
#[test]
fn what_is_deleted_at_the_limit_makes_room_for_new_keys() {
    for (bytes, least) in [(100, 50), (1000, 80), (3000, 80)] {
        let percent = refilled(4 * ROOM_BYTES, ROOM_BYTES / 2, bytes);
        assert!(percent >= least, "{percent} % of the deleted bytes, of {bytes} bytes");
    }
}

/// Values with blocks of their own. Smaller values are in leaves, which a full pool cannot copy.
#[test]
fn what_is_deleted_in_a_full_pool_makes_room_for_new_keys() {
    let percent = refilled(ROOM_BYTES, ROOM_BYTES / 16 * 15, 3000);
    assert!(percent >= 80, "{percent} % of the deleted bytes");
}
