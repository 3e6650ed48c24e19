//! Histories of many threads over power cuts: are the transactions that are left serializable, is
//! each there as a whole, and has none of them read what is lost?

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pando_device::Operation;
use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;
use pando_pmem::Domain;
use pando_tc::testing::{Checked, History, NONE, Outcome};

use crate::common::{Killed, Kind, bztree};
use crate::histories::{one_transaction, state_of};
use crate::power::{Component, create, dump, rebuild, write_image};

const ORDER: Ordering = Ordering::SeqCst;
const FIRST_MAP: u64 = 1;
const THREADS: u64 = 3;
/// The power is cut before one of the first operations of the disk in a round.
const OPERATIONS: u64 = 60;

/// Rounds of each test; `PANDO_CUTS` has another number.
fn rounds() -> u64 {
    std::env::var("PANDO_CUTS").map_or(30, |rounds| rounds.parse().expect("a number of rounds"))
}

#[test]
fn histories_over_power_cuts_of_bztrees() {
    check_history_over_cuts(bztree::<Killed>(), 1);
}

#[test]
fn histories_over_power_cuts_of_skip_lists() {
    check_history_over_cuts(Kind::<Killed>::of::<pando_skiplist::SkipLists>(), 2);
}

/// What a power cut has left, and the LSN that was durable before it.
type Cut = (Simulated, u64);

/// Cuts the power before the operation of that number, of those that write.
fn cut_at<D: Domain>(
    directory: &Simulated,
    component: &Arc<Component<D>>,
    number: u64,
    mut random: Random,
) -> Arc<Mutex<Option<Cut>>> {
    let cut = Arc::new(Mutex::new(None));
    let (place, watched, component) = (cut.clone(), directory.clone(), Arc::downgrade(component));
    let operations = AtomicU64::new(0);
    let kept = *random.pick(&[Kept::Nothing, Kept::Some, Kept::All]);
    let random = Mutex::new(random);
    directory.on_operation(move |operation, _| {
        let reads = [Operation::Open, Operation::List, Operation::Read];
        if !reads.contains(&operation)
            && operations.fetch_add(1, ORDER) == number
            && let Some(component) = component.upgrade()
        {
            let durable = component.log().durable_lsn();
            let left = watched.cut_power(kept, &mut random.lock().expect("a lock"));
            *place.lock().expect("a lock") = Some((left, durable));
        }
        Ok(())
    });
    cut
}

fn check_history_over_cuts<D: Domain>(kind: Kind<D>, seed: u64) {
    let mut random = Random::new(seed);
    let mut directory = Simulated::new();
    let mut component = Arc::new(create(kind, &directory));
    [FIRST_MAP, FIRST_MAP + 1].into_iter().for_each(|number| component.maps().add(number));
    let lsn = component.log_maps(&component.maps().list()).expect("a list");
    component.sync(lsn).expect("synced");
    let ids = AtomicU64::new(NONE + 1);
    let mut history = History::default();
    for round in 0..rounds() {
        let cut = cut_at(&directory, &component, random.below(OPERATIONS), random);
        let is_over = AtomicBool::new(false);
        // Of ten transactions, how many have snapshot isolation.
        let over_snapshots = *random.pick(&[0, 5, 10]);
        let with_images = random.one_in(2);
        let work = |mut random: Random| {
            let mut ended = Vec::new();
            while !is_over.load(ORDER) {
                let id = ids.fetch_add(1, ORDER);
                let is_over_snapshot = random.below(10) < over_snapshots;
                let (recorded, end) =
                    one_transaction(&component, FIRST_MAP, id, is_over_snapshot, &mut random);
                if let Outcome::Committed { lsn } = end
                    && random.one_in(8)
                {
                    component.sync(lsn).expect("synced");
                }
                ended.push((recorded, end));
            }
            ended
        };
        let (left, durable) = std::thread::scope(|scope| {
            let (work, is_over, component) = (&work, &is_over, &component);
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    let random = Random::new(random.draw());
                    scope.spawn(move || work(random))
                })
                .collect();
            if with_images {
                scope.spawn(move || {
                    while !is_over.load(ORDER) {
                        write_image(component).expect("an image");
                    }
                });
            }
            let cut = loop {
                if let Some(cut) = cut.lock().expect("a lock").take() {
                    break Some(cut);
                }
                // It has failed.
                if threads.iter().any(|thread| thread.is_finished()) {
                    break None;
                }
                std::thread::sleep(Duration::from_micros(100));
            };
            is_over.store(true, ORDER);
            let ended = threads.into_iter().flat_map(|thread| thread.join().expect("a thread"));
            ended.for_each(|(recorded, end)| history.add(recorded, end));
            cut.expect("the threads work until the power is cut")
        });
        let (rebuilt, end, replayed) = rebuild(kind, &left).expect("rebuilds");
        assert!(end >= durable, "round {round}: {end} of {durable}, {replayed:?}");
        history.reopened(state_of(&dump(&rebuilt), FIRST_MAP), end);
        (directory, component) = (left, Arc::new(rebuilt));
    }
    let checked = history.check().unwrap_or_else(|what| panic!("seed {seed}, {what}"));
    println!("{checked:?}");
    let Checked { committed, lost, .. } = checked;
    assert!(committed > 100 && lost > 0, "{checked:?}");
}
