//! The two threads that a pool with a log has: one writes the log, the other one writes images.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use pando_pmem::Domain;
use pando_tc::{ImageStat, MapList, Maps, TransactionComponent};

use crate::Error;

/// There is a new image when the log behind the newest one has so many times its bytes. An image
/// reads every record, so more of them would take more time from the writers; a recovery reads at
/// most so much of the log.
const LOG_PER_IMAGE: u64 = 4;
/// But not before the log has so many bytes.
const LEAST_LOG_BYTES: u64 = 64 << 20;
/// How often the thread looks whether an image is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest time between two attempts that fail.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Gives the maps of the pool.
type ListMaps = dyn Fn() -> Result<MapList, Error> + Send + Sync;

/// Writes an image, or looks how the newest one is.
type WriteImage = dyn Fn() -> Result<Option<ImageStat>, Error> + Send + Sync;

/// The threads, which end when this is dropped.
pub(super) struct Keeper {
    is_enough: Arc<AtomicBool>,
    end_writer: Box<dyn Fn() + Send + Sync>,
    write_image: Arc<WriteImage>,
    threads: Vec<JoinHandle<()>>,
}

impl Keeper {
    /// Starts the threads.
    pub fn begin<D: Domain, M: Maps + 'static>(
        component: &Arc<TransactionComponent<D, M>>,
        list: Box<ListMaps>,
    ) -> Result<Self, Error> {
        let is_enough = Arc::new(AtomicBool::new(false));
        let write_image = image_writer(component.clone(), list, is_enough.clone());
        let mut keeper = Self {
            end_writer: {
                let component = component.clone();
                Box::new(move || component.log().end_writer())
            },
            write_image,
            is_enough,
            threads: Vec::new(),
        };
        let (ours, is_enough) = (component.clone(), keeper.is_enough.clone());
        keeper.start(component, "pando-log", move || {
            ours.log().write_until(&*ours, &is_enough);
        })?;
        let (ours, is_enough) = (component.clone(), keeper.is_enough.clone());
        let write_image = keeper.write_image.clone();
        keeper.start(component, "pando-image", move || {
            // If it cannot be read, the next image says so.
            let mut newest = ours.newest_image().ok().flatten().unwrap_or_default();
            let mut pause = LOOK_EVERY;
            while !is_enough.load(Ordering::Relaxed) {
                std::thread::park_timeout(pause);
                let lsn = ours.newest_lsn().unwrap_or_default();
                let log_bytes = lsn.saturating_sub(newest.from_lsn);
                if log_bytes < (LOG_PER_IMAGE * newest.bytes).max(LEAST_LOG_BYTES) {
                    continue;
                }
                match write_image() {
                    Ok(written) => {
                        newest = written.unwrap_or(newest);
                        pause = LOOK_EVERY;
                    }
                    // The log keeps what the image would have.
                    Err(_) => pause = longer(pause),
                }
            }
        })?;
        Ok(keeper)
    }

    fn start<D: Domain, M>(
        &mut self,
        component: &TransactionComponent<D, M>,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), Error>
    where
        M: Maps,
    {
        let started = Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(started.map_err(|cause| Error::Io {
            action: "start a thread for the log",
            path: component.log().path().into(),
            cause,
        })?);
        Ok(())
    }

    /// Writes an image now.
    pub fn write_image(&self) -> Result<Option<ImageStat>, Error> {
        (self.write_image)()
    }
}

/// The function that writes images, one after the other.
fn image_writer<D: Domain, M: Maps + 'static>(
    component: Arc<TransactionComponent<D, M>>,
    list: Box<ListMaps>,
    is_enough: Arc<AtomicBool>,
) -> Arc<WriteImage> {
    let one_at_a_time = Mutex::new(());
    Arc::new(move || {
        let _lock = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        component.write_image(&list, &is_enough)
    })
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(Duration::from_millis(10), MAX_PAUSE)
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Relaxed: it orders nothing; the threads are joined.
        self.is_enough.store(true, Ordering::Relaxed);
        (self.end_writer)();
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // It panics only because of a bug, and the panic was reported.
            let _ = thread.join();
        }
    }
}
