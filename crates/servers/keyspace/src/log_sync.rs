//! Syncs of the log, in a pool that has one: when replies to writes are sent, and what happens if
//! the log cannot be written.
//!
//! # Protocol
//!
//! All commits are buffered: none waits for the disk. One thread syncs the log in numbered
//! *rounds*. A round makes all commits durable that took place before it began. So the connections
//! that have replies to writes share the rounds, and while they wait, their event loops serve other
//! connections.
//!
//! | number | raised by | meaning |
//! | --- | --- | --- |
//! | `wanted` | a connection, after the commits of its replies, to `begun + 1` | a round to run |
//! | `begun` | the thread, before the sync | the last round that has begun |
//! | `ended` | the thread, after the sync | the last round that has ended |
//! | `durable` | the thread, after a sync without an error | all commits before this round are durable |
//!
//! `durable` decides: replies that wait for a round are sent when it is at least that round. A
//! round begins when one is wanted, and at the latest [`ROUND_EVERY`] after the one before it
//! ended.
//!
//! | step | a power cut after it leaves |
//! | --- | --- |
//! | the commit | the commit or not; its reply was not sent |
//! | the connection wants a round | the same |
//! | the sync of that round | the commit |
//! | the reply | the commit |
//!
//! The mode says whether replies wait:
//!
//! | mode | a reply to a write is sent | a power cut undoes at most |
//! | --- | --- | --- |
//! | `always` | after a round that began after its commit | writes without a reply |
//! | `everysec` | at once, if a round began without an error in the last [`LATE`]; otherwise as in `always` | the writes since that begin that were acknowledged at once |
//! | `no` | at once | the tail of the log: 32 MiB of commits; in a record store 1/256 of its memory, if that is less |
//!
//! If the disk is slower than the writers, the tail of the log gets full, and a commit would wait
//! for the disk in its event loop. So a round is wanted, and no reply waits, when [`SOON_PART`] of
//! the tail has records that are not durable: 1 MiB of a pool's 32 MiB. From [`MOST_PART`] on (8
//! MiB), replies wait as in `always`, and requests that write wait for a round before they begin,
//! so that event loops serve others meanwhile. The sweep stops. A request that has begun goes on:
//! the tail has room for three times as much. The tail of a record store has 1/256 of its memory.
//!
//! In each mode the log's own thread also writes the log without a pause, so usually less is
//! undone. The newest commits are undone, in their order, each as a whole.
//!
//! # Failures
//!
//! If a round fails, replies to writes that wait for it are replaced by its error: their writes
//! have taken place, and a power cut may undo them. From then on exclusive locks are refused, so no
//! write begins. Reads go on. A later round that succeeds ends this; the writes of the failed one
//! are durable then. A log that has stopped never succeeds again, until the server is restarted.
//!
//! A round that runs for longer than [`STALL`] counts as failed until it ends: a disk that does not
//! answer gives no error for minutes, or for ever. [`LogSync::judge_stall`] finds it; the server
//! calls it about ten times a second.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pando::{Error, LogStat, Pool};
use pando_pmem::mutant;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::failure::{Result, fail, fail_with};

/// The longest time from the end of a round to the begin of the next one.
const ROUND_EVERY: Duration = Duration::from_secs(1);
/// The time after which replies wait, in the mode `everysec`, since the begin of the last round
/// that succeeded.
const LATE: Duration = Duration::from_secs(2);

/// The time after which a round that has not ended counts as failed.
const STALL: Duration = Duration::from_secs(10);

/// The part of the log's tail that is not durable, from which on a round begins at once.
const SOON_PART: u64 = 32;
/// From which on replies wait.
const MOST_PART: u64 = 4;

/// The time between two looks at the directory of the log, for reports.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// When a reply to a write is sent, in a pool with a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum SyncMode {
    /// When the write survives a power cut.
    Always = 0,
    /// At once; but a power cut undoes the writes of at most two seconds.
    #[default]
    EverySecond = 1,
    /// At once.
    No = 2,
}

impl SyncMode {
    /// Redis's names, by number of the mode.
    pub const NAMES: [&str; 3] = ["always", "everysec", "no"];

    /// The mode of that number.
    pub fn at(place: usize) -> Option<Self> {
        [Self::Always, Self::EverySecond, Self::No].get(place).copied()
    }

