//! Threads that put records into the maps of a pool that is being rebuilt.
//!
//! The thread that reads the image and the log fills batches of writes; the others apply them. Of
//! two writes of one key, the later one is applied later, or it alone is applied. Both are in
//! batches for the same thread, or a call of [`wait`](Loaders::wait) lies between them.
//!
//! Within a batch, writes are sorted by their keys, so that those of one leaf come together. Of the
//! writes of one key the last one remains. Removals come first, to make room. Each thread
//! begins at another place of its order: else all would work at the same place of an index.

use std::hash::{DefaultHasher, Hasher};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Scope, available_parallelism};

use pando_index::{RangeIndex, Record};
use pando_pmem::mutant;

use crate::error::Result;
use crate::kept::head;

/// Bytes of a full batch that is not sorted.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes that a write takes besides its key and its value, also while its batch is applied.
const WRITE_BYTES: usize =
    size_of::<(usize, Option<usize>)>() + size_of::<Write<'_>>() + size_of::<Record<'_>>();
/// Batches that may wait for a thread, or be in its hands.
const MOST_BATCHES: usize = 3;
/// The same, of large batches: one is applied while the next one is filled.
const MOST_LARGE: usize = 1;
/// Most threads: one thread cannot read a log for more.
const MOST_THREADS: usize = 8;

/// Writes in their order.
#[derive(Default)]
struct Batch {
    /// Keys and values, one behind the other.
    bytes: Vec<u8>,
    /// Bytes of the key and of the value of each; without a value it removes the key.
    writes: Vec<(usize, Option<usize>)>,
    /// The index of the writes from here on, and their number. So a write costs no reference.
    runs: Vec<(Arc<dyn RangeIndex>, usize)>,
}

impl Batch {
    /// The memory that it takes.
    fn taken_bytes(&self) -> usize {
        self.bytes.len() + self.writes.len() * WRITE_BYTES
    }

    fn push(&mut self, index: &Arc<dyn RangeIndex>, key: &[u8], value: Option<&[u8]>) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.writes.push((key.len(), value.map(<[u8]>::len)));
        match self.runs.last_mut() {
            Some((of_run, writes)) if Arc::ptr_eq(of_run, index) => *writes += 1,
            _ => self.runs.push((index.clone(), 1)),
        }
    }

    /// Applies and forgets all writes.
    fn apply(&mut self, order: Order) -> pando_index::Result<()> {
        let (mut rest, mut lengths) = (self.bytes.as_slice(), self.writes.iter());
        let mut groups: Vec<(&Arc<dyn RangeIndex>, Vec<Write<'_>>)> = Vec::new();
        for (index, count) in &self.runs {
            // In the order of the keys, all runs of an index are one. Most batches are of few.
            let place = match order {
                Order::Given => None,
                Order::Keys { .. } => groups.iter().position(|(of, _)| Arc::ptr_eq(of, index)),
            };
            let place = place.unwrap_or(groups.len());
            if place == groups.len() {
                groups.push((index, Vec::with_capacity(*count)));
            }
            let writes = &mut groups[place].1;
            for &(key_bytes, value_bytes) in lengths.by_ref().take(*count) {
                let (key, behind) = rest.split_at(key_bytes);
                let (value, behind) = behind.split_at(value_bytes.unwrap_or_default());
                rest = behind;
                writes.push(Write::new(writes.len(), key, value_bytes.map(|_| value)));
            }
        }
        let (mut upserts, mut removals) = (Vec::new(), Vec::new());
        for (index, mut writes) in groups {
            if let Order::Keys { thread, threads } = order
                && !writes.is_sorted_by(Write::is_before)
            {
                sort(&mut writes);
                let from = writes.len() * thread / threads;
                writes.rotate_left(from);
                // The order remains within each part.
                writes.sort_by_key(|write| write.value.is_some());
            }
            for group in writes.chunk_by(|a, b| a.value.is_some() == b.value.is_some()) {
                upserts.clear();
                removals.clear();
                for write in group {
                    match write.value {
                        Some(value) => upserts.push((write.key, value)),
                        None => removals.push(write.key),
                    }
                }
                index.remove_many(&removals)?;
                index.upsert_many(&upserts)?;
            }
        }
        self.bytes.clear();
        self.writes.clear();
        self.runs.clear();
        Ok(())
    }
}

/// In which order a thread applies the writes of a batch.
#[derive(Clone, Copy)]
enum Order {
    /// That of the log.
    Given,
    /// That of the keys; each thread begins at a part of its own.
    Keys { thread: usize, threads: usize },
}

/// A write of a batch.
#[derive(Clone, Copy)]
struct Write<'batch> {
    /// The key's first bytes, filled up with zeroes: most keys differ in them.
    prefix: u64,
    /// The number in the batch.
    number: usize,
    key: &'batch [u8],
    value: Option<&'batch [u8]>,
}

impl<'batch> Write<'batch> {
    fn new(number: usize, key: &'batch [u8], value: Option<&'batch [u8]>) -> Self {
        Self { prefix: head(key), number, key, value }
    }

    /// Whether the key is a smaller one.
    fn is_before(&self, other: &Self) -> bool {
        (self.prefix, self.key) < (other.prefix, other.key)
    }
}

