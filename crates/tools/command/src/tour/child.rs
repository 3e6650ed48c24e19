//! The start of the loading process, the count of its acknowledgements, and its kill midway.

use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pando_index::random::Random;

use super::writer::ACKNOWLEDGEMENT_BYTES;
use crate::arguments::PoolArguments;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::random;

/// The most bytes that the child may be ahead: few, so that the kill really comes midway.
const PIPE_BYTES: usize = 16 << 10;
/// The kill comes when this part of the records, in percent, is acknowledged, ...
const KILL_FROM_PERCENT: u64 = 35;
const KILL_TO_PERCENT: u64 = 65;
/// ... and a little later, so that the instant is not that of an acknowledgement, and the writers
/// are not just switching to the reader of the pipe.
const MIN_KILL_DELAY_NS: u64 = 50_000;
const MAX_KILL_DELAY_NS: u64 = 500_000;

/// The arguments of the loading process.
pub struct Loader<'tour> {
    pub pool: &'tour PoolArguments,
    pub pool_path: &'tour Path,
    pub data_path: PathBuf,
    pub writers: u16,
    pub seed: u64,
    pub running: &'tour Running,
}

/// A killed process.
pub struct Killed {
    /// By record, whether its insert was acknowledged.
    pub is_acknowledged: Vec<bool>,
    /// The number of acknowledged records.
    pub acknowledged_count: u64,
    /// From the start of the process to the kill.
    pub elapsed: Duration,
    /// Its process id.
    pub process_id: u32,
}

impl Loader<'_> {
    /// Loads in a process of its own and kills it midway; `None` if the load ended before the kill.
    pub fn load_and_kill(&self, records: usize) -> Result<Option<Killed>, Failure> {
        let begin = Instant::now();
        let process = Process(self.running);
        let (process_id, pipe) = process.start(&mut self.command()?)?;
        shrink(pipe.as_fd());
        let mut random = Random::new(random::unpredictable());
        let percent = KILL_FROM_PERCENT + random.below(KILL_TO_PERCENT - KILL_FROM_PERCENT);
        let kill_at = (records as u64 * percent / 100).max(1);
        let delay_range_ns = MAX_KILL_DELAY_NS - MIN_KILL_DELAY_NS;
        let delay_ns = MIN_KILL_DELAY_NS + random.below(delay_range_ns);
        let delay = Duration::from_nanos(delay_ns);
        let mut elapsed = Duration::ZERO;
        let progress = Progress::new("acknowledged", Some(records as u64));
        let acknowledged = Acknowledged::new(records).read(pipe, kill_at, &progress, || {
            // The pipe has just been emptied, so the writers continue meanwhile.
            wait_awake(delay);
            process.kill();
            elapsed = begin.elapsed();
        })?;
        drop(progress);
        let status = process.wait()?;
        let Acknowledged { is_acknowledged, count: acknowledged_count } = acknowledged;
        if !was_killed(status)? || acknowledged_count == records as u64 {
            return Ok(None);
        }
        Ok(Some(Killed { is_acknowledged, acknowledged_count, elapsed, process_id }))
    }

    fn command(&self) -> Result<Command, Failure> {
        let command = std::env::current_exe()
            .map_err(Failure::system("cannot find the file of this command"))?;
        let mut command = Command::new(command);
        command
            .arg("tour-writer")
            .arg("--pool")
            .arg(self.pool_path)
            .args(["--domain", self.pool.domain.unwrap_or_default().name()])
            .arg("--data")
            .arg(&self.data_path)
            .args(["--writers", &self.writers.to_string(), "--seed", &self.seed.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // A ^C is for the tour alone: it would take the child's end by it for a failure.
            .process_group(0);
        Ok(command)
    }
}

/// The child process, if there is one, for the tour and for the thread that a signal wakes.
#[derive(Clone, Default)]
pub struct Running(Arc<Mutex<Option<Child>>>);

impl Running {
    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills the child, and lets the tour neither start another one nor see the end of this one.
    pub fn kill_for_good(&self) {
        let mut child = self.lock();
        child.as_mut().map(Child::kill);
        std::mem::forget(child);
    }

    /// Never returns if a signal is ending the tour: its files are gone then, and an error of the
    /// tour would only say so.
    pub fn wait_for_signal(&self) {
        drop(self.lock());
    }
}

/// A child process that is killed when the tour ends in any way.
struct Process<'tour>(&'tour Running);