    /// Redis's name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// The syncs of a store's log; see the module's documentation.
#[derive(Debug)]
pub struct LogSync {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    pool: Pool,
    mode: AtomicU8,
    rounds: Mutex<Rounds>,
    /// A round is wanted, or the thread ends.
    is_wanted: Condvar,
    /// Whether the last round failed.
    has_failed: AtomicBool,
    created: Instant,
    /// The begin of the last round that succeeded, in milliseconds since `created`.
    durable_at_ms: AtomicU64,
    /// The figures of the log at the last look, and its time.
    stat: Mutex<Option<(Instant, LogStat)>>,
    /// In a test, the disk has stalled at this LSN.
    #[cfg(test)]
    stalled_lsn: AtomicU64,
    /// Waits of replies in the modes `everysec` and `no`.
    delayed: AtomicU64,
}

#[derive(Debug, Default)]
struct Rounds {
    wanted: u64,
    begun: u64,
    ended: u64,
    durable: u64,
    /// The begin of the round that is running.
    begun_at: Option<Instant>,
    /// Whether the round that is running counts as failed.
    is_stalled: bool,
    /// The error of the last round, if it failed, and the remedy.
    failure: Option<String>,
    /// The tasks that wait for the end of a round.
    waiting: Vec<Waker>,
    /// Whether the thread ends.
    is_over: bool,
}

impl LogSync {
    /// The syncs of the pool's log, before their thread starts; `None` if the pool has no log.
    pub(crate) fn of_pool(pool: &Pool, mode: SyncMode) -> Result<Option<Self>> {
        match pool.durable_lsn() {
            Err(Error::NoLog) => return Ok(None),
            other => other?,
        };
        let shared = Shared {
            pool: pool.clone(),
            mode: AtomicU8::new(mode as u8),
            rounds: Mutex::default(),
            is_wanted: Condvar::new(),
            has_failed: AtomicBool::new(false),
            created: Instant::now(),
            durable_at_ms: AtomicU64::new(0),
            stat: Mutex::new(None),
            #[cfg(test)]
            stalled_lsn: AtomicU64::new(u64::MAX),
            delayed: AtomicU64::new(0),
        };
        Ok(Some(Self { shared: Arc::new(shared), thread: None }))
    }

    /// Runs a round, and starts the thread. A failed round is no error: writes are refused until
    /// one succeeds.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.shared.rounds.lock().begun = 1;
        self.shared.run_round(1);
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("sync".to_owned());
        let thread = thread.spawn(move || shared.run_rounds());
        let failed = |error| fail_with(format!("ERR a thread cannot be started: {error}"));
        self.thread = Some(thread.map_err(failed)?);
        Ok(())
    }

    /// The mode.
    pub fn mode(&self) -> SyncMode {
        // Relaxed: a mode that is set concurrently holds for the replies before it or not.
        let mode = self.shared.mode.load(Ordering::Relaxed);
        SyncMode::at(usize::from(mode)).unwrap_or_default()
    }

    /// Sets the mode.
    pub fn set_mode(&self, mode: SyncMode) {
        self.shared.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// The error of the last round, with its remedy; `None` if it succeeded.
    pub fn failure(&self) -> Option<String> {
        self.shared.rounds.lock().failure.clone()
    }

    /// Whether a round is running.
    pub fn is_syncing(&self) -> bool {
        let rounds = self.shared.rounds.lock();
        rounds.begun > rounds.ended
    }

    /// The figures of the log after a round of the last two seconds, or after the last one, if the
    /// disk does not answer. Does not wait for the disk.
    pub fn stat(&self) -> Option<LogStat> {
        self.shared.stat.lock().as_ref().map(|(_, stat)| stat.clone())
    }

    /// The number of times that replies waited in the modes `everysec` and `no`.
    pub fn delayed(&self) -> u64 {
        self.shared.delayed.load(Ordering::Relaxed)
    }

    /// Refuses a write, if the last round failed.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        // Acquire: with the store after the round. The text is read under the lock.
        match self.shared.has_failed.load(Ordering::Acquire) {
            false => Ok(()),
            true => self.refused(),
        }
    }

    /// Whether writes are refused.
    pub(crate) fn has_failed(&self) -> bool {
        // Acquire: as in `check`.
        self.shared.has_failed.load(Ordering::Acquire)
    }

    #[cold]
    fn refused(&self) -> Result<()> {
        match self.failure() {
            None => Ok(()),
            Some(failure) => Err(fail_with(format!("MISCONF writes are refused: {failure}"))),
        }
    }

