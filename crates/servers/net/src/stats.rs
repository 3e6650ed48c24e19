//! What the server counts of itself: for INFO, the metrics, the page and `pando top`.
//!
//! Each event loop has a block of counters that its thread alone writes, by a load and a store
//! without an atomic addition, on cache lines of its own. Readers add the blocks up. So to count
//! costs an increment in a line that is there already, and a reader sees figures that are a moment
//! apart. All other threads share one more block, which they add to atomically.
//!
//! Nothing here is ever set back; `CONFIG RESETSTAT` remembers what had been counted by then
//! ([`Stats::reset`]), and [`Stats::since_reset`] leaves it out.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::histogram::{Histogram, Latencies, add_to};

/// What is counted, besides commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Commands that were carried out, or failed trying.
    Commands,
    /// Clients that were accepted, of any protocol.
    Connections,
    /// Those of them that have gone.
    ConnectionsClosed,
    /// Clients that were turned away, since there were too many.
    ConnectionsRejected,
    /// Bytes that came from clients.
    BytesIn,
    /// Bytes that went to clients.
    BytesOut,
    /// Keys that a reading command found.
    Hits,
    /// Keys that a reading command did not find.
    Misses,
    /// Keys removed since their time had come.
    Expired,
    /// Keys removed to make room.
    Evicted,
    /// Replies that were errors.
    Errors,
}

/// How many [`Count`]s there are.
const COUNTS: usize = Count::Errors as usize + 1;

impl Count {
    /// All of them, in order.
    pub const ALL: [Count; COUNTS] = [
        Count::Commands,
        Count::Connections,
        Count::ConnectionsClosed,
        Count::ConnectionsRejected,
        Count::BytesIn,
        Count::BytesOut,
        Count::Hits,
        Count::Misses,
        Count::Expired,
        Count::Evicted,
        Count::Errors,
    ];

    /// What it is called, as the metrics and the page have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Commands => "commands",
            Self::Connections => "connections",
            Self::ConnectionsClosed => "connections_closed",
            Self::ConnectionsRejected => "connections_rejected",
            Self::BytesIn => "bytes_in",
            Self::BytesOut => "bytes_out",
            Self::Hits => "hits",
            Self::Misses => "misses",
            Self::Expired => "expired_keys",
            Self::Evicted => "evicted_keys",
            Self::Errors => "errors",
        }
    }

    /// What it says, in a line.
    pub const fn help(self) -> &'static str {
        match self {
            Self::Commands => "Commands that were carried out, or failed trying",
            Self::Connections => "Clients that were accepted",
            Self::ConnectionsClosed => "Accepted clients that have gone",
            Self::ConnectionsRejected => "Clients that were turned away",
            Self::BytesIn => "Bytes that came from clients",
            Self::BytesOut => "Bytes that went to clients",
            Self::Hits => "Keys that reading commands found",
            Self::Misses => "Keys that reading commands did not find",
            Self::Expired => "Keys removed since their time had come",
            Self::Evicted => "Keys removed to make room",
            Self::Errors => "Replies that were errors",
        }
    }
}

/// Which latencies a command's time is counted among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It reads keys.
    Read,
    /// It writes keys.
    Write,
    /// It does neither.
    Other,
}

/// How many [`Kind`]s there are.
const KINDS: usize = Kind::Other as usize + 1;

/// A kind of request that is counted apart: a command of a protocol.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Its name.
    pub name: String,
    /// What its time is counted as.
    pub kind: Kind,
}

/// A command's share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// How often it was carried out, or failed trying.
    pub calls: u64,
    /// What that took, in nanoseconds.
    pub nanoseconds: u64,
    /// How often it answered with an error.
    pub failed: u64,
    /// How often it was refused before it ran: a wrong number of arguments, no permission.
    pub rejected: u64,
}

/// All that was counted until some moment.
#[derive(Clone, Debug)]
pub struct Figures {
    counts: [u64; COUNTS],
    counted: &'static [Counted],
    /// By the commands' numbers: their places in what [`Stats::new`] was given.
    pub commands: Vec<Calls>,
    /// What commands took, by [`Kind`].
    kinds: [Latencies; KINDS],
}

impl Figures {
    /// How many of `count`.
    pub fn get(&self, count: Count) -> u64 {
        self.counts[count as usize]
    }

    /// Clients that are connected. (A client may come while its block is read, so that it seems to
    /// have gone before.)
    pub fn connected(&self) -> u64 {
        self.get(Count::Connections).saturating_sub(self.get(Count::ConnectionsClosed))
    }

    /// What commands of a kind took.
    pub fn latencies(&self, kind: Kind) -> &Latencies {
        &self.kinds[kind as usize]
    }

