//! Power cuts and kills at each operation of the device, also of an opening after a cut.

use std::sync::{Arc, Mutex, PoisonError};

use pando_device::Operation;
use pando_device::simulated::{Kept, Simulated};
use pando_index::random::Random;
use pando_lss::{Group, PageStore, Ticket};

use crate::common::{Model, Pages, SMALL, create, open, pages_of, small};

/// Pages of a run, and the most bytes of a write.
const PIDS: u64 = 24;
const MOST_BYTES: u64 = 5000;

/// The states that the store has been in, and the bounds of what an image may have.
#[derive(Debug, Default)]
struct History {
    /// After each group.
    states: Vec<Pages>,
    /// The first state that a power cut may leave.
    synced: usize,
    /// The first state that a kill may leave.
    written: usize,
}

impl History {
    /// The state that the store has, at `least` or later.
    fn state_of(&self, pages: &Pages, least: usize, what: &str) -> usize {
        let found = self.states[least..].iter().position(|state| state == pages);
        let Some(found) = found else {
            let earlier = self.states.iter().position(|state| state == pages);
            panic!("{what}: {earlier:?}, and at least {least} of {}", self.states.len() - 1);
        };
        least + found
    }
}

struct Run {
    seed: u64,
    directory: Simulated,
    store: PageStore,
    model: Model,
    /// Decides about the groups and the acts; a copy of it and of the model for each state.
    random: Random,
    saved: Vec<(Random, Model)>,
    history: Arc<Mutex<History>>,
    /// Decides about images.
    cuts: Random,
    tickets: Vec<Ticket>,
}

/// Looks at images of the directory before each operation.
fn look(directory: &Simulated, history: &Arc<Mutex<History>>, seed: u64, depth: u32) {
    let (history, looked_at) = (history.clone(), directory.clone());
    let random = Mutex::new(Random::new(seed));
    directory.on_operation(move |operation, name| {
        let history = history.lock().unwrap_or_else(PoisonError::into_inner);
        let random = &mut *random.lock().unwrap_or_else(PoisonError::into_inner);
        let (kept, kept_name) = match random.below(4) {
            0 => (Kept::Nothing, "nothing"),
            1 => (Kept::All, "all"),
            _ => (Kept::Some, "some"),
        };
        let (image, kept_name) = match random.one_in(4) {
            true => (looked_at.after_kill(), "all seen and nothing"),
            false => (looked_at.cut_power(kept, random), kept_name),
        };
        let what = format!("seed {seed}, before {operation} {name}, {kept_name} kept");
        let (store, _) =
            open(&image.after_kill()).unwrap_or_else(|error| panic!("{what}: {error}"));
        history.state_of(&pages_of(&store), history.synced, &what);
        // The image is opened again, and cut at each operation of the opening.
        if depth > 0 && random.one_in(20) {
            let (states, synced) = (history.states.clone(), history.synced);
            let cut = Arc::new(Mutex::new(History { states, synced, written: synced }));
            look(&image, &cut, random.draw(), depth - 1);
            let (store, _) = open(&image).unwrap_or_else(|error| panic!("{what}, again: {error}"));
            store.checkpoint(b"").unwrap_or_else(|error| panic!("{what}, used: {error}"));
        }
        Ok(())
    });
}

impl Run {
    fn new(seed: u64) -> Self {
        let directory = Simulated::new();
        let store = create(&directory, SMALL);
        let random = Random::new(seed);
        let saved = vec![(random, Model::default())];
        let history = History { states: vec![Pages::new()], ..History::default() };
        let mut run = Self {
            seed,
            directory,
            store,
            model: Model::default(),
            random,
            saved,
            history: Arc::new(Mutex::new(history)),
            cuts: Random::new(!seed),
            tickets: Vec::new(),
        };
        look(&run.directory, &run.history, run.cuts.draw(), 1);
        run
    }

