//! The medium that the wB+-Tree paper's simulator models (its table 4), as a domain: what it would
//! make a thread wait, and what it would wear, by count. No thread really waits, so the figures do
//! not depend on this machine, and the work of the processor is not in them.
//!
//! * **Read.** A line that is not cached comes from the medium in [`READ_LINE_NS`]. Prefetched
//!   lines come at the same time, and a load waits for the rest of that time.
//! * **Written back.** Each of the line's words that the medium has otherwise takes
//!   [`WRITE_WORD_NS`]; the next fence waits for all words written back since the last.
//! * **Evicted.** A changed line that is replaced by another one is written too. No thread waits
//!   for that: the paper's processor has a queue of 32 lines for it.
//! * **The cache** is direct-mapped, of [`CACHED_LINES`] lines: a sixteenth of the paper's, as
//!   there are fewer records.
//!
//! Only one thread, and only between [`begin`] and [`end`]. Its pools must exist until then.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use pando_pmem::{Adr, Domain};

/// 230 cycles at 3 GHz.
pub const READ_LINE_NS: u64 = 77;
/// 450 cycles at 3 GHz.
pub const WRITE_WORD_NS: u64 = 150;
/// Lines of the cache: 512 KiB.
pub const CACHED_LINES: usize = 8192;
/// Energy of a bit read and of a bit written, in picojoules.
pub const BIT_PJ: (u64, u64) = (2, 16);

const LINE_BYTES: usize = 64;

/// As [`Adr`], on the paper's medium.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pcm;

/// What the medium has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// How long the thread has waited.
    pub waited_ns: u64,
    /// Lines read.
    pub lines_read: u64,
    /// Words written that the medium had otherwise, and bits of these.
    pub words_written: u64,
    /// Bits that were changed.
    pub bits_written: u64,
    /// Write-backs that were asked for.
    pub write_backs: u64,
    /// Fences.
    pub fences: u64,
}

impl Done {
    /// What was done since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            waited_ns: self.waited_ns - earlier.waited_ns,
            lines_read: self.lines_read - earlier.lines_read,
            words_written: self.words_written - earlier.words_written,
            bits_written: self.bits_written - earlier.bits_written,
            write_backs: self.write_backs - earlier.write_backs,
            fences: self.fences - earlier.fences,
        }
    }

    /// Energy of what was read and written, in picojoules.
    pub fn energy_pj(self) -> u64 {
        self.lines_read * 8 * LINE_BYTES as u64 * BIT_PJ.0 + self.bits_written * BIT_PJ.1
    }
}

type Content = [u64; 8];

/// A place of the cache.
#[derive(Clone, Copy, Default)]
struct Place {
    /// The line's number; zero for none.
    line: usize,
    /// When it is there.
    ready_ns: u64,
    /// What the medium has, if the line was stored to.
    on_medium: Option<Content>,
}

#[derive(Default)]
struct Medium {
    is_on: bool,
    done: Done,
    places: Vec<Place>,
    pending_ns: u64,
}

thread_local! {
    static MEDIUM: RefCell<Medium> = RefCell::default();
}

/// What the line holds now.
fn content(line: usize) -> Content {
    std::array::from_fn(|word| {
        let address = (line * LINE_BYTES + word * 8) as *mut u64;
        // SAFETY: a line that was stored to lies in a pool that is there until `end`; words of a
        // pool are aligned and only accessed atomically.
        unsafe { AtomicU64::from_ptr(address) }.load(Ordering::Relaxed)
    })
}

impl Medium {
    /// Writes what the line holds to the medium, which has `before`; how many words differ.
    fn write(&mut self, line: usize, before: &Content) -> u64 {
        let mut words = 0;
        for (now, before) in content(line).iter().zip(before) {
            words += u64::from(now != before);
            self.done.bits_written += u64::from((now ^ before).count_ones());
        }
        self.done.words_written += words;
        words
    }

    /// The place of the line, in which another may be.
    fn place(line: usize) -> usize {
        line % CACHED_LINES
    }

    /// Puts the line into the cache, if it is not there, to be ready at `ready_ns`; whether it was
    /// not.
    fn bring(&mut self, line: usize, ready_ns: u64) -> bool {
        let place = self.places[Self::place(line)];
        if place.line == line {
            return false;
        }
        if let Some(before) = place.on_medium {
            self.write(place.line, &before);
        }
        self.places[Self::place(line)] = Place { line, ready_ns, on_medium: None };
        true
    }