/// Sorts the writes by their keys. The last one of each key remains.
fn sort(writes: &mut Vec<Write<'_>>) {
    let is_older_kept = mutant!("tc-replays-older");
    // Of two writes of a key the later one comes first.
    let place = |write: &Write<'_>| if is_older_kept { write.number } else { !write.number };
    writes.sort_unstable_by(|a, b| (a.prefix, a.key, place(a)).cmp(&(b.prefix, b.key, place(b))));
    writes.dedup_by(|behind, before| behind.prefix == before.prefix && behind.key == before.key);
}

/// Gives batches to a thread, and gets them back when they are applied.
type Channels = (Sender<Batch>, Receiver<pando_index::Result<Batch>>);

/// A thread, and the batch that is filled for it.
#[derive(Default)]
struct Thread {
    /// `None` until a batch was full.
    channels: Option<Channels>,
    next: Batch,
    spare: Option<Batch>,
    /// Batches that it has not given back.
    in_flight: usize,
}

impl Thread {
    fn start<'scope>(scope: &'scope Scope<'scope, '_>, order: Order) -> Channels {
        let (batches, given) = channel::<Batch>();
        let (done, applied) = channel();
        scope.spawn(move || {
            for mut batch in given {
                // Nobody takes it back only after an error.
                let _ = done.send(batch.apply(order).map(|()| batch));
            }
        });
        (batches, applied)
    }

    /// Hands the batch over.
    fn send<'scope>(&mut self, scope: &'scope Scope<'scope, '_>, order: Order) -> Result<()> {
        let is_large = self.next.taken_bytes() > BATCH_BYTES * 2;
        let most = if is_large { MOST_LARGE } else { MOST_BATCHES };
        while self.in_flight >= most {
            self.take_back()?;
        }
        let batch = std::mem::replace(&mut self.next, self.spare.take().unwrap_or_default());
        let (batches, _) = self.channels.get_or_insert_with(|| Self::start(scope, order));
        // A thread ends before this only by a panic, which the scope passes on.
        self.in_flight += usize::from(batches.send(batch).is_ok());
        Ok(())
    }

    /// Waits until a batch is applied.
    fn take_back(&mut self) -> Result<()> {
        match self.channels.as_ref().map(|(_, applied)| applied.recv()) {
            Some(Ok(applied)) => {
                self.in_flight -= 1;
                self.spare = Some(applied?);
            }
            // As above.
            Some(Err(_)) | None => self.in_flight = 0,
        }
        Ok(())
    }
}

/// The threads. They end when this is dropped.
pub(crate) struct Loaders<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    threads: Vec<Thread>,
    /// Bytes in a full batch of [`write`](Self::write); zero: no batch is sorted.
    sort_bytes: usize,
    /// The thread that gets the next record of [`add`](Self::add).
    turn: usize,
}

impl<'scope, 'env> Loaders<'scope, 'env> {
    /// Threads of `scope`, as many as there are processors, whose full batches have `sort_bytes`
    /// bytes together. If that is zero: one thread, which applies all writes in their order.
    pub fn new(scope: &'scope Scope<'scope, 'env>, sort_bytes: usize) -> Self {
        let number = match sort_bytes {
            0 => 1,
            _ => available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS),
        };
        let threads = (0..number).map(|_| Thread::default()).collect();
        Self { scope, threads, sort_bytes: sort_bytes / number, turn: 0 }
    }

    /// Gives the key this value, or removes it, after all earlier writes of the key by this
    /// function.
    pub fn write(
        &mut self,
        index: &Arc<dyn RangeIndex>,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        let mut hasher = DefaultHasher::new();
        hasher.write(key);
        let number = hasher.finish() as usize % self.threads.len();
        self.push(number, index, key, value, self.sort_bytes.max(BATCH_BYTES)).map(drop)
    }

    /// Adds a record whose key has no other write before the next call of [`wait`](Self::wait).
    /// Records that come in the order of their keys are best: threads are then at different places.
    pub fn add(&mut self, index: &Arc<dyn RangeIndex>, key: &[u8], value: &[u8]) -> Result<()> {
        if self.push(self.turn, index, key, Some(value), BATCH_BYTES)? {
            self.turn = (self.turn + 1) % self.threads.len();
        }
        Ok(())
    }

    /// Returns when all writes are applied.
    ///
    /// # Errors
    ///
    /// That of a write. Others may have been left out.
    pub fn wait(&mut self) -> Result<()> {
        for number in 0..self.threads.len() {
            let (order, thread) = (self.order_of(number), &mut self.threads[number]);
            match thread.channels {
                None if thread.next.taken_bytes() < BATCH_BYTES => thread.next.apply(order)?,
                _ => thread.send(self.scope, order)?,
            }
        }
        for thread in &mut self.threads {
            while thread.in_flight > 0 {
                thread.take_back()?;
            }
        }
        Ok(())
    }

    fn order_of(&self, thread: usize) -> Order {
        match self.sort_bytes {
            0 => Order::Given,
            _ => Order::Keys { thread, threads: self.threads.len() },
        }
    }

    /// Adds a write to a thread's batch; whether the batch was handed over, since it has
    /// `full_bytes`.
    fn push(
        &mut self,
        number: usize,
        index: &Arc<dyn RangeIndex>,
        key: &[u8],
        value: Option<&[u8]>,
        full_bytes: usize,
    ) -> Result<bool> {
        let order = self.order_of(number);
        let thread = &mut self.threads[number];
        thread.next.push(index, key, value);
        let is_full = thread.next.taken_bytes() >= full_bytes;
        if is_full {
            thread.send(self.scope, order)?;
        }
        Ok(is_full)
    }
}
