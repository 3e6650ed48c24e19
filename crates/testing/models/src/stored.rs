//! Pages that are in a store: the component of the models `capture` and `structure`
//! (`pando-bwtree/src/stored.rs`, `load.rs`, `captures.rs`, `marshal.rs`, `multi_word.rs`;
//! `pando-lss/src/queue.rs`, `store.rs`).
//!
//! The functions have the names and the steps of the code. A page's *state* is a number: each write
//! makes the next one. A block has the state of its page, and that of the newest link in its chain
//! that is marked as written. A group has the states of its pages; for each, the state behind which
//! it has all changes (a delta), or 0 (an image). A block has a cell that loom watches: the model
//! fails if a read of the chain is not ordered before the block is used again.
//!
//! [`check`](Stored::check) looks at the groups in their order, and at the words, when all threads
//! have ended:
//!
//! * A later group has no earlier state of a page, and a delta has all changes behind the state
//!   that the store has.
//! * Each group leaves both sides of a change of structure in the store, or none.
//! * If a page is marked as written, the store has its state.
//! * The newest state of an absent page is in the store. No write is lost.
//!
//! These parts are simpler than the code:
//!
//! * A PMwCAS of one word is one CAS. A change of structure installs its references as the code
//!   does (`direct`). If it is interrupted it fails; the code would execute it again.
//! * The list of changes orders nothing, and has one change. (The code's is a `SkipMap`, which
//!   orders more.)
//! * A slot of the queue is a word, and its number is its place. The thread that waits for a group
//!   is the writer: it abandons the slots up to the group that are not filled. If a capture is out
//!   of date, its slot just stays empty. The code's writer has a lock, and writes groups in order;
//!   here an entry of the table never goes back to an earlier slot.
//! * A block is used again if each thread was seen unpinned after its unlinking. `epoch` tests that
//!   the code waits for that. Only captures and marks pin here, because the one thread that frees
//!   a block also uses it again.
//! * The pins, the changes of structure and the store's table are only in the models that need them
//!   ([`Parts`]).
//!
//! Bounds of groups, removed pages and the rules of the root are not modelled.

use std::sync::atomic::AtomicU64;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{Ordering, fence};
use loom::thread;

use crate::atomic::Atomic;

/// The parts that the mutants change.
#[derive(Clone, Copy)]
pub struct Code {
    /// `Link::at` and `Pmwcas::read`.
    pub read: Ordering,
    /// The CAS by which a write, a load or a change of structure replaces a word.
    pub change: Ordering,
    /// A write clears the flags.
    pub clears_flags: bool,
    /// The flags that say, in a chain, that the store has the state.
    pub kept_in_chain: u64,
    /// `capture`: a full barrier between the number and the loads that follow.
    pub has_barrier: bool,
    /// The CAS by which `capture` sets its flag.
    pub capture: Ordering,
    /// The load of the count of captures is sequentially consistent. For loom, that is a fence
    /// before it.
    pub look_fenced: bool,
    /// `capture` pins; before it takes its number. It unpins after its images are made.
    pub capture_pins: bool,
    pub pins_first: bool,
    pub unpins_late: bool,
    /// `capture` reads the count of changes before the list and the words.
    pub counts_first: bool,
    /// `capture` looks whether this capture is the last one, and whether the count of changes is
    /// the same; after its place is reserved.
    pub checks_last: bool,
    pub checks_count: bool,
    pub reserves_first: bool,
    /// A page is marked after its group is written.
    pub waits: bool,
    /// `mark_written` pins. It looks whether its capture is the last one, after it has read the
    /// word.
    pub mark_pins: bool,
    pub mark_looks: bool,
    pub looks_late: bool,
    /// The CAS by which `mark_written` and `install` mark a page.
    pub mark: Ordering,
    /// A change leaves the list after a group that has it is written.
    pub unlists_late: bool,
    /// `evict` takes only pages that are written, and takes a new stamp.
    pub evicts_written: bool,
    pub stamps: bool,
    /// `note` lists the change before its PMwCAS, of which the count is a word.
    pub lists_first: bool,
    pub counts: bool,
}

