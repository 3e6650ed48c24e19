//! Hundreds of short histories of a few threads on a few keys, each checked by [`history`].
//!
//! [`history`]: super::history

use std::sync::atomic::{AtomicU64, Ordering};

use super::history::{Answer, Event, MAX_EVENTS, Operation, is_linearizable};
use super::race::race;
use super::random::Random;
use super::stamped::{stamp_of, stamped};
use super::trial::Trial;
use crate::{Error, KeyRange, Order, RangeIndex, Upserted};

/// Operations of a thread in one history. A key has at most so many events from each thread, and
/// one more: the first insert.
const STEPS: usize = 10;
const THREADS: std::ops::Range<usize> = 2..5;
const _: () = assert!((THREADS.end - 1) * STEPS < MAX_EVENTS);

/// The histories share an index, and other keys are inserted and removed around each. So leaves are
/// often split, consolidated or merged in the middle of a history.
pub(super) fn linearizable_histories(trial: &mut Trial<'_>) {
    let histories = trial.scaled(1_000) as u32;
    trial.on_fresh_index(|index, random| {
        for number in 0..histories {
            let keys = 1 + random.below(3);
            let threads = THREADS.start + random.below(THREADS.len());
            let place = Place { number };
            let clock = AtomicU64::new(0);
            let mut first = Recorder { index, place, clock: &clock, events: Vec::new() };
            for key in 0..keys {
                if random.coin() {
                    first.step(key, Operation::Insert(key as u64 + 1));
                }
            }
            let mut events = first.events;
            let recorded = race(threads, random, |thread, mut random| {
                let mut recorder = Recorder { index, place, clock: &clock, events: Vec::new() };
                recorder.run(thread as u64, keys, &mut random);
                recorder.events
            });
            events.extend(recorded.into_iter().flatten());
            judge(place, keys, &events);
            if random.coin() {
                empty(index, place);
            }
        }
    });
}

fn judge(place: Place, keys: usize, events: &[(usize, Event)]) {
    for key in 0..keys {
        let of_key = events.iter().filter(|(of, _)| *of == key);
        let mut events: Vec<Event> = of_key.map(|(_, event)| *event).collect();
        if !is_linearizable(None, &events) {
            events.sort_by_key(|event| event.called);
            let lines: Vec<String> = events.iter().map(|event| format!("  {event:?}\n")).collect();
            panic!("no order explains history {} of key {key}:\n{}", place.number, lines.concat());
        }
    }
}

/// The position of a history's keys in the index.
#[derive(Clone, Copy)]
struct Place {
    number: u32,
}

impl Place {
    fn key(self, key: usize) -> Vec<u8> {
        [&self.number.to_be_bytes()[..], &[key as u8, 0x80]].concat()
    }

    /// A key of no history, between the keys of this one.
    fn noise(self, random: &mut Random) -> Vec<u8> {
        [&self.number.to_be_bytes()[..], &[random.below(4) as u8, random.below(16) as u8]].concat()
    }
}

fn empty(index: &dyn RangeIndex, place: Place) {
    for key in super::compare::keys(
        index,
        &KeyRange::prefix(&place.number.to_be_bytes()),
        Order::Descending,
    ) {
        assert!(index.remove(&key).expect("remove"));
    }
}

/// The value for a number of a history: one in eight is longer than a small page.
fn value(number: u64) -> Vec<u8> {
    stamped(number, if number % 8 == 5 { 3_000 } else { 8 + (number % 6) as usize * 10 })
}

/// One thread's part of a history.
struct Recorder<'run> {
    index: &'run dyn RangeIndex,
    place: Place,
    /// Ticks at every call and return, so that all times differ.
    clock: &'run AtomicU64,
    events: Vec<(usize, Event)>,
}