    fn with<T>(&self, change: impl FnOnce(&mut History) -> T) -> T {
        change(&mut self.history.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn step(&mut self) {
        let act = self.random.below(40);
        match act {
            0..=27 => {
                let group = self.model.group(&mut self.random, PIDS, MOST_BYTES);
                let pages = self.model.pages();
                self.with(|history| history.states.push(pages));
                self.saved.push((self.random, self.model.clone()));
                self.tickets.push(self.store.append(group).expect("open"));
            }
            28..=33 => {
                for ticket in std::mem::take(&mut self.tickets) {
                    self.store.wait(&ticket).expect("room");
                }
                self.with(|history| history.written = history.states.len() - 1);
                assert_eq!(pages_of(&self.store), self.model.pages(), "seed {}", self.seed);
            }
            _ => {
                match act {
                    34..=36 => self.store.sync().expect("synced"),
                    37 | 38 => self.store.checkpoint(b"client").expect("a checkpoint"),
                    _ => drop(self.store.clean().expect("cleaned")),
                }
                self.with(|history| {
                    history.synced = history.states.len() - 1;
                    history.written = history.synced;
                });
            }
        }
    }

    /// Cuts the power, or kills the process, and opens the store again.
    fn restart(&mut self) {
        let is_kill = self.cuts.one_in(3);
        let kept = *self.cuts.pick(&[Kept::Nothing, Kept::Some, Kept::Some, Kept::All]);
        self.directory = match is_kill {
            true => self.directory.after_kill(),
            false => self.directory.cut_power(kept, &mut self.cuts),
        };
        look(&self.directory, &self.history, self.cuts.draw(), 1);
        self.store =
            open(&self.directory).unwrap_or_else(|error| panic!("{}: {error}", self.seed)).0;
        let pages = pages_of(&self.store);
        let what = format!("seed {}, restarted", self.seed);
        let state = self.with(|history| {
            let least = if is_kill { history.written } else { history.synced };
            let state = history.state_of(&pages, least, &what);
            history.states.truncate(state + 1);
            history.written = state;
            if !is_kill {
                history.synced = state;
            }
            state
        });
        self.saved.truncate(state + 1);
        self.tickets.clear();
        let (random, model) = self.saved[state].clone();
        self.model = model;
        // The process often does the same again.
        if self.cuts.one_in(2) {
            self.random = random;
        } else {
            self.random = Random::new(self.cuts.draw());
        }
        look(&self.directory, &self.history, self.cuts.draw(), 1);
    }
}

#[test]
fn a_power_cut_at_each_operation_leaves_a_prefix_of_the_groups() {
    for seed in 0..4 {
        let mut run = Run::new(seed);
        for _ in 0..8 {
            for _ in 0..30 + run.cuts.below(40) {
                run.step();
            }
            run.restart();
        }
    }
}

/// Whether a block of the store begins at `at` of the first segment.
fn has_block(directory: &Simulated, at: usize) -> bool {
    let mut found = false;
    directory.damage("segment-000000", |bytes| found = bytes[at..].starts_with(b"PANDOsb1"));
    found
}

/// The power cut keeps the third block and loses the second one. The next process writes the second
/// block again, with the same groups or others, and the third is not behind it.
#[test]
fn a_block_behind_a_lost_one_never_comes_back() {
    for again in ["second", "others"] {
        let directory = Simulated::new();
        let store = create(&directory, SMALL);
        // Nothing is synced, so that a block which is written again says the same of that.
        for (pid, bytes) in [(1, "first"), (2, "second"), (3, "third!")] {
            store.wait(&store.append(Group::new().base(pid, bytes)).expect("open")).expect("room");
        }
        let mut random = Random::new(1);
        let image = loop {
            let image = directory.cut_power(Kept::Some, &mut random);
            if [0, 4096, 8192].map(|at| has_block(&image, at)) == [true, false, true] {
                break image;
            }
        };
        let (store, found) = open(&image).expect("a store");
        assert_eq!((found.blocks, store.pids().collect()), (1, vec![1]));
        store.append(Group::new().base(2, again)).expect("open");
        store.sync().expect("synced");
        let (store, found) = open(&image.after_kill()).expect("a store");
        assert_eq!((found.blocks, store.pids().collect()), (2, vec![1, 2]), "{again}");
    }
}

/// A killed process has left blocks in the page cache, and the next one shows them.
#[test]
fn a_sync_covers_what_a_killed_process_has_written() {
    for has_checkpoint in [false, true] {
        let directory = Simulated::new();
        let store = create(&directory, SMALL);
        for pid in 0..40 {
            let ticket = store.append(Group::new().base(pid, vec![7; 5000])).expect("open");
            store.wait(&ticket).expect("room");
        }
        let directory = directory.after_kill();
        let (store, _) = open(&directory).expect("a store");
        match has_checkpoint {
            true => store.checkpoint(b"").expect("a checkpoint"),
            false => store.sync().expect("synced"),
        }
        let image = directory.cut_power(Kept::Nothing, &mut Random::new(2));
        assert_eq!(open(&image).expect("a store").0.pids().count(), 40);
    }
}

#[test]
fn an_empty_group_begins_no_segment() {
    let (directory, store) = small();
    store.wait(&store.append(Group::new()).expect("open")).expect("nothing to write");
    store.checkpoint(b"").expect("a checkpoint");
    store.append(Group::new().base(1, "x")).expect("open");
    store.sync().expect("synced");
    let image = directory.cut_power(Kept::Nothing, &mut Random::new(3));
    assert_eq!(open(&image).expect("a store").0.pids().collect::<Vec<_>>(), [1]);
}

/// A kill leaves a superblock in the page cache alone. The opening that reads it is cut off.
#[test]
fn a_superblock_that_is_not_durable_removes_no_checkpoint() {
    let (directory, store) = small();
    store.append(Group::new().base(1, "x")).expect("open");
    store.checkpoint(b"first").expect("a checkpoint");
    let killed = Arc::new(Mutex::new(None));
    let (kept, looked_at) = (killed.clone(), directory.clone());
    directory.on_operation(move |operation, name| {
        if operation == Operation::Sync && name == "superblock" {
            *kept.lock().expect("no panic") = Some(looked_at.after_kill());
        }
        Ok(())
    });
    store.checkpoint(b"second").expect("a checkpoint");
    let killed = killed.lock().expect("no panic").take().expect("the superblock was synced");
    let cuts = Arc::new(Mutex::new(Vec::new()));
    let (kept, looked_at) = (cuts.clone(), killed.clone());
    killed.on_operation(move |_, _| {
        let image = looked_at.cut_power(Kept::Nothing, &mut Random::new(5));
        kept.lock().expect("no panic").push(image);
        Ok(())
    });
    drop(open(&killed).expect("a store"));
    let cuts = std::mem::take(&mut *cuts.lock().expect("no panic"));
    for (number, image) in cuts.iter().enumerate() {
        let (store, _) = open(image).unwrap_or_else(|error| panic!("cut {number}: {error}"));
        assert_eq!(store.pids().collect::<Vec<_>>(), [1]);
    }
}