    /// What all commands took.
    pub fn all_latencies(&self) -> Latencies {
        let mut all = Latencies::default();
        for one in &self.kinds {
            all.add(one);
        }
        all
    }

    /// Each command that was called, or refused, with its name.
    pub fn called(&self) -> impl Iterator<Item = (&'static str, Calls)> {
        let names = self.counted.iter().map(|counted| counted.name.as_str());
        let named = names.zip(self.commands.iter().copied());
        named.filter(|(_, calls)| calls.calls + calls.rejected > 0)
    }

    /// Requests that write, of any protocol, and that did not fail.
    pub fn changes(&self) -> u64 {
        let failed = self.commands.iter().zip(self.counted);
        let failed = failed.filter(|(_, counted)| counted.kind == Kind::Write);
        let failed: u64 = failed.map(|(calls, _)| calls.failed).sum();
        self.latencies(Kind::Write).count().saturating_sub(failed)
    }

    fn subtract(&mut self, earlier: &Self) {
        for (now, before) in self.counts.iter_mut().zip(&earlier.counts) {
            *now = now.saturating_sub(*before);
        }
        for (now, before) in self.commands.iter_mut().zip(&earlier.commands) {
            now.calls = now.calls.saturating_sub(before.calls);
            now.nanoseconds = now.nanoseconds.saturating_sub(before.nanoseconds);
            now.failed = now.failed.saturating_sub(before.failed);
            now.rejected = now.rejected.saturating_sub(before.rejected);
        }
        for (now, before) in self.kinds.iter_mut().zip(&earlier.kinds) {
            now.subtract(before);
        }
    }
}

/// The server's counters; see the module.
#[derive(Debug)]
pub struct Stats {
    started: Instant,
    counted: &'static [Counted],
    /// One for each loop, and one for all other threads.
    blocks: Box<[Block]>,
    before_reset: Mutex<Option<Figures>>,
    /// Replies that were errors, by the first word of each.
    errors: Mutex<BTreeMap<String, u64>>,
}

/// Most first words of errors that are counted apart.
const MAX_ERROR_CODES: usize = 128;