/// The source.
pub const AS_WRITTEN: Code = Code {
    read: Acquire,
    change: AcqRel,
    clears_flags: true,
    kept_in_chain: WRITTEN,
    has_barrier: true,
    capture: AcqRel,
    look_fenced: true,
    capture_pins: true,
    pins_first: true,
    unpins_late: true,
    counts_first: true,
    checks_last: true,
    checks_count: true,
    reserves_first: true,
    waits: true,
    mark_pins: true,
    mark_looks: true,
    looks_late: true,
    mark: AcqRel,
    unlists_late: true,
    evicts_written: true,
    stamps: true,
    lists_first: true,
    counts: true,
};

/// Acquire and release alone. So no fence hides a mutant.
pub const UNFENCED: Code = Code { look_fenced: false, has_barrier: false, ..AS_WRITTEN };

/// The parts of the protocol that a model has.
#[derive(Clone, Copy, Default)]
pub struct Parts {
    /// Threads pin, so that blocks can be used again.
    pub blocks: bool,
    /// Changes of structure.
    pub structure: bool,
    /// The store is read.
    pub table: bool,
}

pub const WRITTEN: u64 = 1;
pub const CAPTURED: u64 = 2;
const FLAGS: u64 = 3;
const BLOCK_SHIFT: u32 = 4;
const ABSENT: u64 = 1 << 62;
/// A word of the change of structure, while that is installed.
const REFERENCE: u64 = 1 << 63;

const INSTALLING: u64 = 0;
const SUCCEEDED: u64 = 1;
const FAILED: u64 = 2;

/// A slot of the queue that was abandoned, and the bit of one that has a group.
const ABANDONED: u64 = 1;
const FILLED: u64 = 1 << 32;
const STATE_BITS: u32 = 8;
/// Bits of a page in a group: its state, and the state behind which it has the changes.
const PAGE_BITS: u32 = 2 * STATE_BITS;

const PAGES: usize = 2;
/// The blocks of the pages, at first and after the change of structure.
const FIRST_BLOCKS: [u64; PAGES] = [1, 2];
const CHANGED_BLOCKS: [u64; PAGES] = [3, 4];
const BLOCKS: usize = 9;
const SLOTS: usize = 4;
const THREADS: usize = 3;

pub fn spawn<T: 'static>(
    stored: &Arc<Stored>,
    run: impl FnOnce(&Stored) -> T + 'static,
) -> thread::JoinHandle<T> {
    let stored = stored.clone();
    thread::spawn(move || run(&stored))
}

fn link(block: u64) -> u64 {
    block << BLOCK_SHIFT
}

fn block_of(link: u64) -> usize {
    (link >> BLOCK_SHIFT) as usize
}

/// The state that a group has of a page; 0 if the page is not in it.
fn state_in(group: u64, page: usize) -> u64 {
    match group & FILLED {
        0 => 0,
        _ => group >> (PAGE_BITS * page as u32) & ((1 << STATE_BITS) - 1),
    }
}

/// The state of the page behind which a group has the changes; 0: it has an image.
fn state_before(group: u64, page: usize) -> u64 {
    group >> (PAGE_BITS * page as u32 + STATE_BITS) & ((1 << STATE_BITS) - 1)
}

#[derive(Default)]
struct Block {
    /// The state of the page whose chain is here. Its readers are checked by the cell.
    state: AtomicU64,
    /// The state of the newest link below that is marked as written; 0 if none is.
    marked: AtomicU64,
    cell: UnsafeCell<()>,
}

/// Pages whose states were captured.
pub struct Captured {
    number: u64,
    changes: u64,
    links: [Option<u64>; PAGES],
    place: Option<usize>,
}

