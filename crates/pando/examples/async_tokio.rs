//! Pando in asynchronous tasks: calls run on the blocking threads of tokio, and a limit of tasks
//! inside calls is kept by a semaphore.
//!
//! A call does not wait for other threads, but it may wait for the disk: for a page of the pool's
//! file, or, if the commit is synced, for the log. On a thread of the executor it would hold up the
//! other tasks there.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use pando::{Map, Pool, PoolOptions};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// A map for tasks. Its clones share the limit.
#[derive(Clone)]
pub struct AsyncMap {
    map: Map,
    permits: Arc<Semaphore>,
    most_calls: usize,
    patience: Duration,
}

/// Why a call of a task has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// So many calls were in progress until the deadline: this one was not begun.
    #[error(
        "{most_calls} calls are in progress, and none ended within {patience:?}; try again later"
    )]
    Busy {
        /// The limit of calls in progress.
        most_calls: usize,
        /// How long the task has waited.
        patience: Duration,
    },
    /// The map returned an error.
    #[error(transparent)]
    Map(#[from] pando::Error),
    /// The call panicked, or the runtime is shutting down.
    #[error("the call was not completed: {0}")]
    Incomplete(#[from] tokio::task::JoinError),
}

impl AsyncMap {
    /// At most `most_calls` calls are in progress at once. A task that would make one more waits,
    /// and after `patience` it gets [`CallError::Busy`]. Give the runtime as many blocking threads
    /// (`max_blocking_threads`; tokio's default is 512).
    pub fn new(map: Map, most_calls: usize, patience: Duration) -> Self {
        Self { map, permits: Arc::new(Semaphore::new(most_calls)), most_calls, patience }
    }

    /// Runs `work`, which makes one call or several, on a blocking thread. If the future is
    /// dropped, work that was begun goes on to its end.
    ///
    /// # Errors
    ///
    /// [`CallError`]. After `Busy` nothing was done.
    pub async fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Map) -> Result<R, pando::Error> + Send + 'static,
    ) -> Result<R, CallError> {
        let acquired = timeout(self.patience, self.permits.clone().acquire_owned()).await;
        let busy = CallError::Busy { most_calls: self.most_calls, patience: self.patience };
        // The semaphore is never closed.
        let Ok(Ok(permit)) = acquired else { return Err(busy) };
        let map = self.map.clone();
        let call = spawn_blocking(move || {
            // Held until the call ends, also if the task is gone by then.
            let _permit = permit;
            work(&map)
        });
        Ok(call.await??)
    }
}

/// Runs the example in anonymous memory.
pub fn main() -> Result<(), Box<dyn Error>> {
    const MOST_CALLS: usize = 64;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(MOST_CALLS)
        .enable_time()
        .build()?;
    let pool = Pool::volatile(&PoolOptions::new())?;
    let map = AsyncMap::new(pool.map("tasks")?, MOST_CALLS, Duration::from_secs(10));
    runtime.block_on(async {
        let tasks: Vec<_> = (0..200_u32)
            .map(|number| {
                let map = map.clone();
                tokio::spawn(async move {
                    map.call(move |map| map.insert(number.to_be_bytes(), "done")).await
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        println!("{} tasks have written", map.call(Map::len).await?);
        Ok(())
    })
}
