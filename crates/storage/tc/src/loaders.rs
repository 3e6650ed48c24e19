//! Threads that put records into the maps of a pool that is being rebuilt.
//!
//! The thread that reads the image and the log fills batches of writes; the others apply them. Two
//! writes of one key are applied in the order in which they were given, because both are in batches
//! for the same thread, or a call of [`wait`](Loaders::wait) lies between them.

use std::hash::{DefaultHasher, Hasher};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Scope, available_parallelism};

use pando_index::RangeIndex;

use crate::error::Result;

/// Bytes of keys and values in a full batch.
const BATCH_BYTES: usize = 256 << 10;
/// Batches that may wait for each thread, or be in its hands.
const BATCHES_OF_EACH: usize = 3;
/// Most threads: one thread cannot read a log for more.
const MOST_THREADS: usize = 8;

/// Writes in their order.
#[derive(Default)]
struct Batch {
    /// Keys and values, one behind the other.
    bytes: Vec<u8>,
    writes: Vec<Write>,
}

struct Write {
    index: Arc<dyn RangeIndex>,
    key_bytes: usize,
    /// `None` removes the key.
    value_bytes: Option<usize>,
}

impl Batch {
    fn push(&mut self, index: &Arc<dyn RangeIndex>, key: &[u8], value: Option<&[u8]>) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        let (key_bytes, value_bytes) = (key.len(), value.map(<[u8]>::len));
        self.writes.push(Write { index: index.clone(), key_bytes, value_bytes });
    }

    /// Applies and forgets all writes.
    fn apply(&mut self) -> pando_index::Result<()> {
        let mut rest = self.bytes.as_slice();
        for Write { index, key_bytes, value_bytes } in &self.writes {
            let (key, behind) = rest.split_at(*key_bytes);
            let (value, behind) = behind.split_at(value_bytes.unwrap_or_default());
            rest = behind;
            match value_bytes {
                Some(_) => drop(index.upsert(key, value)?),
                None => drop(index.remove(key)?),
            }
        }
        self.bytes.clear();
        self.writes.clear();
        Ok(())
    }
}

/// A thread, and the batch that is filled for it.
struct Thread {
    batches: Sender<Batch>,
    next: Batch,
}

/// The threads. They end when this is dropped.
pub(crate) struct Loaders<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    /// Started by the first write.
    threads: Vec<Thread>,
    /// What the threads give back: batches to be used again.
    applied: (Sender<pando_index::Result<Batch>>, Receiver<pando_index::Result<Batch>>),
    /// Batches in the hands of the threads.
    in_flight: usize,
    spare: Vec<Batch>,
    /// The thread that gets the next write in the order of keys.
    turn: usize,
}

impl<'scope, 'env> Loaders<'scope, 'env> {
    pub fn new(scope: &'scope Scope<'scope, 'env>) -> Self {
        let (threads, spare) = Default::default();
        Self { scope, threads, applied: channel(), in_flight: 0, spare, turn: 0 }
    }

    /// Gives the key this value, or removes it, after all earlier writes of the key by this
    /// function.
    pub fn write(
        &mut self,
        index: &Arc<dyn RangeIndex>,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        self.start();
        let mut hasher = DefaultHasher::new();
        hasher.write(key);
        let number = hasher.finish() as usize % self.threads.len();
        self.push(number, index, key, value).map(drop)
    }

    /// Adds a record whose key has no other write before the next call of [`wait`](Self::wait).
    /// Records that come in the order of their keys are best: threads are then at different places.
    pub fn add(&mut self, index: &Arc<dyn RangeIndex>, key: &[u8], value: &[u8]) -> Result<()> {
        self.start();
        if self.push(self.turn, index, key, Some(value))? {
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
            self.send(number)?;
        }
        while self.in_flight > 0 {
            self.take_back()?;
        }
        Ok(())
    }

    fn start(&mut self) {
        if !self.threads.is_empty() {
            return;
        }
        let threads = available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
        for _ in 0..threads {
            let (batches, given) = channel::<Batch>();
            let applied = self.applied.0.clone();
            self.scope.spawn(move || {
                for mut batch in given {
                    // The reading thread ends first only after an error.
                    let _ = applied.send(batch.apply().map(|()| batch));
                }
            });
            self.threads.push(Thread { batches, next: Batch::default() });
        }
    }

    /// Adds a write to a thread's batch; whether the batch was sent.
    fn push(
        &mut self,
        number: usize,
        index: &Arc<dyn RangeIndex>,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<bool> {
        let batch = &mut self.threads[number].next;
        batch.push(index, key, value);
        let is_full = batch.bytes.len() >= BATCH_BYTES;
        if is_full {
            self.send(number)?;
        }
        Ok(is_full)
    }

    fn send(&mut self, number: usize) -> Result<()> {
        while self.in_flight >= BATCHES_OF_EACH * self.threads.len() {
            self.take_back()?;
        }
        let spare = self.spare.pop().unwrap_or_default();
        let thread = &mut self.threads[number];
        let batch = std::mem::replace(&mut thread.next, spare);
        // A thread ends before this only by a panic, which the scope passes on.
        self.in_flight += usize::from(thread.batches.send(batch).is_ok());
        Ok(())
    }

    fn take_back(&mut self) -> Result<()> {
        // Never closed: this has a sender of its own.
        if let Ok(applied) = self.applied.1.recv() {
            self.in_flight -= 1;
            self.spare.push(applied?);
        }
        Ok(())
    }
}