pub struct Stored {
    code: Code,
    parts: Parts,
    /// The mapping words.
    words: [Atomic; PAGES],
    blocks: [Block; BLOCKS],
    /// Blocks that were never used.
    fresh: AtomicU64,
    pinned: [Atomic; THREADS],
    captures: Atomic,
    stamps: Atomic,
    /// Changes of structure; of the only one, the status and the links that it replaces.
    changes: Atomic,
    status: Atomic,
    expected: [AtomicU64; PAGES],
    /// The count to which the listed change leads; 0 if none is listed.
    listed: Atomic,
    /// Slots that were reserved.
    reserved: Atomic,
    slots: [Atomic; SLOTS],
    /// For each page the slot that has it, plus 1, and its state.
    table: [Atomic; PAGES],
    /// Writes of each page that have taken place.
    writes: [AtomicU64; PAGES],
}

// SAFETY: the test is about the cells; loom reports accesses that are not ordered.
unsafe impl Sync for Stored {}
// SAFETY: as for Sync.
unsafe impl Send for Stored {}

impl Stored {
    /// Two pages in the pool, of state 1, which the store does not have.
    pub fn new(code: Code, parts: Parts) -> Arc<Self> {
        let stored = Self {
            code,
            parts,
            words: FIRST_BLOCKS.map(|block| Atomic::new(link(block))),
            blocks: Default::default(),
            fresh: AtomicU64::new(5),
            pinned: Default::default(),
            captures: Atomic::new(0),
            stamps: Atomic::new(0),
            changes: Atomic::new(0),
            status: Atomic::new(INSTALLING),
            expected: Default::default(),
            listed: Atomic::new(0),
            reserved: Atomic::new(0),
            slots: Default::default(),
            table: Default::default(),
            writes: Default::default(),
        };
        for block in FIRST_BLOCKS {
            stored.fill(block, 1, 0);
        }
        Arc::new(stored)
    }

    /// Reads the chain that `link` leads to.
    fn state(&self, link: u64) -> u64 {
        let block = &self.blocks[block_of(link)];
        block.cell.with(|_| ());
        block.state.load(Relaxed)
    }

    fn fill(&self, block: u64, state: u64, marked: u64) {
        let block = &self.blocks[block as usize];
        block.cell.with_mut(|_| ());
        block.state.store(state, Relaxed);
        block.marked.store(marked, Relaxed);
    }

    /// A block that was never used, with these states.
    fn new_block(&self, state: u64, marked: u64) -> u64 {
        let block = self.fresh.fetch_add(1, Relaxed);
        self.fill(block, state, marked);
        block
    }

    /// `next`: the state of the newest marked link of a chain that is prepended to `link`.
    fn marked(&self, link: u64) -> u64 {
        match link & self.code.kept_in_chain {
            0 => self.blocks[block_of(link)].marked.load(Relaxed),
            _ => self.state(link),
        }
    }

    fn pin(&self, thread: usize) {
        if self.parts.blocks {
            let _ = self.pinned[thread].compare_exchange(0, 1, AcqRel, Relaxed);
            fence(SeqCst);
        }
    }

    fn unpin(&self, thread: usize) {
        if self.parts.blocks {
            self.pinned[thread].store(0, Release);
        }
    }

    fn cas(&self, word: &Atomic, old: u64, new: u64, order: Ordering) -> bool {
        loop {
            match word.compare_exchange(old, new, order, Acquire) {
                Ok(_) => return true,
                Err(REFERENCE) => self.settle_reference(word),
                Err(_) => return false,
            }
        }
    }

    /// The values of a word before and after the change of structure.
    fn target(&self, word: &Atomic) -> [u64; 2] {
        let page = self.words.iter().position(|page| std::ptr::eq(page, word));
        let of_page = |page: usize| [self.expected[page].load(Relaxed), link(CHANGED_BLOCKS[page])];
        page.map_or([0, 1], of_page)
    }

    /// `settle_reference`, `interrupt`, `complete_word`.
    fn settle_reference(&self, word: &Atomic) {
        let _ = self.status.compare_exchange(INSTALLING, FAILED, AcqRel, Acquire);
        self.complete_word(word);
    }

