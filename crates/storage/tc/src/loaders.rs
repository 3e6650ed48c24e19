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
/// Batches that may wait for a thread, or be in its hands.
const MOST_BATCHES: usize = 3;
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
    fn apply(&mut self) -> pando_index::Result<()> {
        let (mut rest, mut writes) = (self.bytes.as_slice(), self.writes.iter());
        let mut upserts = Vec::new();
        for (index, count) in &self.runs {
            for &(key_bytes, value_bytes) in writes.by_ref().take(*count) {
                let (key, behind) = rest.split_at(key_bytes);
                let (value, behind) = behind.split_at(value_bytes.unwrap_or_default());
                rest = behind;
                if value_bytes.is_some() {
                    upserts.push((key, value));
                    continue;
                }
                index.upsert_many(&upserts)?;
                upserts.clear();
                index.remove(key)?;
            }
            index.upsert_many(&upserts)?;
            upserts.clear();
        }
        self.bytes.clear();
        self.writes.clear();
        self.runs.clear();
        Ok(())
    }
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
    fn start<'scope>(scope: &'scope Scope<'scope, '_>) -> Channels {
        let (batches, given) = channel::<Batch>();
        let (done, applied) = channel();
        scope.spawn(move || {
            for mut batch in given {
                // Nobody takes it back only after an error.
                let _ = done.send(batch.apply().map(|()| batch));
            }
        });
        (batches, applied)
    }

    /// Hands the batch over.
    fn send<'scope>(&mut self, scope: &'scope Scope<'scope, '_>) -> Result<()> {
        while self.in_flight >= MOST_BATCHES {
            self.take_back()?;
        }
        let batch = std::mem::replace(&mut self.next, self.spare.take().unwrap_or_default());
        let (batches, _) = self.channels.get_or_insert_with(|| Self::start(scope));
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
    /// The thread that gets the next record of [`add`](Self::add).
    turn: usize,
}

impl<'scope, 'env> Loaders<'scope, 'env> {
    /// Threads of `scope`: as many as there are processors, or one.
    pub fn new(scope: &'scope Scope<'scope, 'env>, is_sequential: bool) -> Self {
        let number = match is_sequential {
            true => 1,
            false => available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS),
        };
        let threads = (0..number).map(|_| Thread::default()).collect();
        Self { scope, threads, turn: 0 }
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
        self.push(number, index, key, value).map(drop)
    }

    /// Adds a record whose key has no other write before the next call of [`wait`](Self::wait).
    /// Records that come in the order of their keys are best: threads are then at different places.
    pub fn add(&mut self, index: &Arc<dyn RangeIndex>, key: &[u8], value: &[u8]) -> Result<()> {
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
        for thread in &mut self.threads {
            match thread.channels {
                Some(_) => thread.send(self.scope)?,
                // So few that no thread is worth it.
                None => thread.next.apply()?,
            }
        }
        for thread in &mut self.threads {
            while thread.in_flight > 0 {
                thread.take_back()?;
            }
        }
        Ok(())
    }

    /// Adds a write to a thread's batch; whether the batch was handed over.
    fn push(
        &mut self,
        number: usize,
        index: &Arc<dyn RangeIndex>,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<bool> {
        let thread = &mut self.threads[number];
        thread.next.push(index, key, value);
        let is_full = thread.next.bytes.len() >= BATCH_BYTES;
        if is_full {
            thread.send(self.scope)?;
        }
        Ok(is_full)
    }
}
