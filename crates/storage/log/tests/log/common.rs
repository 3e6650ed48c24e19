//! A log on a simulated directory, and a model of what it must hold.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use pando_device::simulated::Simulated;
use pando_device::{Directory, Operation};
use pando_log::{Log, LogOptions, Owner, Record, Recovered, Result, Settle, Status, recover};
use pando_pmem::{CreateOptions, Domain, Guard, Pool, Process, layout};

/// Segments and a tail so small that a test fills them.
pub const SMALL: LogOptions =
    LogOptions { segment_bytes: 64 << 10, tail_bytes: 1 << 20, owner: Owner::Pool };

/// Decides by the first byte of the payload: `x` fails, all others are committed.
pub struct ByFirstByte;

impl<D: Domain> Settle<D> for ByFirstByte {
    fn settle(&self, _: &Guard<'_, D>, record: Record<'_, D>) -> Result<Status> {
        let fails = record.payload().first() == Some(&b'x');
        Ok(record.decide(if fails { Status::Failed } else { Status::Committed }))
    }

    fn push_redo(&self, payload: &[u8], bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(payload);
    }
}

/// A new pool, with a log in `directory`.
pub fn create<D: Domain>(directory: &Simulated, options: LogOptions) -> Log<D> {
    let create = CreateOptions { max_bytes: 1 << 28, ..CreateOptions::default() };
    create_in(Pool::anonymous(&create).expect("memory"), directory, options).expect("a log")
}

/// A log of `pool` in `directory`.
pub fn create_in<D: Domain>(
    pool: Arc<Pool<D>>,
    directory: &Simulated,
    options: LogOptions,
) -> Result<Log<D>> {
    Log::create(pool, layout::LOG_OFF, Arc::new(directory.clone()), (42, 0), options)
}

/// Opens the log of `pool` in `directory`.
pub fn open<D: Domain>(pool: &Arc<Pool<D>>, directory: &Simulated) -> Result<Log<D>> {
    Log::open(pool.clone(), layout::LOG_OFF, Arc::new(directory.clone()), SMALL)
}

/// Appends a record; its LSN.
pub fn append<D: Domain>(log: &Log<D>, payload: &[u8]) -> Result<u64> {
    let guard = log.pool().pin().expect("a slot");
    log.append(&guard, &[payload]).map(|appended| appended.lsn)
}

/// Appends a record, and syncs it; its LSN.
pub fn synced<D: Domain>(log: &Log<D>, payload: &[u8]) -> u64 {
    let lsn = append(log, payload).expect("appended");
    log.sync(lsn, &ByFirstByte).expect("synced");
    lsn
}

/// A new log with `count` records, each written and synced.
pub fn create_with<D: Domain>(directory: &Simulated, count: u64, bytes: usize) -> Arc<Log<D>> {
    let log = Arc::new(create::<D>(directory, SMALL));
    for number in 1..=count {
        synced(&log, &payload(number, bytes));
    }
    log
}

/// Payloads of committed records, by LSN.
pub type Records = BTreeMap<u64, Vec<u8>>;

/// Reads the log in `directory` from the LSN `from` on.
pub fn read(directory: &dyn Directory, from: u64) -> Result<(Records, Recovered)> {
    let mut records = Records::new();
    let recovered = recover(directory, from, &mut |lsn, payload| {
        let last = records.last_key_value().map_or(from, |(last, _)| *last);
        assert!(lsn > last, "LSNs ascend: {lsn} after {last}");
        records.insert(lsn, payload.to_vec());
        Ok(())
    })?;
    Ok((records, recovered))
}

/// Writes until nothing is left to write.
pub fn write_all<D: Domain>(log: &Log<D>) -> Result<()> {
    while log.durable_lsn() < newest(log) {
        log.write_block(&ByFirstByte)?;
    }
    Ok(())
}

/// The LSN of the newest record.
pub fn newest<D: Domain>(log: &Log<D>) -> u64 {
    log.newest_lsn(&log.pool().pin().expect("a slot"))
}

/// A payload that says which one it is, and fails if `number` is a multiple of 7.
pub fn payload(number: u64, bytes: usize) -> Vec<u8> {
    let mut payload = vec![if number.is_multiple_of(7) { b'x' } else { b'r' }];
    payload.extend_from_slice(&number.to_le_bytes());
    payload.resize(bytes.max(9), number as u8);
    payload
}

/// The number that a payload says, if it is whole.
pub fn number_of(found: &[u8]) -> Option<u64> {
    let number = u64::from_le_bytes(*found.get(1..)?.first_chunk()?);
    (found == payload(number, found.len())).then_some(number)
}

/// The log of `directory`, as it was recovered, in a new pool.
pub fn resume(directory: &Simulated, recovered: &Recovered) -> Result<Log<Process>> {
    let pool = Pool::anonymous(&CreateOptions::default()).expect("memory");
    Log::resume(pool, layout::LOG_OFF, Arc::new(directory.clone()), recovered, 0, SMALL)
}

/// Syncs `lsn` in another thread, which stops before its first `operation`. Then `meanwhile` runs,
/// and the thread goes on; the result of its sync. All other operations have the answer of
/// `others`.
pub fn with_stopped_sync<D: Domain>(
    of: (&Simulated, &Log<D>, u64),
    operation: Operation,
    others: impl Fn(Operation) -> io::Result<()> + Send + Sync + 'static,
    meanwhile: impl FnOnce(),
) -> Result<()> {
    with_sync_stopped_at(of, move |found| found == operation, others, meanwhile)
}

/// The same with a thread that stops before the first operation for which `stops` returns true. It
/// is asked for each operation before.
pub fn with_sync_stopped_at<D: Domain>(
    (directory, log, lsn): (&Simulated, &Log<D>, u64),
    stops: impl Fn(Operation) -> bool + Send + Sync + 'static,
    others: impl Fn(Operation) -> io::Result<()> + Send + Sync + 'static,
    meanwhile: impl FnOnce(),
) -> Result<()> {
    let (stopped, has_stopped) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let waiting = Mutex::new(Some((stopped, may_go_on)));
    directory.on_operation(move |found, _| {
        let first = match stops(found) {
            true => waiting.lock().expect("a lock").take(),
            false => None,
        };
        let Some((stopped, may_go_on)) = first else { return others(found) };
        stopped.send(()).expect("the test waits");
        // An error if the test has ended.
        let _ = may_go_on.recv();
        Ok(())
    });
    std::thread::scope(|scope| {
        // Dropped if an assertion fails, so that the thread continues and the test ends.
        let go_on = go_on;
        let first = scope.spawn(|| log.sync(lsn, &ByFirstByte));
        has_stopped.recv().expect("the thread stops");
        meanwhile();
        go_on.send(()).expect("it waits");
        first.join().expect("joins")
    })
}