    fn complete_word(&self, word: &Atomic) {
        let [old, new] = self.target(word);
        let value = if self.status.load(Acquire) == SUCCEEDED { new } else { old };
        let _ = word.compare_exchange(REFERENCE, value, self.code.change, Acquire);
    }

    /// `Pmwcas::read`.
    fn read(&self, word: &Atomic) -> u64 {
        loop {
            let found = word.load(self.code.read);
            if found != REFERENCE {
                return found;
            }
            if self.status.load(Acquire) == INSTALLING {
                return self.target(word)[0];
            }
            self.complete_word(word);
        }
    }

    /// A write, or a consolidation: replaces the page's link, if the page is in the pool and has
    /// not changed meanwhile. Returns the link that was replaced.
    pub fn write(&self, page: usize) -> Option<u64> {
        let old = self.read(&self.words[page]);
        if old & ABSENT != 0 {
            return None;
        }
        let flags = if self.code.clears_flags { 0 } else { old & FLAGS };
        let new = link(self.new_block(self.state(old) + 1, self.marked(old))) | flags;
        let is_done = self.cas(&self.words[page], old, new, self.code.change);
        self.writes[page].fetch_add(is_done.into(), Relaxed);
        is_done.then_some(old)
    }

    /// Writes once more, into the block of the link `freed`, if that may be used again.
    pub fn write_again(&self, page: usize, freed: u64) {
        fence(SeqCst);
        if self.pinned.iter().any(|pinned| pinned.load(Acquire) != 0) {
            return;
        }
        let old = self.read(&self.words[page]);
        self.fill(block_of(freed) as u64, self.state(old) + 1, self.marked(old));
        let new = freed & !FLAGS;
        let is_done = self.cas(&self.words[page], old, new, self.code.change);
        self.writes[page].fetch_add(is_done.into(), Relaxed);
    }

    /// A change of structure of both pages: `note`, `execute_direct`, `forget_unless`. Returns
    /// whether it took place.
    pub fn split(&self) -> bool {
        for (expected, word) in self.expected.iter().zip(&self.words) {
            expected.store(self.read(word), Relaxed);
        }
        let before = self.read(&self.changes);
        if self.code.lists_first {
            self.listed.store(before + 1, Relaxed);
        }
        let is_done = self.execute_direct();
        if is_done && !self.code.lists_first {
            self.listed.store(before + 1, Relaxed);
        }
        if !is_done {
            self.listed.store(0, Relaxed);
        }
        for writes in self.writes.iter().filter(|_| is_done) {
            writes.fetch_add(1, Relaxed);
        }
        is_done
    }

    fn execute_direct(&self) -> bool {
        CHANGED_BLOCKS.iter().for_each(|&block| self.fill(block, 2, 0));
        // By address: page 0 is the root, whose word is before the count.
        let targets = [&self.words[0], &self.changes, &self.words[1]];
        let targets = targets
            .into_iter()
            .filter(|&word| self.code.counts || !std::ptr::eq(word, &raw const self.changes));
        let targets: Vec<&Atomic> = targets.collect();
        let is_installed = targets.iter().all(|word| {
            let [old, _] = self.target(word);
            word.compare_exchange(old, REFERENCE, self.code.change, Acquire).is_ok()
        });
        let end = if is_installed { SUCCEEDED } else { FAILED };
        let decided = self.status.compare_exchange(INSTALLING, end, AcqRel, Acquire);
        targets.iter().for_each(|word| self.complete_word(word));
        is_installed && decided.is_ok()
    }

    fn take_number(&self) -> u64 {
        let number = self.captures.fetch_add(1, AcqRel) + 1;
        if self.code.has_barrier {
            fence(SeqCst);
        }
        number
    }

    fn is_last(&self, captured: &Captured) -> bool {
        if self.code.look_fenced {
            fence(SeqCst);
        }
        self.captures.load(Acquire) == captured.number
    }