/// What one thread counts, or all that have none of their own. A line of the processor's cache,
/// with the one that it fetches beside it, is in no two blocks.
#[derive(Debug)]
#[repr(align(128))]
struct Block {
    counts: [AtomicU64; COUNTS],
    kinds: [Histogram; KINDS],
    commands: Box<[CallBlock]>,
    /// Whether several threads write it.
    is_shared: bool,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct CallBlock {
    calls: AtomicU64,
    nanoseconds: AtomicU64,
    failed: AtomicU64,
    rejected: AtomicU64,
}

thread_local! {
    /// The number of the loop that this thread runs. A thread runs one of one server.
    static LOOP: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl Stats {
    /// Counters for so many event loops, which carry out these commands.
    pub fn new(loops: usize, counted: &'static [Counted]) -> Self {
        let block = |number| Block {
            counts: [const { AtomicU64::new(0) }; COUNTS],
            kinds: [const { Histogram::new() }; KINDS],
            commands: counted.iter().map(|_| CallBlock::default()).collect(),
            is_shared: number == loops,
        };
        let blocks = (0..=loops).map(block).collect();
        Self {
            started: Instant::now(),
            counted,
            blocks,
            before_reset: Mutex::new(None),
            errors: Mutex::default(),
        }
    }

    /// This thread runs loop `number` from now on, and no other thread does.
    pub fn enter_loop(&self, number: usize) {
        LOOP.set(number);
    }

    #[inline]
    fn here(&self) -> &Block {
        let number = LOOP.get().min(self.blocks.len() - 1);
        &self.blocks[number]
    }

    /// Counts.
    #[inline]
    pub fn add(&self, count: Count, by: u64) {
        let block = self.here();
        add_to(&block.counts[count as usize], by, block.is_shared);
    }

    /// Counts a reply that is an error, in these words.
    #[cold]
    pub fn note_error(&self, words: &str) {
        self.add(Count::Errors, 1);
        let code = words.split(' ').next().unwrap_or_default();
        let mut errors = self.errors.lock();
        let is_full = errors.len() >= MAX_ERROR_CODES;
        if let Some(count) = errors.get_mut(code) {
            *count += 1;
        } else if !is_full {
            errors.insert(code.to_owned(), 1);
        }
    }

    /// Replies that were errors since the last [`reset`](Self::reset), by the first word of each.
    pub fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().clone()
    }

    /// Counts the command of that number, which was carried out, or failed trying.
    #[inline]
    pub fn note_call(&self, number: usize, kind: Kind, took: Duration, has_failed: bool) {
        let block = self.here();
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        add_to(&block.counts[Count::Commands as usize], 1, block.is_shared);
        block.kinds[kind as usize].note(nanoseconds, block.is_shared);
        if let Some(calls) = block.commands.get(number) {
            add_to(&calls.calls, 1, block.is_shared);
            add_to(&calls.nanoseconds, nanoseconds, block.is_shared);
            if has_failed {
                add_to(&calls.failed, 1, block.is_shared);
            }
        }
    }

    /// Counts a request of a protocol whose commands are not counted apart.
    #[inline]
    pub fn note_request(&self, kind: Kind, took: Duration) {
        let block = self.here();
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        add_to(&block.counts[Count::Commands as usize], 1, block.is_shared);
        block.kinds[kind as usize].note(nanoseconds, block.is_shared);
    }

    /// Counts the command of that number, which was refused before it ran.
    pub fn note_rejected(&self, number: usize) {
        let block = self.here();
        if let Some(calls) = block.commands.get(number) {
            add_to(&calls.rejected, 1, block.is_shared);
        }
    }

    /// How much of `count`, since the server started.
    pub fn total(&self, count: Count) -> u64 {
        let of = |block: &Block| block.counts[count as usize].load(Ordering::Relaxed);
        self.blocks.iter().map(of).sum()
    }

    /// All that was counted since the server started.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures {
            counts: Count::ALL.map(|count| self.total(count)),
            counted: self.counted,
            commands: vec![Calls::default(); self.counted.len()],
            kinds: Default::default(),
        };
        for block in &self.blocks {
            for (sum, calls) in figures.commands.iter_mut().zip(&block.commands) {
                sum.calls += calls.calls.load(Ordering::Relaxed);
                sum.nanoseconds += calls.nanoseconds.load(Ordering::Relaxed);
                sum.failed += calls.failed.load(Ordering::Relaxed);
                sum.rejected += calls.rejected.load(Ordering::Relaxed);
            }
            for (sum, kind) in figures.kinds.iter_mut().zip(&block.kinds) {
                kind.add_to(sum);
            }
        }
        figures
    }

    /// All that was counted since the last [`reset`](Self::reset). Clients that were connected by
    /// then still are: ask [`figures`](Self::figures) for them.
    pub fn since_reset(&self) -> Figures {
        let mut figures = self.figures();
        if let Some(before) = &*self.before_reset.lock() {
            figures.subtract(before);
        }
        figures
    }

    /// Begins anew for [`since_reset`](Self::since_reset).
    pub fn reset(&self) {
        *self.before_reset.lock() = Some(self.figures());
        self.errors.lock().clear();
    }

    /// How many event loops there are.
    pub fn loops(&self) -> usize {
        self.blocks.len() - 1
    }

    /// How long the server has run.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    fn counted() -> &'static [Counted] {
        static COUNTED: LazyLock<[Counted; 2]> = LazyLock::new(|| {
            [("get", Kind::Read), ("set", Kind::Write)]
                .map(|(name, kind)| Counted { name: name.to_owned(), kind })
        });
        &*COUNTED
    }

    #[test]
    fn what_loops_and_others_count_adds_up() {
        let stats = Stats::new(2, counted());
        std::thread::scope(|scope| {
            for number in 0..2 {
                let stats = &stats;
                scope.spawn(move || {
                    stats.enter_loop(number);
                    for _ in 0..1000 {
                        stats.add(Count::Hits, 2);
                        stats.note_call(0, Kind::Read, Duration::from_micros(3), false);
                    }
                });
            }
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| stats.add(Count::Hits, 1)));
            }
        });
        let figures = stats.figures();
        assert_eq!(figures.get(Count::Hits), 8000);
        assert_eq!(figures.get(Count::Commands), 2000);
        let calls = Calls { calls: 2000, nanoseconds: 6_000_000, ..Calls::default() };
        assert_eq!(figures.called().collect::<Vec<_>>(), [("get", calls)]);
        assert_eq!(figures.latencies(Kind::Read).count(), 2000);
        assert_eq!(figures.all_latencies().count(), 2000);
    }

    #[test]
    fn a_reset_hides_what_was_before() {
        let stats = Stats::new(1, counted());
        stats.add(Count::Connections, 1);
        stats.note_call(1, Kind::Write, Duration::from_nanos(700), true);
        stats.reset();
        assert_eq!(stats.since_reset().called().count(), 0);
        assert_eq!(stats.since_reset().all_latencies().count(), 0);
        stats.note_call(1, Kind::Write, Duration::from_nanos(700), false);
        assert_eq!(stats.since_reset().get(Count::Commands), 1);
        assert_eq!(stats.figures().get(Count::Commands), 2);
        assert_eq!(stats.figures().changes(), 1, "the first one failed");
        assert_eq!(stats.figures().connected(), 1);
    }

    #[test]
    fn each_count_has_its_place() {
        for (place, count) in Count::ALL.into_iter().enumerate() {
            assert_eq!(count as usize, place);
        }
    }
}
