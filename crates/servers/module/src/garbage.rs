//! Removal of records whose map has lost its name, by a thread in the background.
//!
//! A map's records are removed when two things have happened, in any order: its entry in the
//! directory has gone (*released*), and Redis has freed its stub (*freed*). So no stub ever leads
//! to records that are gone, and no reader needs a lock: readers on other threads have snapshots.
//!
//! | what | in the pool | after a kill |
//! | --- | --- | --- |
//! | a map gets a number in a load or a copy | listed as garbage | removed at the next start |
//! | it gets its name | the entry is there, it is not listed; one commit | there |
//! | it loses its name | no entry, listed; one commit | removed at the next start |
//! | a database is flushed | a new generation, the old one is listed; one commit | removed at the next start |

use std::collections::HashMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::log;
use crate::store::{Garbage, Store};

/// Records that are removed before the thread looks whether it should end.
const AT_ONCE: usize = 256;

/// The pause after a refusal.
const PAUSE: Duration = Duration::from_secs(1);

/// A map that is not bound to a name.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    is_released: bool,
    is_freed: bool,
}

/// The maps without a name, and the thread that removes their records.
#[derive(Debug)]
pub struct Collector {
    lives: Mutex<HashMap<u64, Life>>,
    queue: Mutex<Option<Sender<Garbage>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Collector {
    /// Starts the thread, which begins with `left`: the garbage of an earlier start.
    pub fn start(store: Arc<Store>, left: Vec<Garbage>) -> Result<Self, std::io::Error> {
        let (queue, work) = mpsc::channel();
        for garbage in left {
            let _ = queue.send(garbage);
        }
        let body = move || collect(&store, &work);
        let thread = std::thread::Builder::new().name("pando-garbage".to_owned()).spawn(body)?;
        Ok(Self {
            lives: Mutex::default(),
            queue: Mutex::new(Some(queue)),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Ends the thread. What is left stays listed in the pool.
    pub fn stop(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic there is in the log already.
        let _ = thread.map(JoinHandle::join);
    }

    /// Hands garbage to the thread.
    pub fn remove(&self, garbage: Garbage) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // If the thread has ended, the next start removes it.
        let _ = queue.as_ref().map(|queue| queue.send(garbage));
    }

    fn change(&self, number: u64, is_new: bool, change: impl FnOnce(&mut Life)) {
        let mut lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        let life = match is_new {
            true => lives.entry(number).or_default(),
            false => match lives.get_mut(&number) {
                Some(life) => life,
                None => return,
            },
        };
        change(life);
        if life.is_released && life.is_freed {
            lives.remove(&number);
            drop(lives);
            self.remove(Garbage::Map(number));
        }
    }

    /// The map has lost its name in the keyspace.
    pub fn unlinked(&self, number: u64) {
        self.change(number, true, |_| {});
    }

    /// The map has no entry in the directory, and is listed as garbage.
    pub fn released(&self, number: u64) {
        self.change(number, true, |life| life.is_released = true);
    }

    /// The map has an entry.
    pub fn named(&self, number: u64) {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    /// Redis has freed the stub. A map that still has its name is left alone: its database is
    /// flushed, and goes as a whole, or the server ends.
    pub fn freed(&self, number: u64) {
        self.change(number, false, |life| life.is_freed = true);
    }
}

/// Removes until the queue is closed. What the pool refuses is tried again after a pause.
fn collect(store: &Store, work: &Receiver<Garbage>) {
    let mut refused = Vec::new();
    let mut retry_at = Instant::now();
    loop {
        let next = match refused.is_empty() {
            true => work.recv().map_err(RecvTimeoutError::from),
            false => work.recv_timeout(retry_at.saturating_duration_since(Instant::now())),
        };
        let mut pending = match next {
            Ok(garbage) => vec![garbage],
            Err(RecvTimeoutError::Timeout) => Vec::new(),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if Instant::now() >= retry_at {
            pending.append(&mut refused);
        }
        while let Some(garbage) = pending.pop() {
            loop {
                match store.remove_some(garbage, AT_ONCE, &mut pending) {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) => {
                        if refused.is_empty() {
                            log::warning(&format!("{garbage:?} is removed later: {error}"));
                        }
                        refused.push(garbage);
                        retry_at = Instant::now() + PAUSE;
                        break;
                    }
                }
                match work.try_recv() {
                    Ok(more) => pending.insert(0, more),
                    Err(TryRecvError::Empty) => {}
                    Err(TryRecvError::Disconnected) => return,
                }
            }
        }
        // Room goes back to the file system. A refusal changes nothing.
        while store.release_room().is_ok_and(|bytes| bytes > 0) {}
    }
}