    /// The count of changes, and the pages to capture: `wanted`, and those of listed changes.
    fn listed(&self, wanted: [bool; PAGES]) -> (u64, [bool; PAGES]) {
        if !self.parts.structure {
            return (0, wanted);
        }
        let changes = self.read(&self.changes);
        let listed = self.listed.load(Relaxed);
        let is_listed = listed != 0 && listed <= changes;
        (changes, wanted.map(|is_wanted| is_wanted || is_listed))
    }

    /// `capture`, up to its images: `capture_words`.
    pub fn capture(&self, thread: usize, wanted: [bool; PAGES]) -> Captured {
        let code = &self.code;
        if code.capture_pins && code.pins_first {
            self.pin(thread);
        }
        let number = self.take_number();
        if code.capture_pins && !code.pins_first {
            self.pin(thread);
        }
        let (mut changes, all) = self.listed(wanted);
        let mut captured = Captured { number, changes, links: [None; PAGES], place: None };
        for page in (0..PAGES).filter(|&page| all[page]) {
            let found = self.read(&self.words[page]);
            if found & ABSENT != 0 || found & WRITTEN != 0 {
                continue;
            }
            let new = found | CAPTURED;
            self.cas(&self.words[page], found, new, code.capture);
            captured.links[page] = Some(new);
        }
        if !code.counts_first {
            changes = self.read(&self.changes);
        }
        captured.changes = changes;
        if !code.unlists_late {
            self.unlist(changes);
        }
        captured
    }

    /// The rest of `capture`: the images; then the function `append`, which is `append_with`.
    pub fn append(&self, thread: usize, captured: &mut Captured) {
        let code = &self.code;
        if !code.unpins_late {
            self.unpin(thread);
        }
        let group = self.writes_of(captured);
        let early = if code.reserves_first { None } else { Some(self.is_current(captured)) };
        let place = self.reserved.fetch_add(1, AcqRel) as usize;
        // If it is out of date, the slot stays empty: the writer takes it as abandoned.
        if early.unwrap_or_else(|| self.is_current(captured)) {
            let filled = self.slots[place].compare_exchange(0, group, AcqRel, Acquire);
            captured.place = filled.is_ok().then_some(place);
        }
        if code.unpins_late {
            self.unpin(thread);
        }
    }

    fn is_current(&self, captured: &Captured) -> bool {
        let is_last = self.is_last(captured) || !self.code.checks_last;
        let is_same = || {
            !self.parts.structure
                || self.read(&self.changes) == captured.changes
                || !self.code.checks_count
        };
        is_last && is_same()
    }

    fn writes_of(&self, captured: &Captured) -> u64 {
        let mut group = FILLED;
        for (page, link) in captured.links.iter().enumerate() {
            if let &Some(link) = link {
                let marked = self.blocks[block_of(link)].marked.load(Relaxed);
                group |= (self.state(link) | marked << STATE_BITS) << (PAGE_BITS * page as u32);
            }
        }
        group
    }

    /// `PageStore::wait`, by the thread that is the writer.
    fn wait(&self, place: usize) {
        for (place, slot) in self.slots.iter().enumerate().take(place + 1) {
            let Err(group) = slot.compare_exchange(0, ABANDONED, AcqRel, Acquire) else { continue };
            for page in (0..PAGES).filter(|_| self.parts.table) {
                if state_in(group, page) > 0 {
                    let entry = (place as u64 + 1) << STATE_BITS | state_in(group, page);
                    self.table[page].fetch_max(entry, Release);
                }
            }
        }
    }

    /// Waits until the group of the capture is written, if it was appended, and marks its pages.
    pub fn finish(&self, thread: usize, captured: &Captured) {
        let Some(place) = captured.place else { return };
        if self.code.waits {
            self.wait(place);
        }
        self.mark_written(thread, captured);
        if !self.code.waits {
            self.wait(place);
        }
    }

