//! Power cuts and kills before operations of the device, also of an opening after a cut: the pages
//! are one tree, and each record is as it was at some time since the last sync.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pando_device::Operation;
use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;

use crate::common::{History, Records, check, dump, open};

const KEYS: u64 = 600;

/// Images that were looked at.
static IMAGES: AtomicU64 = AtomicU64::new(0);

/// Looks at images of the directory before its operations.
fn look(directory: &Simulated, history: &Arc<Mutex<History>>, seed: u64, one_in: u64, depth: u32) {
    let (history, looked_at) = (history.clone(), directory.clone());
    let random = Mutex::new(Random::new(seed));
    directory.on_operation(move |operation, name| {
        let history = history.lock().unwrap_or_else(PoisonError::into_inner);
        let random = &mut *random.lock().unwrap_or_else(PoisonError::into_inner);
        // Reads change nothing.
        if operation == Operation::Read || !random.one_in(one_in) {
            return Ok(());
        }
        let (image, kept) = match random.below(4) {
            0 => (looked_at.after_kill(), "all seen"),
            1 => (looked_at.cut_power(Kept::Nothing, random), "nothing"),
            2 => (looked_at.cut_power(Kept::All, random), "all"),
            _ => (looked_at.cut_power(Kept::Some, random), "some"),
        };
        let what = format!("seed {seed}, before {operation} {name}, {kept} kept");
        if depth > 0 && random.one_in(8) {
            // The opening is cut off too.
            let cut = Arc::new(Mutex::new(history.clone()));
            look(&image, &cut, random.draw(), 4, depth - 1);
        }
        let store = open(&image);
        IMAGES.fetch_add(1, Ordering::Relaxed);
        check(&store);
        history.check(&dump(&store), &what);
        Ok(())
    });
}

fn run(seed: u64, steps: u64) {
    let directory = Simulated::new();
    let store = open(&directory);
    let history = Arc::new(Mutex::new(History::default()));
    look(&directory, &history, seed, 4, 1);
    let with = |change: &mut dyn FnMut(&mut History)| {
        change(&mut history.lock().unwrap_or_else(PoisonError::into_inner));
    };
    let mut random = Random::new(!seed);
    let mut records = Records::new(seed);
    for step in 0..steps {
        match random.below(1000) {
            0..4 => {
                store.sync().expect("durable");
                with(&mut |history| history.synced());
            }
            4..6 => {
                store.checkpoint(&[]).expect("durable");
                with(&mut |history| history.synced());
            }
            6..16 => store.empty_cache().expect("written"),
            16..20 => check(&store),
            _ => {
                let (key, value) = records.draw(KEYS, step);
                with(&mut |history| history.may_become(key, value.clone()));
                records.apply(store.records(), key, value.as_deref()).expect("written");
            }
        }
    }
    store.sync().expect("durable");
    with(&mut |history| history.synced());
    let found = dump(&store);
    with(&mut |history| history.check(&found, "at the end"));
    directory.on_operation(|_, _| Ok(()));
    history.lock().expect("no panic").check(&dump(&open(&directory.after_kill())), "opened again");
}

#[test]
fn power_cuts_before_operations_of_the_device() {
    (1..=4).for_each(|seed| run(seed, 1500));
    let images = IMAGES.load(Ordering::Relaxed);
    assert!(images > 150, "only {images} images");
}
