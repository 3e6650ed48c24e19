//! A system behind a trait object, and the run of a slice on it. A slice costs one virtual call; an
//! operation costs none here.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::error::Fault;
use crate::machine;
use crate::operation_mix::MAX_SCAN_RECORDS;
use crate::record::{Buffers, Records};
use crate::slice::{Outcome, Slice};
use crate::system::{AnySystem, Order, System};
use crate::verify;
use crate::worker::{Done, Worker, refused};

/// A system behind a trait object.
pub trait Subject: Send + Sync {
    /// Runs one slice.
    fn run(&self, slice: &Slice<'_>) -> Result<Outcome, Fault>;

    /// Compares the number of records with that of `live`, or all records if `is_whole`.
    fn verify(&self, records: Records, live: &Range<u64>, is_whole: bool) -> Result<(), Fault>;

    /// The system, for single operations.
    fn any(&self) -> &dyn AnySystem;

    /// See [`System::footprint_bytes`].
    fn footprint_bytes(&self) -> Option<u64>;

    /// See [`System::file_bytes`].
    fn file_bytes(&self) -> Option<u64>;
}

impl<S: System> Subject for S {
    fn run(&self, slice: &Slice<'_>) -> Result<Outcome, Fault> {
        run(self, slice)
    }

    fn verify(&self, records: Records, live: &Range<u64>, is_whole: bool) -> Result<(), Fault> {
        match is_whole {
            true => verify::all(self, records, live),
            false => verify::count(self, records, live),
        }
    }

    fn any(&self) -> &dyn AnySystem {
        self
    }

    fn footprint_bytes(&self) -> Option<u64> {
        System::footprint_bytes(self)
    }

    fn file_bytes(&self) -> Option<u64> {
        System::file_bytes(self)
    }
}

/// Runs `slice` on `system`.
pub fn run<S: System>(system: &S, slice: &Slice<'_>) -> Result<Outcome, Fault> {
    if slice.records.shape.is_eight() {
        gather(system, slice, on_threads::<S, true>(system, slice)?)
    } else {
        gather(system, slice, on_threads::<S, false>(system, slice)?)
    }
}

/// Runs the threads of `slice`.
fn on_threads<S: System, const EIGHT: bool>(
    system: &S,
    slice: &Slice<'_>,
) -> Result<Vec<Done>, Fault> {
    let cores = &machine::cores();
    let barrier = &Barrier::new(slice.threads + 1);
    let stop = &AtomicBool::new(false);
    let edge_key = slice.mix.scan().map_or(0, |scan| edge_key(slice, scan.order));
    thread::scope(|scope| {
        let handles: Vec<_> = (0..slice.threads)
            .map(|thread| {
                let worker = Worker::<S, EIGHT> { system, slice, thread, stop, edge_key };
                scope.spawn(move || {
                    machine::pin_one_of(slice.threads, thread, cores);
                    // If a system panics here, the other threads must not wait at the barrier.
                    let warmed = caught(|| worker.warm_up());
                    barrier.wait();
                    let done = warmed.and_then(|()| caught(|| worker.work()));
                    if done.is_err() {
                        // Relaxed: the other threads see it at some later time.
                        stop.store(true, Ordering::Relaxed);
                    }
                    done
                })
            })
            .collect();
        barrier.wait();
        if !slice.mix.is_counted() {
            thread::sleep(slice.time);
            stop.store(true, Ordering::Relaxed);
        }
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or(Err(Fault::Panicked)))
            .collect::<Result<Vec<_>, Fault>>()
    })
}

/// Adds up the results of the threads, and searches again for the keys that they missed.
fn gather<S: System>(system: &S, slice: &Slice<'_>, workers: Vec<Done>) -> Result<Outcome, Fault> {
    let mut outcome = Outcome::none();
    let (Some(start), Some(end)) =
        (workers.iter().map(|done| done.start).min(), workers.iter().map(|done| done.end).max())
    else {
        return Ok(outcome);
    };
    outcome.elapsed = end - start;
    let mut buffers = Buffers::new(slice.records.shape);
    for done in workers {
        outcome.transient_misses += done.missed.len() as u64;
        for key in done.missed {
            let operation = "a get during replacements and after them";
            let found = system.get(buffers.key::<false>(key), |_| ());
            if !found.map_err(refused(key, operation))? {
                return Err(slice.records.lost(key, operation));
            }
        }
        outcome.operations += done.operations;
        outcome.due_not_begun += done.due_not_begun;
        outcome.on_core += done.on_core;
        outcome.latency_ns += done.latency_ns;
    }
    Ok(outcome)
}

/// The key from which exactly [`MAX_SCAN_RECORDS`] live records follow in `order`; if there are
/// fewer records, the first key in `order`. Takes little memory, which may be that of the system.
fn edge_key(slice: &Slice<'_>, order: Order) -> u64 {
    // The distance of a key from the end of the key space in the direction of the scan.
    let distance = |number| match order {
        Order::Ascending => u64::MAX - slice.records.key(number),
        Order::Descending => slice.records.key(number),
    };
    let distances = slice.live.clone().map(distance);
    let Some(edge) = last_of_least(distances, MAX_SCAN_RECORDS as usize) else { return 0 };
    match order {
        Order::Ascending => u64::MAX - edge,
        Order::Descending => edge,
    }
}

/// The greatest of the `most` least numbers; `None` if there are no numbers.
fn last_of_least(numbers: impl Iterator<Item = u64>, most: usize) -> Option<u64> {
    let mut least = Vec::with_capacity(2 * most);
    for number in numbers {
        least.push(number);
        if least.len() == 2 * most {
            least.select_nth_unstable(most - 1);
            least.truncate(most);
        }
    }
    let last = least.len().min(most).checked_sub(1)?;
    Some(*least.select_nth_unstable(last).1)
}

/// Runs `work`. A panic, whose message the runtime has printed on standard error, is a fault of the
/// system.
fn caught<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Fault::Panicked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_the_least_numbers_is_that_of_a_sort() {
        for count in [0, 1, 2, 3, 7, 8, 9, 100] {
            let numbers = (0..count).map(|number: u64| number.wrapping_mul(0x9E37_79B9) % 101);
            let mut sorted: Vec<u64> = numbers.clone().collect();
            sorted.sort_unstable();
            let expected = sorted.iter().take(4).next_back().copied();
            assert_eq!(last_of_least(numbers, 4), expected, "{count} numbers");
        }
    }
}
