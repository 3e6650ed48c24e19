//! The stores of a run, step by step.
//!
//! A hook is called before its store, so the store is recorded at the next step of any thread: only
//! one logical thread runs at a time. The shadow is the arena's content according to the recorded
//! stores. At the end of a run it must equal the arena, or a store has escaped the hooks.

use std::panic::Location;
use std::rc::Rc;

use pando_device::simulated::Simulated;
use pando_pmem::testing::Arena;

/// Bytes of a line of the medium.
pub const LINE_BYTES: u64 = 64;

/// The source position of a write-back or a fence.
pub type Site = &'static Location<'static>;

/// One event.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// The word at `off` became `value`.
    Store {
        /// Offset of the word.
        off: u32,
        /// Its new value.
        value: u64,
    },
    /// A thread began to write back a line.
    WriteBack {
        /// The logical thread.
        task: u8,
        /// The line's number.
        line: u32,
        /// The place in the source.
        site: Site,
    },
    /// A thread's write-backs are complete.
    Fence {
        /// The logical thread.
        task: u8,
        /// The place in the source.
        site: Site,
    },
    /// The files of the run have changed.
    Files {
        /// The number of their state; zero was the first.
        version: u32,
    },
    /// An operation has returned: a later crash must not lose it.
    Return,
}

/// A range of bytes that only one thread sees, and that it may be writing to.
#[derive(Clone, Copy, Debug)]
struct Exclusive {
    task: usize,
    off: u64,
    bytes: u64,
}

/// The recorder of one run.
#[derive(Debug)]
pub struct Recorder {
    arena: Rc<Arena>,
    shadow: Vec<u64>,
    log: Vec<Entry>,
    /// The word that the last step was about to store.
    pending: Option<u64>,
    exclusive: Vec<Exclusive>,
    /// The files of the run, and their states after each change.
    files: Simulated,
    versions: Vec<Simulated>,
    /// Whether the last step was about to change them.
    files_change: bool,
    steps: Vec<u64>,
    touched: Vec<u32>,
    is_touched: Vec<bool>,
}

impl Recorder {
    /// A recorder of the stores to `arena` from now on, and of the changes of `files`.
    pub fn new(arena: Rc<Arena>, files: Simulated) -> Self {
        let words = arena.bytes() / 8;
        let shadow = (0..words).map(|index| arena.word(index * 8)).collect();
        let lines = (arena.bytes() / LINE_BYTES) as usize;
        Self {
            arena,
            shadow,
            log: Vec::new(),
            pending: None,
            exclusive: Vec::new(),
            versions: vec![files.after_kill()],
            files,
            files_change: false,
            steps: Vec::new(),
            touched: Vec::new(),
            is_touched: vec![false; lines],
        }
    }

    fn off(&self, address: usize) -> u64 {
        let off = address.wrapping_sub(self.arena.address()) as u64;
        assert!(off < self.arena.bytes(), "a pool outside the crash lab is in use");
        off
    }

    /// Notes that `bytes` bytes at `address` may change.
    pub fn touch(&mut self, address: usize, bytes: usize) {
        let off = self.off(address);
        if bytes > 0 {
            self.touch_lines(off / LINE_BYTES, (off + bytes as u64 - 1) / LINE_BYTES);
        }
    }

    fn touch_lines(&mut self, first: u64, last: u64) {
        for line in first..=last {
            if !std::mem::replace(&mut self.is_touched[line as usize], true) {
                self.touched.push(line as u32);
            }
        }
    }

    /// Takes the lines touched since the last call.
    pub fn take_touched(&mut self) -> Vec<u32> {
        let touched = std::mem::take(&mut self.touched);
        for &line in &touched {
            self.is_touched[line as usize] = false;
        }
        touched
    }

    /// A thread is about to store to the word at `address`.
    pub fn expect_store(&mut self, address: usize) {
        self.touch(address, 8);
        self.pending = Some(self.off(address));
    }

    /// `task` may write `bytes` bytes at `address`, which no other thread sees, until its operation
    /// ends.
    pub fn expect_exclusive(&mut self, task: usize, address: usize, bytes: usize) {
        self.touch(address, bytes);
        self.exclusive.push(Exclusive { task, off: self.off(address), bytes: bytes as u64 });
    }

    /// Records the changes of other `files`, in the next run.
    pub fn follow_files(&mut self, files: Simulated) {
        self.versions = vec![files.after_kill()];
        (self.files, self.files_change) = (files, false);
    }

    /// A thread is about to change the files.
    pub fn expect_files(&mut self) {
        self.files_change = true;
    }

    /// The states of the files, by number.
    pub fn take_files(&mut self) -> Vec<Simulated> {
        std::mem::take(&mut self.versions)
    }

    /// Counts a step of `task`.
    pub fn step(&mut self, task: usize) {
        if self.steps.len() <= task {
            self.steps.resize(task + 1, 0);
        }
        self.steps[task] += 1;
    }

    /// Steps that `task` has taken.
    pub fn steps_of(&self, task: usize) -> u64 {
        self.steps.get(task).copied().unwrap_or(0)
    }

    /// Steps of all threads.
    pub fn steps(&self) -> u64 {
        self.steps.iter().sum()
    }

    /// Records the store of the last step, or the change of files; with `all`, also the stores of
    /// `task` into the ranges that only it sees.
    pub fn settle(&mut self, task: usize, all: bool) {
        if let Some(off) = self.pending.take() {
            self.see(off);
        }
        if std::mem::take(&mut self.files_change) {
            self.log.push(Entry::Files { version: self.versions.len() as u32 });
            self.versions.push(self.files.after_kill());
        }
        if all {
            for index in 0..self.exclusive.len() {
                let Exclusive { task: owner, off, bytes } = self.exclusive[index];
                if owner == task {
                    self.see_range(off, bytes);
                }
            }
        }
    }