    /// Waits until the replies to writes may be sent that were committed before this call, as the
    /// mode says. Returns whether the writes survive a power cut.
    ///
    /// # Errors
    ///
    /// As [`until_durable`](Self::until_durable).
    pub async fn until_acknowledged(&self) -> Result<bool> {
        let shared = &*self.shared;
        let waiting = shared.waiting();
        let is_late = match self.mode() {
            SyncMode::Always => !mutant!("serve-reply-before-sync"),
            SyncMode::EverySecond => shared.is_late() || waiting.is_most(),
            SyncMode::No => waiting.is_most(),
        };
        if is_late {
            if self.mode() != SyncMode::Always {
                shared.delayed.fetch_add(1, Ordering::Relaxed);
            }
            return self.until_durable().await.map(|()| true);
        }
        if waiting.is_much() {
            shared.want_round();
        }
        Ok(false)
    }

    /// Whether the disk is slower than the writers, so that replies to writes wait for it in each
    /// mode, and no write begins. False if the last round failed: writes are refused then.
    pub fn is_behind(&self) -> bool {
        matches!(self.shared.progress(), Ok(Some(waiting)) if waiting.is_most())
            && !self.has_failed()
    }

    /// Before a write, if the log [is behind](Self::is_behind): waits for the end of a round.
    pub async fn until_written(&self) {
        // The error of a round that failed is the one of the write, which is refused.
        let _ = self.until_durable().await;
    }

    /// Refuses writes, and fails the replies that wait, if the running round takes too long.
    pub fn judge_stall(&self) {
        let mut rounds = self.shared.rounds.lock();
        let is_late = rounds.begun_at.is_some_and(|at| at.elapsed() > STALL);
        if !is_late || rounds.is_stalled {
            return;
        }
        let failure = format!(
            "the disk of the log has not answered for {} seconds. Writes are accepted again when it does",
            STALL.as_secs()
        );
        tracing::error!(failure, "the log cannot be written, so writes are refused");
        rounds.is_stalled = true;
        rounds.failure = Some(failure);
        self.shared.publish(rounds);
    }

    /// Waits until all commits before this call survive a power cut.
    ///
    /// # Errors
    ///
    /// An error reply with the code MISCONF: the commits have taken place, and a power cut may undo
    /// them.
    pub async fn until_durable(&self) -> Result<()> {
        let round = self.shared.want_round();
        poll_fn(|context| self.shared.rounds.lock().poll(round, context.waker())).await
    }
}

impl Drop for LogSync {
    /// Ends the thread, after the round that is running.
    fn drop(&mut self) {
        self.shared.rounds.lock().is_over = true;
        self.shared.is_wanted.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Rounds {
    /// The outcome of a round; `waker` is woken when there is one.
    fn poll(&mut self, round: u64, waker: &Waker) -> Poll<Result<()>> {
        if self.durable >= round {
            return Poll::Ready(Ok(()));
        }
        let has_ended = self.ended >= round || self.is_stalled;
        if let (true, Some(failure)) = (has_ended, &self.failure) {
            let words = "MISCONF a power cut may undo the writes of this command";
            return Poll::Ready(Err(fail_with(format!("{words}: {failure}"))));
        }
        if self.is_over {
            return Poll::Ready(Err(fail("ERR the server is being shut down")));
        }
        self.waiting.push(waker.clone());
        Poll::Pending
    }
}

/// Records that are not durable.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    bytes: u64,
    /// From so many bytes on, commits wait for the disk.
    tail_bytes: u64,
}

impl Waiting {
    /// How much is waiting is not known.
    const UNKNOWN: Self = Self { bytes: u64::MAX, tail_bytes: 0 };

    fn is_much(self) -> bool {
        self.bytes > self.tail_bytes / SOON_PART
    }

    fn is_most(self) -> bool {
        self.bytes > self.tail_bytes / MOST_PART
    }
}

impl Shared {
    fn waiting(&self) -> Waiting {
        self.progress().ok().flatten().unwrap_or(Waiting::UNKNOWN)
    }

