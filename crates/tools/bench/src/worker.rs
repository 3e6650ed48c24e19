//! A thread of a slice: it draws operations, executes them, and checks each answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::arrival_schedule::ArrivalSchedule;
use crate::error::Fault;
use crate::key_sampler::Picked;
use crate::keys::value_of;
use crate::latency::empty_histogram;
use crate::machine;
use crate::operation_mix::{BATCH, Blend, ScanLengths, Work};
use crate::record::Buffers;
use crate::rng::Rng;
use crate::slice::Slice;
use crate::system::{Order, Refusal, Scan, System};

/// A thread of a slice; `EIGHT` if keys and values have eight bytes.
pub struct Worker<'run, S, const EIGHT: bool> {
    /// The system.
    pub system: &'run S,
    /// The slice.
    pub slice: &'run Slice<'run>,
    /// The number of this thread.
    pub thread: usize,
    /// Set at the end of a timed slice, or when another thread has failed.
    pub stop: &'run AtomicBool,
    /// A scan may end early only if it starts beyond this key.
    pub edge_key: u64,
}

/// The result of a thread.
pub struct Done {
    /// Its start.
    pub start: Instant,
    /// Its end.
    pub end: Instant,
    /// Its core time between start and end.
    pub on_core: Duration,
    /// Number of operations.
    pub operations: u64,
    /// Operations of an open loop that were due but not started.
    pub due_not_begun: u64,
    /// Missed keys, to be searched again when no thread replaces values.
    pub missed: Vec<u64>,
    /// Latencies in nanoseconds.
    pub latency_ns: Histogram<u64>,
}

/// The mutable state of a thread.
struct Hands {
    rng: Rng,
    buffers: Buffers,
    /// Those of the records of a batch.
    batch: [Buffers; BATCH],
    added: u64,
    missed: Vec<u64>,
}

/// Converts the error of a system into a fault.
pub fn refused(key: u64, operation: &'static str) -> impl FnOnce(Refusal) -> Fault {
    move |source| Fault::Refused { key, operation, source }
}