impl Recorder<'_> {
    fn run(&mut self, thread: u64, keys: usize, random: &mut Random) {
        // The value that this thread has seen last, so that some compare-exchanges succeed.
        let mut last_seen = vec![0; keys];
        for step in 0..STEPS as u64 {
            let key = random.below(keys);
            // All written values differ, so that a stale read is noticed.
            let new = (thread + 1) * 100 + step;
            let operation = match random.below(16) {
                0..3 => Operation::Insert(new),
                3 => Operation::Update(new),
                4 => Operation::Upsert(new),
                5 => Operation::Put(new),
                6 | 7 => Operation::Read,
                8..10 => Operation::Remove,
                10..13 => Operation::CompareExchange { expected: last_seen[key], new },
                13 | 14 => Operation::CompareRemove(last_seen[key]),
                _ => {
                    self.scan(keys, random.coin());
                    continue;
                }
            };
            last_seen[key] = match self.step(key, operation) {
                Answer::Found(Some(found)) => found,
                Answer::Found(None) | Answer::Removed(_) | Answer::KeyNotFound => 0,
                Answer::Done if matches!(operation, Operation::CompareRemove(_)) => 0,
                Answer::Done | Answer::Inserted | Answer::Updated => new,
                Answer::KeyExists | Answer::ValueMismatch => self.peek(key),
            };
            if random.below(3) == 0 {
                let noise = self.place.noise(random);
                if random.below(3) > 0 {
                    self.index.upsert(&noise, &[7; 24]).expect("upsert");
                } else {
                    self.index.remove(&noise).expect("remove");
                }
            }
            // A random delay: mostly short, sometimes as long as a whole operation.
            match random.below(40) {
                0 => std::thread::yield_now(),
                1..10 => (0..random.below(500)).for_each(|_| std::hint::spin_loop()),
                _ => {}
            }
        }
    }

    /// The current value: a hint for the next step, which no history records.
    fn peek(&self, key: usize) -> u64 {
        let found = self.index.get(&self.place.key(key)).expect("get");
        found.map_or(0, |value| stamp_of(&value))
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn step(&mut self, key: usize, operation: Operation) -> Answer {
        let name = self.place.key(key);
        let called = self.tick();
        let answer = self.perform(&name, operation);
        let returned = self.tick();
        self.events.push((key, Event { operation, answer: Some(answer), called, returned }));
        answer
    }

    fn perform(&self, key: &[u8], operation: Operation) -> Answer {
        let index = self.index;
        let written = |answer: Result<(), Error>| match answer {
            Ok(()) => Answer::Done,
            Err(Error::KeyExists) => Answer::KeyExists,
            Err(Error::KeyNotFound) => Answer::KeyNotFound,
            Err(Error::ValueMismatch) => Answer::ValueMismatch,
            Err(error) => panic!("{operation:?}: {error}"),
        };
        match operation {
            Operation::Insert(new) => written(index.insert(key, &value(new))),
            Operation::Update(new) => written(index.update(key, &value(new))),
            Operation::Upsert(new) => match index.upsert(key, &value(new)).expect("upsert") {
                Upserted::Inserted => Answer::Inserted,
                Upserted::Updated => Answer::Updated,
            },
            Operation::Put(new) => written(index.put(key, &value(new))),
            Operation::Read => {
                let mut found = None;
                index.read(key, &mut |value| found = Some(stamp_of(value))).expect("read");
                Answer::Found(found)
            }
            Operation::Remove => Answer::Removed(index.remove(key).expect("remove")),
            Operation::CompareExchange { expected, new } => {
                written(index.compare_exchange(key, &value(expected), &value(new)))
            }
            Operation::CompareRemove(expected) => {
                written(index.compare_remove(key, &value(expected)))
            }
        }
    }

    /// A scan over all keys of the history is a read of each, at some instant of the scan.
    fn scan(&mut self, keys: usize, ascending: bool) {
        let order = if ascending { Order::Ascending } else { Order::Descending };
        let names: Vec<Vec<u8>> = (0..keys).map(|key| self.place.key(key)).collect();
        let mut found = vec![None; keys];
        let called = self.tick();
        let range = KeyRange::prefix(&self.place.number.to_be_bytes());
        let mut cursor = self.index.scan(range, order).expect("scan");
        if ascending {
            cursor.expect(keys);
        }
        while let Some((name, value)) = cursor.next().expect("next") {
            if let Some(key) = names.iter().position(|known| known == name) {
                found[key] = Some(stamp_of(value));
            }
        }
        let returned = self.tick();
        for (key, found) in found.into_iter().enumerate() {
            let answer = Some(Answer::Found(found));
            self.events.push((key, Event { operation: Operation::Read, answer, called, returned }));
        }
    }
}