impl Process<'_> {
    /// Starts the process: its id and its standard output.
    fn start(&self, command: &mut Command) -> Result<(u32, ChildStdout), Failure> {
        let mut running = self.0.lock();
        let child =
            command.spawn().map_err(Failure::system("cannot start the child that loads"))?;
        let child = running.insert(child);
        let pipe = child.stdout.take().ok_or_else(|| {
            Failure::Violation("the child's standard output is a pipe".to_owned())
        })?;
        Ok((child.id(), pipe))
    }

    fn kill(&self) {
        // SIGKILL. It fails only if the process has ended by itself; then its status says so.
        self.0.lock().as_mut().map(Child::kill);
    }

    /// Waits for its end.
    fn wait(&self) -> Result<ExitStatus, Failure> {
        let child = self.0.lock().take();
        let status = child.map(|mut child| child.wait());
        let none = || Failure::Violation("there is a child to wait for".to_owned());
        status.ok_or_else(none)?.map_err(Failure::system("cannot wait for the child"))
    }
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        self.kill();
        let _ = self.wait();
    }
}

/// Whether this program killed the process, or the process had ended; anything else is a failure.
fn was_killed(status: ExitStatus) -> Result<bool, Failure> {
    if status.signal() == Some(libc::SIGKILL) {
        Ok(true)
    } else if status.success() {
        Ok(false)
    } else {
        Err(Failure::Violation(format!("the child loads until it is killed; it ended: {status}")))
    }
}

/// Limits a pipe to `PIPE_BYTES`. If the system refuses, the kill may come later.
fn shrink(pipe: BorrowedFd<'_>) {
    // SAFETY: the descriptor is open for as long as it is borrowed, and the call accesses no memory
    // of this process.
    unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES as libc::c_int) };
}

/// Waits without giving up the processor: a sleep would take longer than the delay.
fn wait_awake(delay: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < delay {
        std::hint::spin_loop();
    }
}

/// The received acknowledgements.
struct Acknowledged {
    is_acknowledged: Vec<bool>,
    count: u64,
}

impl Acknowledged {
    fn new(records: usize) -> Self {
        Self { is_acknowledged: vec![false; records], count: 0 }
    }

    /// Reads to the end of the pipe; calls `kill` once `kill_at` acknowledgements are reached.
    fn read(
        mut self,
        mut pipe: impl Read,
        kill_at: u64,
        progress: &Progress,
        kill: impl FnOnce(),
    ) -> Result<Self, Failure> {
        let mut kill = Some(kill);
        let mut buffer = vec![0; PIPE_BYTES];
        // Bytes at the buffer's beginning that belong to an incomplete acknowledgement.
        let mut kept_bytes = 0;
        loop {
            let read_bytes = match pipe.read(&mut buffer[kept_bytes..]) {
                Ok(0) => break,
                Ok(read_bytes) => read_bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::system("cannot read from the child")(error)),
            };
            let filled_bytes = kept_bytes + read_bytes;
            kept_bytes = filled_bytes % ACKNOWLEDGEMENT_BYTES;
            let (whole, _) = buffer[..filled_bytes].as_chunks::<ACKNOWLEDGEMENT_BYTES>();
            for acknowledgement in whole {
                self.add(u64::from_le_bytes(*acknowledgement))?;
            }
            buffer.copy_within(filled_bytes - kept_bytes..filled_bytes, 0);
            if self.count >= kill_at
                && let Some(kill) = kill.take()
            {
                kill();
            }
            progress.update(self.count, self.count);
        }
        Ok(self)
    }

    fn add(&mut self, index: u64) -> Result<(), Failure> {
        let records = self.is_acknowledged.len();
        let wrong = match self.is_acknowledged.get_mut(index as usize) {
            None => format!("of a record that the data set has; it has {records}"),
            Some(true) => "once".to_owned(),
            Some(acknowledged) => {
                *acknowledged = true;
                self.count += 1;
                return Ok(());
            }
        };
        Err(Failure::Violation(format!("the child acknowledges record {index} {wrong}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe that gives a few bytes at a time.
    struct Dribble<'bytes>(&'bytes [u8]);

    impl Read for Dribble<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.0.len().min(buffer.len()).min(5);
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn read(indexes: &[u64], cut_bytes: usize) -> Result<(Acknowledged, bool), Failure> {
        let bytes: Vec<u8> = indexes.iter().flat_map(|index| index.to_le_bytes()).collect();
        let bytes = &bytes[..bytes.len() - cut_bytes];
        let progress = Progress::new("acknowledged", None);
        let mut is_reached = false;
        let reached = || is_reached = true;
        let acknowledged = Acknowledged::new(4).read(Dribble(bytes), 2, &progress, reached)?;
        Ok((acknowledged, is_reached))
    }

    #[test]
    fn acknowledgements_are_counted_whole() {
        let (acknowledged, is_reached) = read(&[2, 0, 3], 1).unwrap();
        assert_eq!(acknowledged.is_acknowledged, [true, false, true, false]);
        assert!(is_reached);
        let (acknowledged, is_reached) = read(&[2], 0).unwrap();
        assert_eq!((acknowledged.count, is_reached), (1, false));
    }

    #[test]
    fn acknowledgements_that_cannot_be_are_violations() {
        assert_eq!(read(&[4], 0).err().unwrap().exit_code(), 10);
        assert_eq!(read(&[1, 1], 0).err().unwrap().exit_code(), 10);
    }
}