    /// Records that are not durable; `None` without a log.
    fn progress(&self) -> std::result::Result<Option<Waiting>, Error> {
        let Some(log) = self.pool.log_progress()? else { return Ok(None) };
        let waiting = |bytes| Some(Waiting { bytes, tail_bytes: log.tail_bytes });
        #[cfg(test)]
        if self.stalled_lsn.load(Ordering::Relaxed) < log.durable_lsn {
            let stalled_lsn = self.stalled_lsn.load(Ordering::Relaxed);
            return Ok(waiting(log.newest_lsn.saturating_sub(stalled_lsn)));
        }
        Ok(waiting(log.waiting_bytes()))
    }

    /// Wants a round that begins after this call, and returns its number.
    fn want_round(&self) -> u64 {
        let mut rounds = self.rounds.lock();
        let round = rounds.begun + 1;
        if rounds.wanted < round {
            rounds.wanted = round;
            self.is_wanted.notify_one();
        }
        round
    }

    /// Runs rounds until the end.
    fn run_rounds(&self) {
        loop {
            let mut rounds = self.rounds.lock();
            if rounds.wanted <= rounds.begun && !rounds.is_over {
                self.is_wanted.wait_for(&mut rounds, ROUND_EVERY);
            }
            if rounds.is_over {
                let waiting = std::mem::take(&mut rounds.waiting);
                drop(rounds);
                return waiting.into_iter().for_each(Waker::wake);
            }
            rounds.begun += 1;
            let round = rounds.begun;
            drop(rounds);
            self.run_round(round);
        }
    }

    /// Runs a round that has begun.
    fn run_round(&self, round: u64) {
        let begun_at_ms = self.now_ms();
        self.rounds.lock().begun_at = Some(Instant::now());
        let failure = self.pool.sync().err().map(|error| self.describe(error));
        // In the round: a directory that does not answer is a stall, too.
        self.look();
        let mut rounds = self.rounds.lock();
        rounds.ended = round;
        (rounds.begun_at, rounds.is_stalled) = (None, false);
        match &failure {
            None => {
                rounds.durable = round;
                // Relaxed: a late view makes a reply wait that need not.
                self.durable_at_ms.store(begun_at_ms, Ordering::Relaxed);
            }
            // A disk that stalls may fail at last, which has another remedy.
            Some(failure) if rounds.failure.as_ref() != Some(failure) => {
                tracing::error!(failure, "the log cannot be written, so writes are refused");
            }
            Some(_) => {}
        }
        if failure.is_none() && rounds.failure.is_some() {
            tracing::info!("the log is written again, so writes are accepted");
        }
        rounds.failure = failure;
        self.publish(rounds);
    }

    /// Looks at the directory of the log, if the last look was a while ago. An error, as of a
    /// directory that cannot be read, leaves the figures of that look.
    fn look(&self) {
        let is_new = |(at, _): &(Instant, LogStat)| at.elapsed() < LOOK_EVERY;
        if self.stat.lock().as_ref().is_some_and(is_new) {
            return;
        }
        if let Ok(Some(stat)) = self.pool.log_stat() {
            *self.stat.lock() = Some((Instant::now(), stat));
        }
    }

