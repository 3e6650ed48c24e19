//! The pages of a store, with right checksums.

use std::sync::{Arc, OnceLock};

use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;
use pando_index::{KeyRange, Order};
use pando_lss::{Group, MAX_PARTS, PageStore, PageStoreOptions};
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

/// Each edit changes a byte of a part of a page, cuts the part, puts a part of another page in its
/// place, or adds that as a delta. Then the store is opened: an error, or a store whose operations
/// end, with an answer or an error.
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
        let parts_of = |page| pages.read(page).expect("undamaged").unwrap_or_default();
        let mut parts = parts_of(page);
        let count = parts.len();
        let part = usize::from(how >> 4) % count.max(1);
        let Some(bytes) = parts.get_mut(part) else { continue };
        let at = at % bytes.len().max(1);
        let other = || {
            let mut parts = parts_of(numbers[usize::from(value) % numbers.len()]);
            parts.pop().unwrap_or_default()
        };
        match how % 8 {
            0 => bytes.truncate(at),
            1 => bytes.push(value),
            2 => *bytes = other(),
            3 if !bytes.is_empty() => bytes[at] ^= 1 << (value % 8),
            4 if count < MAX_PARTS => parts.push(other()),
            _ if !bytes.is_empty() => bytes[at] = value,
            _ => {}
        }
        let mut parts = parts.into_iter();
        let group = Group::new().base(page, parts.next().unwrap_or_default());
        let group = parts.fold(group, |group, delta| group.delta(page, delta));
        pages.append(group).expect("there is room");
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
        // The pages of these records have a delta, and some two.
        for number in (0..KEYS).step_by(20).chain([20, 60]) {
            store.records().upsert(&number.to_be_bytes(), &[number as u8; 20]).expect("writes");
            if number % 40 != 0 {
                store.records().remove(&(number + 1).to_be_bytes()).expect("removes");
            }
            store.sync().expect("syncs");
        }
        directory
    })
}
