//! The two threads that a pool with a log has: one writes the log, the other one writes images.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use pando_pmem::Domain;
use pando_tc::{ImageStat, MapList, Maps, TransactionComponent};

use crate::Error;

/// An image is due when the log behind the newest one has this many times its bytes. An image reads
/// every record, so frequent images slow writers down. A recovery replays at most this much.
const LOG_PER_IMAGE: u64 = 4;
/// No image is due before the log has this many bytes.
const LEAST_LOG_BYTES: u64 = 64 << 20;
/// The time between two looks whether an image is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest time between two attempts that fail.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Gives the maps of the pool.
type ListMaps = dyn Fn() -> Result<MapList, Error> + Send + Sync;

/// The threads, which end when this is dropped.
pub(super) struct Keeper<D: Domain, M: Maps> {
    shared: Arc<Shared<D, M>>,
    threads: Vec<JoinHandle<()>>,
}

/// The state that the threads share.
struct Shared<D: Domain, M: Maps> {
    component: Arc<TransactionComponent<D, M>>,
    list: Box<ListMaps>,
    is_enough: AtomicBool,
    /// One thread writes an image at a time.
    image: Mutex<()>,
    /// The newest one; zeroes if there is none.
    newest: Mutex<ImageStat>,
    /// Why the last one failed, if it did.
    image_error: Mutex<Option<String>>,
}

impl<D: Domain, M: Maps> Shared<D, M> {
    /// Writes an image.
    fn write_image(&self) -> Result<(), Error> {
        let _lock = self.image.lock().unwrap_or_else(PoisonError::into_inner);
        let written = self.component.write_image(&self.list, &self.is_enough);
        *self.image_error() = written.as_ref().err().map(Error::to_string);
        if let Some(newest) = written? {
            *self.newest() = newest;
        }
        Ok(())
    }

    fn newest(&self) -> MutexGuard<'_, ImageStat> {
        // Each change is whole.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn image_error(&self) -> MutexGuard<'_, Option<String>> {
        // Each change is whole.
        self.image_error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes images when they are due.
    fn write_images(&self) {
        let lock = self.image.lock().unwrap_or_else(PoisonError::into_inner);
        // An error here is that of the next image, too.
        let _ = self.component.release_behind_image();
        drop(lock);
        let mut pause = LOOK_EVERY;
        // Relaxed: it orders nothing.
        while !self.is_enough.load(Ordering::Relaxed) {
            std::thread::park_timeout(pause);
            let lsn = self.component.newest_lsn().unwrap_or_default();
            let newest = *self.newest();
            let log_bytes = lsn.saturating_sub(newest.from_lsn);
            if log_bytes < (LOG_PER_IMAGE * newest.bytes).max(LEAST_LOG_BYTES) {
                continue;
            }
            pause = match self.write_image() {
                Ok(()) => LOOK_EVERY,
                // Nothing is lost: the log grows instead.
                Err(_) => (pause * 2).min(MAX_PAUSE),
            };
        }
    }
}

impl<D: Domain, M: Maps + 'static> Keeper<D, M> {
    /// Starts the threads.
    pub fn begin(
        component: Arc<TransactionComponent<D, M>>,
        list: Box<ListMaps>,
    ) -> Result<Self, Error> {
        let (is_enough, image) = (AtomicBool::new(false), Mutex::new(()));
        // An error here is reported by the next image.
        let newest = Mutex::new(component.newest_image().ok().flatten().unwrap_or_default());
        let image_error = Mutex::new(None);
        let shared = Arc::new(Shared { component, list, is_enough, image, newest, image_error });
        let mut keeper = Self { shared, threads: Vec::new() };
        keeper.start("pando-log", |shared| {
            shared.component.log().write_until(&*shared.component, &shared.is_enough);
        })?;
        keeper.start("pando-image", Shared::write_images)?;
        Ok(keeper)
    }

    fn start(&mut self, name: &str, run: fn(&Shared<D, M>)) -> Result<(), Error> {
        let shared = self.shared.clone();
        let started = Builder::new().name(name.to_owned()).spawn(move || run(&shared));
        self.threads.push(started.map_err(|cause| Error::Io {
            action: "start a thread for the log",
            path: self.shared.component.log().path().into(),
            cause,
        })?);
        Ok(())
    }

    /// Why the newest image failed, if it did.
    pub fn image_error(&self) -> Option<String> {
        self.shared.image_error().clone()
    }

    /// Writes an image now.
    pub fn write_image(&self) -> Result<(), Error> {
        self.shared.write_image()
    }
}

impl<D: Domain, M: Maps> Drop for Keeper<D, M> {
    fn drop(&mut self) {
        // Relaxed: it orders nothing; the threads are joined.
        self.shared.is_enough.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // It panics only because of a bug, and the panic was reported.
            let _ = thread.join();
        }
    }
}
