//! Operations that the device refuses.

use std::io;
use std::sync::atomic::Ordering;

use pando_device::Operation;
use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;
use pando_store::{DataComponent, Error};

use crate::common::{History, Records, check, dump, open};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const KEYS: u64 = 300;

/// Uses the store, and goes on after errors. What it may have on the device then.
fn use_it(store: &DataComponent, seed: u64) -> (History, u64) {
    let (mut random, mut records) = (Random::new(!seed), Records::new(seed));
    let (mut history, mut errors) = (History::default(), 0);
    for step in 0..700 {
        let done = match random.below(60) {
            0 => store.sync().inspect(|()| history.synced()),
            1 => store.checkpoint(&[]).inspect(|()| history.synced()),
            2 => store.empty_cache(),
            _ => {
                let (key, value) = records.draw(KEYS, step);
                let done = records.apply(store.records(), key, value.as_deref());
                if done.is_ok() {
                    history.may_become(key, value);
                }
                done.map_err(Error::from)
            }
        };
        errors += u64::from(done.is_err());
    }
    (history, errors)
}

#[test]
fn each_operation_that_fails_loses_nothing_that_was_durable() {
    let mut refused = 0;
    for number in (0..).step_by(3) {
        let directory = Simulated::new();
        let store = open(&directory);
        let failed = directory.refuse_operation(number, EIO);
        let (history, errors) = use_it(&store, 7);
        if !failed.load(Ordering::Relaxed) {
            assert!(number > 50, "only {number} operations");
            break;
        }
        refused += errors;
        for kept in [Kept::Nothing, Kept::Some, Kept::All] {
            let store = open(&directory.cut_power(kept, &mut Random::new(number)));
            check(&store);
            history.check(&dump(&store), &format!("operation {number}, {kept:?} kept"));
        }
    }
    assert!(refused > 0, "no call told a failure");
}

/// No file can be made any more; later there is room again.
#[test]
fn a_full_device_is_an_error_and_takes_writes_again_later() {
    let directory = Simulated::new();
    let store = open(&directory);
    let (mut history, _) = use_it(&store, 3);
    store.sync().expect("durable");
    history.synced();
    directory.on_operation(|operation, _| match operation {
        Operation::Create | Operation::Allocate => Err(io::Error::from_raw_os_error(ENOSPC)),
        _ => Ok(()),
    });
    let mut records = Records::new(4);
    let (mut puts_refused, mut refused) = (0, None);
    for step in 0..40_000 {
        let (key, value) = records.draw(KEYS, step);
        match records.apply(store.records(), key, value.as_deref()) {
            Ok(()) => history.may_become(key, value),
            // A page that must be split first.
            Err(error) => {
                assert!(value.is_some(), "a remove was refused: {error}");
                assert!(error.to_string().contains("has no room"), "{error}");
                puts_refused += 1;
            }
        }
        if step % 50 == 49
            && let Err(error) = store.empty_cache()
        {
            refused = Some(error);
            if puts_refused > 0 {
                break;
            }
        }
    }
    let refused = refused.expect("the device is full").to_string();
    assert!(refused.contains("has no room"), "{refused}");
    // Records in memory can be read.
    history.check(&dump(&store), "in memory");
    directory.on_operation(|_, _| Ok(()));
    let (key, value) = records.draw(KEYS, 40_001);
    history.may_become(key, value.clone());
    records.apply(store.records(), key, value.as_deref()).expect("there is memory");
    store.sync().expect("there is room");
    history.synced();
    check(&store);
    let there = open(&directory.cut_power(Kept::Nothing, &mut Random::new(1)));
    check(&there);
    assert!(dump(&there) == dump(&store));
}
