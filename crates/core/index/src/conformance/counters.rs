//! Values that many threads replace at once: no update is lost, and no reader sees half of a value.

use std::sync::atomic::{AtomicU64, Ordering};

use super::compare::BOTH_ORDERS;
use super::race::{Together, Worker, race};
use super::random::Random;
use super::stamped::{LENGTHS, stamp_of, stamped};
use super::trial::Trial;
use crate::{Error, KeyRange, RangeIndex};

const COUNTERS: usize = 3;

pub(super) fn counters_of_8_bytes(trial: &mut Trial<'_>) {
    count_together(trial, 15_000, &LENGTHS[..1]);
}

/// The same, with values that grow and shrink, some of them longer than a page.
pub(super) fn counters_of_all_sizes(trial: &mut Trial<'_>) {
    count_together(trial, 2_500, &LENGTHS);
}

/// Four threads raise shared counters, by compare-exchange or by modify. Each thread also raises a
/// counter of its own, next to them, by upsert. The shared counters start absent. The final value
/// is the number of increments that succeeded.
fn count_together(trial: &mut Trial<'_>, increments: usize, lengths: &[usize]) {
    const THREADS: usize = 4;
    let each = trial.scaled(increments);
    trial.on_fresh_index(|index, random| {
        let raised = race(THREADS, random, |thread, mut random| {
            let mut raised = [0_u64; COUNTERS];
            let own_key = [b'c', thread as u8, b'o'];
            for step in 0..each as u64 {
                let counter = random.below(COUNTERS);
                raise(index, &[b'c', counter as u8], lengths, &mut random);
                raised[counter] += 1;
                let own = stamped(step + 1, *random.pick(lengths));
                index.upsert(&own_key, &own).expect("upsert");
            }
            raised
        });
        for counter in 0..COUNTERS {
            let expected: u64 = raised.iter().map(|raised| raised[counter]).sum();
            assert_eq!(value_of(index, &[b'c', counter as u8]), expected, "counter {counter}");
        }
        for thread in 0..THREADS {
            assert_eq!(value_of(index, &[b'c', thread as u8, b'o']), each as u64);
        }
    });
}

fn raise(index: &dyn RangeIndex, key: &[u8], lengths: &[usize], random: &mut Random) {
    if random.coin() {
        let length = *random.pick(lengths);
        let raised = index.modify(key, &mut |found, new| {
            *new = stamped(found.map_or(0, stamp_of) + 1, length);
            true
        });
        assert!(raised.expect("modify").is_some(), "a change that was wanted was not made");
        return;
    }
    loop {
        let length = *random.pick(lengths);
        let answer = match index.get(key).expect("get") {
            None => index.insert(key, &stamped(1, length)),
            Some(found) => {
                let raised = stamped(stamp_of(&found) + 1, length);
                index.compare_exchange(key, &found, &raised)
            }
        };
        match answer {
            Ok(()) => return,
            // Another thread was first: read again.
            Err(Error::KeyExists | Error::ValueMismatch) => {}
            Err(error) => panic!("no thread removes a counter: {error}"),
        }
    }
}

fn value_of(index: &dyn RangeIndex, key: &[u8]) -> u64 {
    index.get(key).expect("get").map_or(0, |value| stamp_of(&value))
}

/// Two threads replace two values all the time, by values of all sizes. Two other threads read
/// them. They never miss a value, never see half of one, and never see one that was replaced before
/// the read began.
pub(super) fn torn_values(trial: &mut Trial<'_>) {
    let (reads, writes) = (trial.scaled(30_000), trial.scaled(8_000));
    trial.on_fresh_index(|index, random| {
        for key in KEYS {
            index.insert(key, &stamped(0, 8)).expect("insert");
        }
        let together = Together::new(4);
        let replaced: Replaced = Default::default();
        race(4, random, |thread, random| match thread {
            READERS.. => {
                replace(index, &replaced, thread - READERS, together.worker(writes), random)
            }
            _ => read_whole(index, &replaced, together.worker(reads), random),
        });
    });
}

const KEYS: [&[u8]; 2] = [b"key", b"key with a longer name"];
const READERS: usize = 2;

/// For each writer and each key, the stamp of the last write that has returned.
type Replaced = [[AtomicU64; 2]; KEYS.len()];

/// A stamp has the writer's number in the lowest bit, and the writer's count above.
fn replace(
    index: &dyn RangeIndex,
    replaced: &Replaced,
    writer: usize,
    mut worker: Worker<'_>,
    mut random: Random,
) {
    let mut count = 0;
    while worker.goes_on() {
        count += 1;
        for (key, replaced) in KEYS.iter().zip(replaced) {
            let stamp = count << 1 | writer as u64;
            let value = stamped(stamp, *random.pick(&LENGTHS));
            if random.coin() {
                index.update(key, &value).expect("the key is there");
            } else {
                index.upsert(key, &value).expect("upsert");
            }
            replaced[writer].store(stamp, Ordering::SeqCst);
        }
    }
}

fn read_whole(
    index: &dyn RangeIndex,
    replaced: &Replaced,
    mut worker: Worker<'_>,
    mut random: Random,
) {
    while worker.goes_on() {
        // A later write of a writer has replaced its earlier ones, which must not be seen any more.
        let oldest = replaced
            .each_ref()
            .map(|writers| writers.each_ref().map(|stamp| stamp.load(Ordering::SeqCst)));
        let look = |which: usize, value: &[u8]| {
            let stamp = stamp_of(value);
            let oldest = oldest[which][(stamp & 1) as usize];
            assert!(stamp >= oldest, "{stamp} was read after {oldest} had replaced it");
        };
        if random.below(4) == 0 {
            let mut cursor = index.scan(KeyRange::all(), *random.pick(&BOTH_ORDERS)).expect("scan");
            let mut seen = 0;
            while let Some((key, value)) = cursor.next().expect("next") {
                let Some(which) = KEYS.iter().position(|known| *known == key) else {
                    panic!("a key that was never inserted: {key:?}");
                };
                look(which, value);
                seen += 1;
            }
            assert_eq!(seen, KEYS.len(), "a scan missed a key that is being updated");
        } else {
            let which = random.below(KEYS.len());
            let found = index.read(KEYS[which], &mut |value| look(which, value)).expect("read");
            assert!(found, "a read missed a key that is being updated");
        }
    }
}
