//! Eight threads insert, read, delete half and scan; then everything is checked.
//!
//! `PANDO_SOAK_RECORDS=10000000 cargo test --release -p pando-bztree --test tree soak:: --
//! --nocapture` is the long run; by default it is a short one.

use std::sync::atomic::{AtomicU64, Ordering};

use pando_tree::maps::Tree;

use crate::common::{Fixture, check};
use pando_bztree::{Numbers, Options};
use pando_index::{KeyRange, Order, RangeIndex};
use pando_pmem::Process;
use pando_pmem::layout::CHUNK_BYTES;

const THREADS: u64 = 8;

fn records() -> u64 {
    let asked = std::env::var("PANDO_SOAK_RECORDS").ok();
    asked.map_or(100_000, |text| text.parse().expect("PANDO_SOAK_RECORDS is a number"))
}

/// A bijection, so that keys are scattered and their number can be computed.
fn key(number: u64) -> [u8; 8] {
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93).to_be_bytes()
}

fn each_thread(records: u64, work: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let work = &work;
            scope.spawn(move || (thread..records).step_by(THREADS as usize).for_each(work));
        }
    });
}

fn soak(options: Options) {
    let records = records();
    let fixture = Fixture::<Process>::in_file(options);
    let tree = &fixture.index;
    each_thread(records, |number| {
        tree.insert(&key(number), &number.to_le_bytes()).expect("a new key");
    });
    let used = fixture.pool.usage().expect("a slot");
    println!(
        "{records} records, {:.1} bytes a record in chunks, {:.1} in nodes",
        (used.chunks * CHUNK_BYTES) as f64 / records as f64,
        used.active_bytes as f64 / records as f64,
    );
    each_thread(records, |number| {
        let found = tree.read_with(&key(number), |value| value == number.to_le_bytes());
        assert_eq!(found.expect("reads"), Some(true), "key of record {number}");
    });
    each_thread(records, |number| {
        if number % 2 == 0 {
            assert!(tree.remove(&key(number)).expect("removes"), "key of record {number}");
        }
    });
    let scanned = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for order in [Order::Ascending, Order::Descending] {
            let scanned = &scanned;
            scope.spawn(move || {
                let mut cursor = tree.scan(KeyRange::all(), order).expect("scans");
                let mut last: Option<Vec<u8>> = None;
                while let Some((found, value)) = cursor.next().expect("goes on") {
                    let number = u64::from_le_bytes(value.try_into().expect("8 bytes"));
                    assert!(number % 2 == 1 && found == key(number), "record {number}");
                    if let Some(last) = &last {
                        let ascends = last.as_slice() < found;
                        assert_eq!(ascends, order == Order::Ascending, "order at {number}");
                    }
                    last = Some(found.to_vec());
                    scanned.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(scanned.into_inner(), records / 2 * 2, "each of two scans sees the other half");
    check(&fixture);
    let after = fixture.pool.usage().expect("a slot");
    println!("after the deletes: {} of {} bytes active", after.active_bytes, used.active_bytes);
    assert!(after.active_bytes < used.active_bytes / 4 * 3, "deletes gave no space back");
}

#[test]
fn eight_threads_lose_nothing_in_the_papers_leaves() {
    soak(Options { numbers: Numbers::Sorted, ..Options::default() });
}

#[test]
fn eight_threads_lose_nothing_in_range_leaves() {
    soak(Options::default());
}