    fn mark_written(&self, thread: usize, captured: &Captured) {
        if self.code.mark_pins {
            self.pin(thread);
        }
        for (page, link) in captured.links.iter().enumerate() {
            let &Some(link) = link else { continue };
            let early = if self.code.looks_late { None } else { Some(self.is_last(captured)) };
            if self.read(&self.words[page]) != link {
                continue;
            }
            let looks = || !self.code.mark_looks || self.is_last(captured);
            if !early.unwrap_or_else(looks) {
                break;
            }
            self.cas(&self.words[page], link, link & !FLAGS | WRITTEN, self.code.mark);
        }
        self.unlist(captured.changes);
        if self.code.mark_pins {
            self.unpin(thread);
        }
    }

    fn unlist(&self, changes: u64) {
        if self.parts.structure {
            let listed = self.listed.load(Relaxed);
            if listed != 0 && listed <= changes {
                let _ = self.listed.compare_exchange(listed, 0, Relaxed, Relaxed);
            }
        }
    }

    /// Captures pages, writes them and marks them; writes nothing if the capture is out of date.
    pub fn flush(&self, thread: usize, wanted: [bool; PAGES]) {
        let mut captured = self.capture(thread, wanted);
        self.append(thread, &mut captured);
        self.finish(thread, &captured);
    }

    /// Lets the page count as changed, if it is written.
    pub fn unmark(&self, page: usize) {
        let link = self.read(&self.words[page]);
        if link & ABSENT == 0 && link & WRITTEN != 0 {
            self.cas(&self.words[page], link, link & !FLAGS, self.code.mark);
        }
    }

    /// Returns the state that was evicted.
    pub fn evict(&self, page: usize) -> Option<u64> {
        let link = self.read(&self.words[page]);
        if link & ABSENT != 0 || self.code.evicts_written && link & WRITTEN == 0 {
            return None;
        }
        let state = self.state(link);
        let stamp = self.stamps.fetch_add(1, Relaxed) + 1;
        let new = ABSENT | if self.code.stamps { stamp } else { 0 };
        let is_done = self.cas(&self.words[page], link, new, AcqRel);
        is_done.then_some(state)
    }

    /// The state that the store has of the page.
    pub fn read_store(&self, page: usize) -> u64 {
        self.table[page].load(Acquire) & ((1 << STATE_BITS) - 1)
    }

    /// `load` and `install`.
    pub fn load(&self, page: usize) {
        let absent = self.read(&self.words[page]);
        if absent & ABSENT == 0 {
            return;
        }
        let link = link(self.new_block(self.read_store(page), 0));
        if self.cas(&self.words[page], absent, link, self.code.change) {
            self.cas(&self.words[page], link, link | WRITTEN, self.code.mark);
        }
    }

    /// Ends a capture that is not appended.
    pub fn give_up(&self, thread: usize) {
        self.unpin(thread);
    }

    /// Fails unless all that `stored.rs` promises holds. All threads have ended.
    pub fn check(&self) {
        let mut store = [0; PAGES];
        for slot in &self.slots {
            let group = slot.load(Acquire);
            for (page, state) in store.iter_mut().enumerate() {
                let written = state_in(group, page);
                assert!(written == 0 || *state <= written, "an older state is written later");
                let before = state_before(group, page);
                assert!(written == 0 || before <= *state, "a delta lacks a change");
                *state = (*state).max(written);
            }
            if self.parts.structure {
                let has_change = store.map(|state| state >= 2);
                assert_eq!(has_change[0], has_change[1], "half of a change is written");
            }
        }
        for (page, stored) in store.into_iter().enumerate() {
            let newest = 1 + self.writes[page].load(Relaxed);
            let word = self.words[page].load(Acquire);
            if word & ABSENT != 0 {
                assert_eq!(stored, newest, "an eviction has lost a write");
                continue;
            }
            assert_eq!(self.state(word), newest, "a write is lost");
            assert!(word & WRITTEN == 0 || stored == newest, "a page is marked, and not written");
        }
    }
}
