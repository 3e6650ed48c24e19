//! Objects of a pool that Python holds: maps, scans, snapshots, transactions. They end when their
//! pool is closed, and are of no use in a forked child, which neither uses nor drops them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use pando::Pool;

use crate::failure::{Failure, Outcome};

struct Live<T> {
    // Dropped before the pool.
    object: T,
    pool: Pool,
}

/// An object of a pool, until it is closed.
pub struct Handle<T> {
    live: RwLock<Option<Live<T>>>,
    /// In messages.
    name: &'static str,
}

impl<T> Handle<T> {
    /// Runs `body` with the object. It does not wait: while another thread closes the object, it is
    /// closed.
    pub fn with<R>(&self, body: impl FnOnce(&T) -> Outcome<R>) -> Outcome<R> {
        self.with_pool(|object, _| body(object))
    }

    /// The same, with the pool.
    pub fn with_pool<R>(&self, body: impl FnOnce(&T, &Pool) -> Outcome<R>) -> Outcome<R> {
        let live = match self.live.try_read() {
            Ok(live) => live,
            Err(TryLockError::Poisoned(live)) => live.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Failure::Closed(self.name)),
        };
        match live.as_ref() {
            None => Err(Failure::Closed(self.name)),
            Some(live) if live.pool.has_forked() => Err(Failure::Forked),
            Some(live) => body(&live.object, &live.pool),
        }
    }
}

/// What a pool closes before itself.
trait Close: Send + Sync {
    fn close(&self);
}

impl<T: Send + Sync> Close for Handle<T> {
    /// Waits for calls with the object in other threads.
    fn close(&self) {
        let taken = self.live.write().unwrap_or_else(PoisonError::into_inner).take();
        release(taken);
    }
}

fn release<T>(live: Option<Live<T>>) {
    match live {
        // A drop could wait for a thread that only the parent has.
        Some(live) if live.pool.has_forked() => std::mem::forget(live),
        live => drop(live),
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        release(self.live.get_mut().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// An object that a close of its pool does not end, such as one that Python has the address of. It
/// keeps the pool open.
pub struct Kept<T> {
    /// None only while it is dropped.
    live: Option<Live<T>>,
}

impl<T> Kept<T> {
    pub fn new(object: T, pool: &Pool) -> Self {
        Self { live: Some(Live { object, pool: pool.clone() }) }
    }

    pub fn get(&self) -> Outcome<&T> {
        match &self.live {
            Some(live) if live.pool.has_forked() => Err(Failure::Forked),
            Some(live) => Ok(&live.object),
            None => Err(Failure::Closed("value")),
        }
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        release(self.live.take());
    }
}

/// A pool, and the objects of it that are held.
pub struct Opened {
    pool: Handle<()>,
    objects: Mutex<Vec<Weak<dyn Close>>>,
}

impl Opened {
    pub fn new(pool: Pool) -> Self {
        let live = RwLock::new(Some(Live { object: (), pool }));
        Self { pool: Handle { live, name: "pool" }, objects: Mutex::new(Vec::new()) }
    }

    pub fn with<R>(&self, body: impl FnOnce(&Pool) -> Outcome<R>) -> Outcome<R> {
        self.pool.with_pool(|(), pool| body(pool))
    }

    /// An object that `make` makes of the pool, and that ends with it.
    pub fn object<T: Send + Sync + 'static>(
        &self,
        name: &'static str,
        make: impl FnOnce(&Pool) -> Outcome<T>,
    ) -> Outcome<Arc<Handle<T>>> {
        self.with(|pool| {
            let live = Live { object: make(pool)?, pool: pool.clone() };
            let handle = Arc::new(Handle { live: RwLock::new(Some(live)), name });
            let object: Arc<dyn Close> = handle.clone();
            let mut objects = self.objects();
            if objects.len() == objects.capacity() {
                objects.retain(|object| object.strong_count() > 0);
            }
            objects.push(Arc::downgrade(&object));
            Ok(handle)
        })
    }

    fn objects(&self) -> MutexGuard<'_, Vec<Weak<dyn Close>>> {
        locked(&self.objects)
    }

    /// Closes the objects, and then the pool. A pool that is closed stays so.
    pub fn close(&self) -> Outcome<()> {
        match self.with(|_| Ok(())) {
            Err(Failure::Forked | Failure::Closed(_)) => return Ok(()),
            Err(other) => return Err(other),
            Ok(()) => {}
        }
        let taken = self.pool.live.write().unwrap_or_else(PoisonError::into_inner).take();
        // Without the lock: the objects of another thread may wait for it.
        let objects = std::mem::take(&mut *self.objects());
        objects.iter().filter_map(Weak::upgrade).for_each(|object| object.close());
        let Some(Live { pool, .. }) = taken else { return Ok(()) };
        // A call in another thread may still have a handle of its own, such as that of a snapshot.
        let others = |pool: &Pool| match pool.clone().close() {
            Err(pando::Error::PoolInUse { pools, maps }) => pools > 1 || maps > 0,
            _ => false,
        };
        let until = Instant::now() + Duration::from_secs(1);
        while others(&pool) && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        if others(&pool) {
            // The last of the handles closes it, and tells of no error. So what was acknowledged is
            // made durable here.
            return match pool.sync() {
                Err(pando::Error::NoLog) => Ok(()),
                synced => Ok(synced.map(drop)?),
            };
        }
        match pool.close() {
            // Another thread has a handle since.
            Err(pando::Error::PoolInUse { .. }) => Ok(()),
            closed => Ok(closed?),
        }
    }
}

/// The object of a mutex, also after a panic in another thread.
pub fn locked<T>(object: &Mutex<T>) -> MutexGuard<'_, T> {
    object.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The object of a mutex that is not waited for.
pub fn alone<'object, T>(
    object: &'object Mutex<T>,
    name: &'static str,
) -> Outcome<MutexGuard<'object, T>> {
    match object.try_lock() {
        Ok(object) => Ok(object),
        Err(TryLockError::Poisoned(object)) => Ok(object.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Failure::InUse(name)),
    }
}