    /// Refuses writes or accepts them, and wakes the tasks that wait.
    fn publish(&self, mut rounds: MutexGuard<'_, Rounds>) {
        // Release: with the loads in `check` and `has_failed`.
        self.has_failed.store(rounds.failure.is_some(), Ordering::Release);
        let waiting = std::mem::take(&mut rounds.waiting);
        drop(rounds);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// The error of a round, and the remedy.
    fn describe(&self, error: Error) -> String {
        let cause = match error {
            Error::AppliedNotDurable { cause } => cause,
            other => other.to_string(),
        };
        let log = self.pool.log_progress().ok().flatten();
        match log.is_some_and(|log| log.has_stopped) {
            true => format!("{cause}. Check the disk, then restart the server"),
            false => format!("{cause}. Writes are accepted again when the log can be written"),
        }
    }

    /// Whether the last round that succeeded began too long ago.
    fn is_late(&self) -> bool {
        let durable_at_ms = self.durable_at_ms.load(Ordering::Relaxed);
        u128::from(self.now_ms().saturating_sub(durable_at_ms)) > LATE.as_millis()
    }

    fn now_ms(&self) -> u64 {
        self.created.elapsed().as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    use pando::PoolOptions;

    use super::*;
    use crate::broken_disk::break_disk;

    /// The syncs of a new log, without their thread, ten seconds after their creation.
    fn without_thread(folder: &tempfile::TempDir, mode: SyncMode) -> LogSync {
        let options = PoolOptions::new().max_bytes(64 << 20).log(folder.path().join("log"));
        let pool = Pool::create(folder.path().join("pool"), &options).expect("a pool");
        let mut sync = LogSync::of_pool(&pool, mode).expect("reads").expect("a log");
        let shared = Arc::get_mut(&mut sync.shared).expect("no thread");
        shared.created -= Duration::from_secs(10);
        sync
    }

    fn run_round(sync: &LogSync) {
        let round = {
            let mut rounds = sync.shared.rounds.lock();
            rounds.begun += 1;
            rounds.begun
        };
        sync.shared.run_round(round);
    }

    /// Its commits wait for the disk as soon as 1/256 of its memory waits.
    #[test]
    fn a_record_store_is_behind_before_its_commits_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = pando::Store::open(folder.path().join("store"), 16 << 20).expect("a store");
        let map = store.map("values").expect("a map");
        let sync = LogSync::of_pool(&store, SyncMode::No).expect("reads").expect("a log");
        let durable_lsn = store.sync().expect("syncs");
        sync.shared.stalled_lsn.store(durable_lsn, Ordering::Relaxed);
        let mut written_bytes = 0;
        while !sync.is_behind() {
            map.upsert(b"key", [7; 500]).expect("written");
            written_bytes += 500;
            store.sync().expect("syncs");
        }
        assert!(written_bytes < (16 << 20) / 256 / 2, "{written_bytes} bytes");
        sync.shared.stalled_lsn.store(u64::MAX, Ordering::Relaxed);
        assert!(!sync.is_behind());
    }

    #[test]
    fn a_reply_waits_for_a_round_that_began_after_its_commit() {
        let folder = tempfile::tempdir().expect("a folder");
        let sync = without_thread(&folder, SyncMode::Always);
        let mut context = Context::from_waker(Waker::noop());
        // A round is running.
        sync.shared.rounds.lock().begun = 1;
        let mut reply = pin!(sync.until_acknowledged());
        assert!(reply.as_mut().poll(&mut context).is_pending());
        assert!(sync.is_syncing());
        sync.shared.run_round(1);
        assert!(reply.as_mut().poll(&mut context).is_pending());
        run_round(&sync);
        assert!(matches!(reply.as_mut().poll(&mut context), Poll::Ready(Ok(true))));
        assert_eq!(sync.shared.rounds.lock().wanted, 2);
    }

    #[test]
    fn in_everysec_replies_wait_only_if_the_last_round_is_too_old_and_in_no_never() {
        let folder = tempfile::tempdir().expect("a folder");
        let sync = without_thread(&folder, SyncMode::EverySecond);
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut reply = pin!(sync.until_acknowledged());
            assert!(reply.as_mut().poll(&mut context).is_pending());
            run_round(&sync);
            assert!(matches!(reply.as_mut().poll(&mut context), Poll::Ready(Ok(true))));
        }
        assert_eq!(sync.delayed(), 1);
        sync.shared.durable_at_ms.store(u64::MAX, Ordering::Relaxed);
        let mut reply = pin!(sync.until_acknowledged());
        assert!(matches!(reply.as_mut().poll(&mut context), Poll::Ready(Ok(false))));
        sync.set_mode(SyncMode::No);
        sync.shared.durable_at_ms.store(0, Ordering::Relaxed);
        let mut reply = pin!(sync.until_acknowledged());
        assert!(matches!(reply.as_mut().poll(&mut context), Poll::Ready(Ok(false))));
        assert_eq!(sync.delayed(), 1);
    }

