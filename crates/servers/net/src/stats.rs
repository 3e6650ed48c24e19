//! Counters of the server: for INFO, the metrics, the page and `pando top`.
//!
//! Each event loop has a block of counters on cache lines of its own. Only its thread writes them,
//! by a load and a store without an atomic addition, so counting costs one increment of a cached
//! line. All other threads share one more block and add to it atomically. A reader sums the blocks,
//! so its figures are not all of the same instant.
//!
//! Counters are never reset. `CONFIG RESETSTAT` keeps a copy of them ([`Stats::reset`]), which
//! [`Stats::since_reset`] subtracts.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::histogram::{Histogram, Latencies, add_to};

/// What is counted, apart from calls per command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Executed commands, also failed ones.
    Commands,
    /// Accepted clients of all protocols.
    Connections,
    /// Accepted clients that have disconnected.
    ConnectionsClosed,
    /// Refused clients, because there were too many.
    ConnectionsRejected,
    /// Bytes received from clients.
    BytesIn,
    /// Bytes sent to clients.
    BytesOut,
    /// Keys that a reading command found.
    Hits,
    /// Keys that a reading command did not find.
    Misses,
    /// Expired keys that were removed.
    Expired,
    /// Keys evicted to make room.
    Evicted,
    /// Error replies.
    Errors,
}

/// The number of [`Count`]s.
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

    /// Its name in the metrics and on the page.
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

    /// Its description in the metrics.
    pub const fn help(self) -> &'static str {
        match self {
            Self::Commands => "Executed commands, also failed ones",
            Self::Connections => "Accepted clients",
            Self::ConnectionsClosed => "Accepted clients that have disconnected",
            Self::ConnectionsRejected => "Refused clients, because there were too many",
            Self::BytesIn => "Bytes received from clients",
            Self::BytesOut => "Bytes sent to clients",
            Self::Hits => "Keys that reading commands found",
            Self::Misses => "Keys that reading commands did not find",
            Self::Expired => "Expired keys that were removed",
            Self::Evicted => "Keys evicted to make room",
            Self::Errors => "Error replies",
        }
    }
}

/// The latency histogram in which a command counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It reads keys.
    Read,
    /// It writes keys.
    Write,
    /// It does neither.
    Other,
}

/// The number of [`Kind`]s.
const KINDS: usize = Kind::Other as usize + 1;

/// A command of a protocol, with counters of its own.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Its name.
    pub name: String,
    /// Its latency histogram.
    pub kind: Kind,
}

/// Figures of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Executions, also failed ones.
    pub calls: u64,
    /// Their time, in nanoseconds.
    pub nanoseconds: u64,
    /// Error replies.
    pub failed: u64,
    /// Refusals before execution: a wrong number of arguments, or no permission.
    pub rejected: u64,
}

/// A copy of all counters.
#[derive(Clone, Debug)]
pub struct Figures {
    counts: [u64; COUNTS],
    counted: &'static [Counted],
    /// By number of the command: its index in the list that [`Stats::new`] got.
    pub commands: Vec<Calls>,
    /// Latencies by [`Kind`].
    kinds: [Latencies; KINDS],
}

impl Figures {
    /// The value of a count.
    pub fn get(&self, count: Count) -> u64 {
        self.counts[count as usize]
    }

    /// Connected clients. (A client may connect and disconnect while the blocks are summed, so the
    /// difference may be negative; it is then zero.)
    pub fn connected(&self) -> u64 {
        self.get(Count::Connections).saturating_sub(self.get(Count::ConnectionsClosed))
    }

    /// Latencies of the commands of one kind.
    pub fn latencies(&self, kind: Kind) -> &Latencies {
        &self.kinds[kind as usize]
    }

    /// Latencies of all commands.
    pub fn all_latencies(&self) -> Latencies {
        let mut all = Latencies::default();
        for one in &self.kinds {
            all.add(one);
        }
        all
    }

    /// Each command that was called or refused, with its name.
    pub fn called(&self) -> impl Iterator<Item = (&'static str, Calls)> {
        let names = self.counted.iter().map(|counted| counted.name.as_str());
        let named = names.zip(self.commands.iter().copied());
        named.filter(|(_, calls)| calls.calls + calls.rejected > 0)
    }

    /// Successful writing requests of all protocols.
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
    /// One block per loop, and one for all other threads.
    blocks: Box<[Block]>,
    before_reset: Mutex<Option<Figures>>,
    /// Error replies, by their first word.
    errors: Mutex<BTreeMap<String, u64>>,
}

/// Most first words of errors that have counters of their own.
const MAX_ERROR_CODES: usize = 128;

/// Counters of one event loop, or of all other threads. Blocks share neither a cache line nor a
/// pair of lines that the processor fetches together.
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
    /// The number of the event loop of this thread. A thread runs one loop of one server.
    static LOOP: Cell<usize> = const { Cell::new(usize::MAX) };
}

impl Stats {
    /// Counters for a number of event loops and these commands.
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

    /// Makes this thread the one that runs loop `number`; no other thread may.
    pub fn enter_loop(&self, number: usize) {
        LOOP.set(number);
    }

    #[inline]
    fn here(&self) -> &Block {
        let number = LOOP.get().min(self.blocks.len() - 1);
        &self.blocks[number]
    }

    /// Adds to a count.
    #[inline]
    pub fn add(&self, count: Count, by: u64) {
        let block = self.here();
        add_to(&block.counts[count as usize], by, block.is_shared);
    }

    /// Counts an error reply of these words.
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

    /// Error replies since the last [`reset`](Self::reset), by their first word.
    pub fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().clone()
    }

    /// Counts an executed command by its number.
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

    /// Counts a request of a protocol whose commands have no counters of their own.
    #[inline]
    pub fn note_request(&self, kind: Kind, took: Duration) {
        let block = self.here();
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        add_to(&block.counts[Count::Commands as usize], 1, block.is_shared);
        block.kinds[kind as usize].note(nanoseconds, block.is_shared);
    }

    /// Counts a command that was refused before execution.
    pub fn note_rejected(&self, number: usize) {
        let block = self.here();
        if let Some(calls) = block.commands.get(number) {
            add_to(&calls.rejected, 1, block.is_shared);
        }
    }

    /// The value of a count since the server started.
    pub fn total(&self, count: Count) -> u64 {
        let of = |block: &Block| block.counts[count as usize].load(Ordering::Relaxed);
        self.blocks.iter().map(of).sum()
    }

    /// All counters since the server started.
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

    /// All counters since the last [`reset`](Self::reset). For clients connected before it use
    /// [`figures`](Self::figures).
    pub fn since_reset(&self) -> Figures {
        let mut figures = self.figures();
        if let Some(before) = &*self.before_reset.lock() {
            figures.subtract(before);
        }
        figures
    }

    /// Sets the point in time from which [`since_reset`](Self::since_reset) counts.
    pub fn reset(&self) {
        *self.before_reset.lock() = Some(self.figures());
        self.errors.lock().clear();
    }

    /// The number of event loops.
    pub fn loops(&self) -> usize {
        self.blocks.len() - 1
    }

    /// The time since the server started.
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