    fn see(&mut self, off: u64) {
        let value = self.arena.word(off);
        let known = &mut self.shadow[off as usize / 8];
        if *known != value {
            *known = value;
            self.log.push(Entry::Store { off: off as u32, value });
        }
    }

    fn see_range(&mut self, off: u64, bytes: u64) {
        let mut at = off / 8 * 8;
        while at < off + bytes {
            self.see(at);
            at += 8;
        }
    }

    /// `task` begins to write back the line at `address`.
    pub fn write_back(&mut self, task: usize, address: usize, site: Site) {
        self.settle(task, false);
        let line = self.off(address) / LINE_BYTES;
        let (begin, end) = (line * LINE_BYTES, (line + 1) * LINE_BYTES);
        for index in 0..self.exclusive.len() {
            let Exclusive { off, bytes, .. } = self.exclusive[index];
            let (from, to) = (off.max(begin), (off + bytes).min(end));
            if from < to {
                self.see_range(from, to - from);
            }
        }
        self.log.push(Entry::WriteBack { task: task as u8, line: line as u32, site });
    }

    /// The lines that `task` wrote back have reached the medium.
    pub fn fence(&mut self, task: usize, site: Site) {
        self.settle(task, true);
        self.log.push(Entry::Fence { task: task as u8, site });
    }

    /// The present time, as the number of log entries.
    pub fn now(&mut self) -> u64 {
        self.settle(usize::MAX, false);
        self.log.len() as u64
    }

    /// An operation of `task` returns now; the time of its return.
    pub fn returned(&mut self, task: usize) -> u64 {
        self.settle(task, true);
        self.exclusive.retain(|place| place.task != task);
        self.log.push(Entry::Return);
        self.log.len() as u64
    }

    /// Ends the recording: the log. Fails if a store escaped.
    pub fn finish(&mut self) -> Result<Vec<Entry>, String> {
        self.settle(usize::MAX, false);
        for index in 0..self.exclusive.len() {
            let Exclusive { off, bytes, .. } = self.exclusive[index];
            self.see_range(off, bytes);
        }
        self.exclusive.clear();
        self.steps.clear();
        for (index, &known) in self.shadow.iter().enumerate() {
            let found = self.arena.word(index as u64 * 8);
            if found != known {
                let off = index * 8;
                return Err(format!(
                    "a store to {off:#x} escaped the hooks: found {found:#x}, recorded {known:#x}"
                ));
            }
        }
        Ok(std::mem::take(&mut self.log))
    }

    /// Copies `lines` of the arena, which were overwritten, into the shadow.
    pub fn follow(&mut self, lines: &[u32]) {
        for &line in lines {
            for word in 0..8 {
                let index = line as usize * 8 + word;
                self.shadow[index] = self.arena.word(index as u64 * 8);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pando_device::Directory;

    use super::*;

    fn recorder() -> (Rc<Arena>, Recorder) {
        let arena = Rc::new(Arena::new(1 << 16).expect("memory"));
        (Rc::clone(&arena), Recorder::new(arena, Simulated::new()))
    }

    fn stores(log: &[Entry]) -> Vec<(u32, u64)> {
        let store = |entry: &Entry| match *entry {
            Entry::Store { off, value } => Some((off, value)),
            _ => None,
        };
        log.iter().filter_map(store).collect()
    }

    #[test]
    fn a_store_is_seen_at_the_next_step() {
        let (arena, mut recorder) = recorder();
        recorder.expect_store(arena.address() + 64);
        arena.set_word(64, 7);
        recorder.settle(1, false);
        assert_eq!(stores(&recorder.finish().expect("nothing escaped")), [(64, 7)]);
    }

    #[test]
    fn exclusive_bytes_are_seen_when_their_line_is_written_back() {
        let (arena, mut recorder) = recorder();
        recorder.expect_exclusive(1, arena.address(), 128);
        arena.set_word(0, 1);
        arena.set_word(64, 2);
        recorder.write_back(1, arena.address() + 64, Location::caller());
        assert_eq!(stores(&recorder.log), [(64, 2)]);
        recorder.fence(1, Location::caller());
        assert_eq!(stores(&recorder.log), [(64, 2), (0, 1)]);
    }

    #[test]
    fn a_change_of_files_is_seen_at_the_next_step() {
        let (_, mut recorder) = recorder();
        let files = Simulated::new();
        recorder.follow_files(files.clone());
        for name in ["a", "b"] {
            recorder.expect_files();
            files.create(name).expect("a file");
            recorder.settle(1, false);
        }
        let log = recorder.finish().expect("nothing escaped");
        assert!(
            matches!(log[..], [Entry::Files { version: 1 }, Entry::Files { version: 2 }]),
            "{log:?}"
        );
        let versions = recorder.take_files();
        let names: Vec<_> = versions.iter().map(|files| files.names().expect("a list")).collect();
        assert_eq!(names, [vec![], vec!["a"], vec!["a", "b"]]);
    }

    #[test]
    fn a_store_that_no_hook_announced_is_found() {
        let (arena, mut recorder) = recorder();
        arena.set_word(8, 1);
        let error = recorder.finish().expect_err("a store escaped");
        assert!(error.contains("0x8 escaped"), "{error}");
    }
}