    /// What counts are the records of the log.
    #[test]
    fn replies_wait_in_each_mode_if_the_disk_is_slower_than_the_writers() {
        let folder = tempfile::tempdir().expect("a folder");
        let sync = without_thread(&folder, SyncMode::No);
        let shared = &sync.shared;
        let options = pando::MapOptions::new().transactional(true);
        let map = shared.pool.map_with("values", &options).expect("a map");
        let write = |times: u8| {
            for number in 0..times {
                map.upsert(b"key", [number; 32_000]).expect("writes");
            }
        };
        write(1);
        let durable_lsn = shared.pool.sync().expect("syncs");
        shared.stalled_lsn.store(durable_lsn, Ordering::Relaxed);
        let mut context = Context::from_waker(Waker::noop());
        write(20);
        let mut at_once = pin!(sync.until_acknowledged());
        assert!(at_once.as_mut().poll(&mut context).is_ready());
        assert_eq!(shared.rounds.lock().wanted, 0);
        write(180);
        let mut at_once = pin!(sync.until_acknowledged());
        assert!(at_once.as_mut().poll(&mut context).is_ready());
        assert!(shared.rounds.lock().wanted == 1 && !sync.is_behind());
        write(200);
        assert!(sync.is_behind());
        let mut late = pin!(sync.until_acknowledged());
        assert!(late.as_mut().poll(&mut context).is_pending());
        shared.stalled_lsn.store(u64::MAX, Ordering::Relaxed);
        run_round(&sync);
        assert!(matches!(late.as_mut().poll(&mut context), Poll::Ready(Ok(true))));
        let mut at_once = pin!(sync.until_acknowledged());
        assert!(matches!(at_once.as_mut().poll(&mut context), Poll::Ready(Ok(false))));
        assert_eq!(sync.delayed(), 1);
    }

    #[test]
    fn a_round_that_does_not_end_counts_as_failed_until_it_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let sync = without_thread(&folder, SyncMode::Always);
        let mut context = Context::from_waker(Waker::noop());
        let mut reply = pin!(sync.until_acknowledged());
        {
            let mut rounds = sync.shared.rounds.lock();
            rounds.begun = 1;
            rounds.begun_at = Some(Instant::now());
        }
        sync.judge_stall();
        assert!(reply.as_mut().poll(&mut context).is_pending() && !sync.has_failed());
        let begun_at = Instant::now().checked_sub(STALL + Duration::from_secs(1));
        sync.shared.rounds.lock().begun_at = Some(begun_at.expect("the machine runs for longer"));
        sync.judge_stall();
        let Poll::Ready(Err(failed)) = reply.as_mut().poll(&mut context) else {
            panic!("it has not failed")
        };
        assert!(failed.to_string().starts_with("MISCONF a power cut may undo"), "{failed}");
        let refused = sync.check().expect_err("writes are refused").to_string();
        assert!(refused.contains("has not answered for 10 seconds"), "{refused}");
        sync.shared.run_round(1);
        sync.check().expect("writes are accepted");
        let mut reply = pin!(sync.until_acknowledged());
        assert!(reply.as_mut().poll(&mut context).is_pending());
        run_round(&sync);
        assert!(matches!(reply.as_mut().poll(&mut context), Poll::Ready(Ok(true))));
    }

    /// Counts the errors that are logged.
    #[derive(Clone, Debug, Default)]
    struct Errors(Arc<AtomicU64>);

    impl tracing::Subscriber for Errors {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            *metadata.level() == tracing::Level::ERROR
        }

        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[test]
    fn a_failure_is_logged_once_also_behind_another_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let sync = without_thread(&folder, SyncMode::Always);
        let shared = &sync.shared;
        let options = pando::MapOptions::new().transactional(true);
        let map = shared.pool.map_with("values", &options).expect("a map");
        run_round(&sync);
        let errors = Errors::default();
        let logged = || errors.0.load(Ordering::Relaxed);
        tracing::subscriber::with_default(errors.clone(), || {
            let begun_at = Instant::now().checked_sub(STALL + Duration::from_secs(1));
            shared.rounds.lock().begun_at = Some(begun_at.expect("the machine runs for longer"));
            sync.judge_stall();
            assert_eq!(logged(), 1);
            break_disk(&folder.path().join("log"), &folder.path().join("kept"));
            map.upsert(b"key", b"value").expect("writes");
            run_round(&sync);
            let failure = sync.failure().expect("it has failed");
            assert!(failure.ends_with("restart the server"), "{failure}");
            assert_eq!(logged(), 2);
            run_round(&sync);
            assert_eq!(logged(), 2);
        });
    }

    #[test]
    fn a_reply_that_waits_at_the_end_of_the_server_gets_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let sync = without_thread(&folder, SyncMode::Always);
        let mut context = Context::from_waker(Waker::noop());
        let mut reply = pin!(sync.until_acknowledged());
        assert!(reply.as_mut().poll(&mut context).is_pending());
        sync.shared.rounds.lock().is_over = true;
        sync.shared.run_rounds();
        assert!(matches!(reply.as_mut().poll(&mut context), Poll::Ready(Err(_))));
    }
}