    fn prefetch(&mut self, line: usize) {
        let missed = self.bring(line, self.done.waited_ns + READ_LINE_NS);
        self.done.lines_read += u64::from(missed);
    }

    fn load(&mut self, line: usize) {
        self.prefetch(line);
        self.done.waited_ns = self.done.waited_ns.max(self.places[Self::place(line)].ready_ns);
    }

    fn store(&mut self, line: usize) {
        // A store that misses fetches the line too, but a store buffer hides that.
        self.prefetch(line);
        let place = &mut self.places[Self::place(line)];
        if place.on_medium.is_none() {
            place.on_medium = Some(content(line));
        }
    }

    fn write_back(&mut self, line: usize) {
        self.done.write_backs += 1;
        let place = Self::place(line);
        if self.places[place].line == line
            && let Some(before) = self.places[place].on_medium.take()
        {
            self.pending_ns += WRITE_WORD_NS * self.write(line, &before);
        }
    }

    fn fence(&mut self) {
        self.done.fences += 1;
        self.done.waited_ns += std::mem::take(&mut self.pending_ns);
    }
}

/// Does `work`, if the medium is on.
fn with(work: impl FnOnce(&mut Medium)) {
    // A thread that ends gives its participant slots back, perhaps after its state is gone.
    let _ = MEDIUM.try_with(|medium| {
        let medium = &mut medium.borrow_mut();
        if medium.is_on {
            work(medium);
        }
    });
}

fn lines(address: usize, bytes: usize) -> impl Iterator<Item = usize> {
    address / LINE_BYTES..=(address + bytes.max(1) - 1) / LINE_BYTES
}

/// From now on this thread has an empty cache and such a medium.
pub fn begin() {
    MEDIUM.with_borrow_mut(|medium| {
        let places = vec![Place::default(); CACHED_LINES];
        *medium = Medium { is_on: true, places, ..Medium::default() };
    });
}

/// What the medium has done since [`begin`], as if changed lines that are cached were evicted now.
pub fn done() -> Done {
    MEDIUM.with_borrow_mut(|medium| {
        for place in 0..medium.places.len() {
            let line = medium.places[place].line;
            if let Some(before) = medium.places[place].on_medium.take() {
                medium.write(line, &before);
            }
        }
        medium.done
    })
}

/// From now on there is none.
pub fn end() {
    MEDIUM.take();
}

impl Domain for Pcm {
    fn needs_write_back() -> bool {
        true
    }

    unsafe fn write_back(address: *const u8) {
        with(|medium| medium.write_back(address as usize / LINE_BYTES));
    }

    fn fence() {
        Adr::fence();
        with(Medium::fence);
    }

    fn admit_store(address: usize, bytes: usize) -> bool {
        with(|medium| lines(address, bytes).for_each(|line| medium.store(line)));
        true
    }

    fn observe_load(address: usize, bytes: usize) {
        with(|medium| lines(address, bytes).for_each(|line| medium.load(line)));
    }

    fn observe_prefetch(address: usize) {
        with(|medium| medium.prefetch(address / LINE_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use pando_pmem::layout::CATALOG_OFF;
    use pando_pmem::{CreateOptions, Pool};

    use super::*;

    #[test]
    fn changed_words_are_waited_for_and_lines_come_together() {
        let create = CreateOptions { max_bytes: 1 << 20, ..CreateOptions::default() };
        let pool = Pool::<Pcm>::anonymous(&create).expect("memory");
        let word = |at: u64| pool.word(CATALOG_OFF + at);
        begin();
        (0..4).for_each(|line| pool.prefetch(CATALOG_OFF + line * 64));
        assert_eq!((0..4).map(|line| word(line * 64).load(Ordering::Relaxed)).max(), Some(0));
        assert_eq!((done().waited_ns, done().lines_read), (READ_LINE_NS, 4));
        word(0).store(3, Ordering::Relaxed);
        word(8).store(0, Ordering::Relaxed);
        word(0).flush();
        Pcm::fence();
        let written = done();
        assert_eq!((written.words_written, written.bits_written), (1, 2));
        assert_eq!(written.waited_ns, READ_LINE_NS + WRITE_WORD_NS);
        // Written back again it has not changed; evicted, a change counts and is not waited for.
        word(0).flush();
        Pcm::fence();
        word(64).store(1, Ordering::Relaxed);
        let last = done().since(written);
        assert_eq!((last.waited_ns, last.words_written, last.write_backs), (0, 1, 1));
        end();
    }
}