impl<S: System, const EIGHT: bool> Worker<'_, S, EIGHT> {
    fn hands(&self, purpose: u64) -> Hands {
        Hands {
            rng: Rng::new(self.slice.seed ^ (self.thread as u64) << 32 ^ purpose << 48),
            buffers: Buffers::new(self.slice.records.shape),
            batch: std::array::from_fn(|_| Buffers::new(self.slice.records.shape)),
            added: 0,
            missed: Vec::new(),
        }
    }

    /// Reads for the warm-up time, if there are records.
    pub fn warm_up(&self) -> Result<(), Fault> {
        let start = Instant::now();
        let mut hands = self.hands(1);
        while !self.slice.live.is_empty() && start.elapsed() < self.slice.warm_up {
            for _ in 0..64 {
                let key = self.live_key(&mut hands);
                self.read(&mut hands, key)?;
            }
        }
        Ok(())
    }

    /// Executes the operations of this thread.
    pub fn work(&self) -> Result<Done, Fault> {
        let hands = &mut self.hands(2);
        let done = match self.slice.mix.work {
            Work::Load | Work::Insert => {
                self.repeat(self.share(), |turn| self.insert(hands, turn))?
            }
            Work::Delete => self.repeat(self.share(), |turn| self.delete(hands, turn))?,
            Work::ReadBatch => self.repeat(u64::MAX, |_| self.read_batch(hands))?,
            Work::UpdateBatch => self.repeat(u64::MAX, |_| self.upsert_batch(hands))?,
            // A mix of one kind of operation needs no random choice.
            Work::Blend(Blend { reads: 100, insert_every: 0, .. }) => {
                self.repeat(u64::MAX, |_| {
                    let key = self.live_key(hands);
                    self.read(hands, key)
                })?
            }
            Work::Blend(Blend { scans: 100, insert_every: 0, scan, .. }) => {
                self.repeat(u64::MAX, |_| self.scan(hands, scan))?
            }
            Work::Blend(blend) => {
                let limit = match blend.insert_every {
                    0 => u64::MAX,
                    every => self.share() * every,
                };
                self.repeat(limit, |turn| self.blended(hands, blend, turn))?
            }
        };
        Ok(Done { missed: std::mem::take(&mut hands.missed), ..done })
    }

    /// Calls `operation` with 0, 1 and so on, `limit` times or until the slice is stopped.
    #[inline]
    fn repeat(
        &self,
        limit: u64,
        mut operation: impl FnMut(u64) -> Result<(), Fault>,
    ) -> Result<Done, Fault> {
        let mut latency_ns = empty_histogram();
        let on_core_before = machine::thread_time();
        let start = Instant::now();
        let (mut turn, mut due_not_begun) = (0, 0);
        if let Some(rate) = self.slice.rate_ops_per_second {
            let mut schedule = ArrivalSchedule::new(start, rate, self.thread, self.slice.threads);
            while turn < limit {
                let Some(intended) = schedule.wait_for_next(self.stop) else { break };
                operation(turn)?;
                latency_ns.saturating_record(intended.elapsed().as_nanos() as u64);
                turn += 1;
            }
            // A counted slice is complete.
            if turn < limit {
                due_not_begun = schedule.charge_waiting(Instant::now(), &mut latency_ns);
            }
        } else {
            // Each thread executes at least one operation, even if it started late. Relaxed: if the
            // stop is seen a little later, the slice is a little longer.
            while turn < limit && (turn == 0 || !self.stop.load(Ordering::Relaxed)) {
                let before = Instant::now();
                operation(turn)?;
                latency_ns.saturating_record(before.elapsed().as_nanos() as u64);
                turn += 1;
                let untimed_end = limit.min(turn + (self.slice.sample_every - 1));
                while turn < untimed_end {
                    operation(turn)?;
                    turn += 1;
                }
            }
        }
        let end = Instant::now();
        let on_core = machine::thread_time().saturating_sub(on_core_before);
        let missed = Vec::new();
        Ok(Done { start, end, on_core, operations: turn, due_not_begun, missed, latency_ns })
    }

    /// The number of the slice's records that belong to this thread.
    fn share(&self) -> u64 {
        let all = self.slice.target.end - self.slice.target.start;
        let threads = self.slice.threads as u64;
        all / threads + u64::from((self.thread as u64) < all % threads)
    }

    #[inline]
    fn own_key(&self, turn: u64) -> u64 {
        let stride = self.slice.threads as u64;
        self.slice.records.key(self.slice.target.start + turn * stride + self.thread as u64)
    }

    #[inline]
    fn live_key(&self, hands: &mut Hands) -> u64 {
        match self.slice.sampler.pick(&mut hands.rng, &self.slice.live, hands.added) {
            Picked::Live(number) => self.slice.records.key(number),
            Picked::Added(turn) => self.own_key(turn),
        }
    }

    #[inline]
    fn blended(&self, hands: &mut Hands, blend: Blend, turn: u64) -> Result<(), Fault> {
        if blend.insert_every > 0 && turn % blend.insert_every == blend.insert_every - 1 {
            self.insert(hands, hands.added)?;
            hands.added += 1;
            return Ok(());
        }
        let dice = hands.rng.below(100);
        if dice >= 100 - blend.scans {
            return self.scan(hands, blend.scan);
        }
        let key = self.live_key(hands);
        if dice >= blend.reads && dice < blend.reads + blend.updates {
            return self.upsert(hands, key);
        }
        match self.read(hands, key) {
            Err(Fault::Lost { key, .. }) if S::REPLACING_HIDES_KEY => hands.missed.push(key),
            Err(fault) => return Err(fault),
            Ok(()) => {}
        }
        if dice < blend.reads { Ok(()) } else { self.upsert(hands, key) }
    }

    #[inline]
    fn read(&self, hands: &mut Hands, key: u64) -> Result<(), Fault> {
        let (operation, records) = ("a get", self.slice.records);
        let mut checked = Ok(());
        let is_there = self
            .system
            .get(hands.buffers.key::<EIGHT>(key), |value| {
                checked = records.check_value::<EIGHT>(key, value, operation);
            })
            .map_err(refused(key, operation))?;
        if is_there { checked } else { Err(records.lost(key, operation)) }
    }

    #[inline]
    fn read_batch(&self, hands: &mut Hands) -> Result<(), Fault> {
        let (operation, records) = ("a get of many", self.slice.records);
        let numbers: [u64; BATCH] = std::array::from_fn(|_| self.live_key(hands));
        let mut keys = [&[][..]; BATCH];
        for ((key, buffers), &number) in keys.iter_mut().zip(&mut hands.batch).zip(&numbers) {
            *key = buffers.key::<EIGHT>(number);
        }
        let (mut checked, mut found) = (Ok(()), 0_u32);
        self.system
            .get_many(&keys, |index, value| {
                found |= 1 << index;
                let check = records.check_value::<EIGHT>(numbers[index], value, operation);
                if checked.is_ok() {
                    checked = check;
                }
            })
            .map_err(refused(numbers[0], operation))?;
        match numbers.get(found.trailing_ones() as usize) {
            Some(&lost) => Err(records.lost(lost, operation)),
            None => checked,
        }
    }

    #[inline]
    fn upsert(&self, hands: &mut Hands, key: u64) -> Result<(), Fault> {
        let value = value_of(key, hands.rng.bits());
        let (key_bytes, value_bytes) = hands.buffers.record::<EIGHT>(key, value);
        self.system.upsert(key_bytes, value_bytes).map_err(refused(key, "an upsert"))
    }

    #[inline]
    fn upsert_batch(&self, hands: &mut Hands) -> Result<(), Fault> {
        let pairs: [(u64, u64); BATCH] = std::array::from_fn(|_| {
            let key = self.live_key(hands);
            (key, value_of(key, hands.rng.bits()))
        });
        let mut records = [(&[][..], &[][..]); BATCH];
        for ((record, buffers), &(key, value)) in
            records.iter_mut().zip(&mut hands.batch).zip(&pairs)
        {
            *record = buffers.record::<EIGHT>(key, value);
        }
        self.system.upsert_many(&records).map_err(refused(pairs[0].0, "an upsert of many"))
    }

    #[inline]
    fn insert(&self, hands: &mut Hands, turn: u64) -> Result<(), Fault> {
        let (key, operation) = (self.own_key(turn), "an insert");
        let (key_bytes, value_bytes) = hands.buffers.record::<EIGHT>(key, value_of(key, turn));
        match self.system.insert_new(key_bytes, value_bytes).map_err(refused(key, operation))? {
            true => Ok(()),
            false => Err(Fault::Invented { key, operation }),
        }
    }

    #[inline]
    fn delete(&self, hands: &mut Hands, turn: u64) -> Result<(), Fault> {
        let (key, operation) = (self.own_key(turn), "a delete");
        let key_bytes = hands.buffers.key::<EIGHT>(key);
        match self.system.delete(key_bytes).map_err(refused(key, operation))? {
            true => Ok(()),
            false => Err(self.slice.records.lost(key, operation)),
        }
    }

    #[inline]
    fn scan(&self, hands: &mut Hands, scan: ScanLengths) -> Result<(), Fault> {
        let from = self.live_key(hands);
        let due = match scan.max_records - scan.min_records {
            0 => scan.max_records,
            spread => scan.min_records + hands.rng.below(spread + 1),
        };
        let (operation, records) = ("a scan", self.slice.records);
        let (mut found, mut previous, mut fault) = (0, from, None);
        let mut check = |key: &[u8], value: &[u8]| {
            let key = records.check_key::<EIGHT>(key, operation)?;
            let goes_on = match scan.order {
                Order::Ascending => key > previous,
                Order::Descending => key < previous,
            };
            if found == 0 && key != from {
                return Err(records.lost(from, operation));
            } else if found > 0 && !goes_on {
                return Err(Fault::Disorder { previous, key });
            }
            previous = key;
            found += 1;
            records.check_value::<EIGHT>(key, value, operation)
        };
        let from_key = hands.buffers.key::<EIGHT>(from);
        let at = Scan { from: from_key, limit: due, order: scan.order };
        self.system
            .scan(at, |key, value| {
                if fault.is_none() {
                    fault = check(key, value).err();
                }
            })
            .map_err(refused(from, operation))?;
        let may_end_early = match scan.order {
            Order::Ascending => from > self.edge_key,
            Order::Descending => from < self.edge_key,
        };
        match fault {
            Some(fault) => Err(fault),
            None if found == due || (found > 0 && may_end_early) => Ok(()),
            None => Err(Fault::ShortScan { from, found, due }),
        }
    }
}
