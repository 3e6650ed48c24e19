//! The pages of a store, with right checksums.

use std::sync::{Arc, OnceLock};

use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;
use pando_index::{KeyRange, Order};
use pando_lss::{Group, PageStore, PageStoreOptions};
use pando_store::{DataComponent, StoreOptions, TreeOptions};

use crate::input::Input;

/// Most edits of pages.
const MAX_EDITS: usize = 16;
const KEYS: u64 = 120;

fn options() -> StoreOptions {
    let pages = PageStoreOptions { segment_bytes: 4 << 20, ..PageStoreOptions::default() };
    let tree = TreeOptions {
        leaf_bytes: 256,
        inner_bytes: 256,
        merge_bytes: 112,
        ..TreeOptions::default()
    };
    StoreOptions { memory_bytes: 4 << 20, pages, tree, ..StoreOptions::default() }
}

/// Each edit changes a byte of a page, cuts the page, or puts another one in its place. Then the
/// store is opened: an error, or a store whose operations end, with an answer or an error.
pub fn store(data: &[u8]) {
    let mut input = Input::new(data);
    let image = directory().cut_power(Kept::All, &mut Random::new(1));
    let open = || PageStore::open(Arc::new(image.clone()), options().pages).expect("undamaged").0;
    let pages = open();
    let numbers: Vec<u32> = pages.pids().collect();
    for _ in 0..MAX_EDITS {
        if input.is_empty() {
            break;
        }
        let how = input.byte();
        let page = numbers[usize::from(input.byte()) % numbers.len()];
        let (at, value) = (input.number(2) as usize, input.byte());
        let mut bytes = pages.read(page).expect("undamaged").unwrap_or_default().concat();
        let at = at % bytes.len().max(1);
        match how % 8 {
            0 => bytes.truncate(at),
            1 => bytes.push(value),
            2 => {
                let other = numbers[usize::from(value) % numbers.len()];
                bytes = pages.read(other).expect("undamaged").unwrap_or_default().concat();
            }
            3 if !bytes.is_empty() => bytes[at] ^= 1 << (value % 8),
            _ if !bytes.is_empty() => bytes[at] = value,
            _ => {}
        }
        pages.append(Group::new().base(page, bytes)).expect("there is room");
    }
    pages.sync().expect("there is room");
    drop(pages);
    let Ok(store) = DataComponent::open(Arc::new(image.clone()), &options()) else { return };
    let records = store.records();
    for number in 0..KEYS {
        let _ = records.get(&number.to_be_bytes());
    }
    for order in [Order::Ascending, Order::Descending] {
        if let Ok(mut cursor) = records.scan(KeyRange::all(), order) {
            while let Ok(Some(_)) = cursor.next() {}
        }
    }
    for number in 0..KEYS {
        let key = (number * 3 % KEYS).to_be_bytes();
        let _ = match number % 2 {
            0 => records.upsert(&key, &[7; 30]).map(drop),
            _ => records.remove(&key).map(drop),
        };
    }
    let _ = (store.check(), store.checkpoint(&[]));
}

/// A store of a few levels.
fn directory() -> &'static Simulated {
    static DIRECTORY: OnceLock<Simulated> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let directory = Simulated::new();
        let store = DataComponent::open(Arc::new(directory.clone()), &options()).expect("opens");
        for number in 0..KEYS {
            store.records().insert(&number.to_be_bytes(), &[1; 20]).expect("inserts");
        }
        store.sync().expect("syncs");
        directory
    })
}
