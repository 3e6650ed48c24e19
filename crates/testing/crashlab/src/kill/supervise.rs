//! Runs a process, reads its messages, and kills it.
//!
//! The kill comes some time after a certain message. A separate thread reads the pipe to its end: a
//! message that was sent before the kill counts, even if it is read later.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use pando_tc::testing::{Id, Outcome, Recorded};

use super::child::wait_awake;
use super::message::{Message, Opened};
use super::workload::State;
use crate::failure::Failure;

/// Longest wait for the message before the kill: a virtual machine boots in seconds, and fills a
/// store in as many; on a busy machine both take minutes.
const PATIENCE: Duration = Duration::from_secs(900);
/// For a shorter delay than this a loop waits more exactly than a sleep.
const SHORT: Duration = Duration::from_millis(2);
/// The signal of [`std::process::Child::kill`].
pub const SIGKILL: i32 = 9;

type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// When a process is to be killed.
#[derive(Clone, Debug)]
pub struct Kill {
    /// The message that starts the delay.
    pub after: Message,
    /// The delay.
    pub delay: Duration,
}

/// The messages of a process, and its end.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// How the pool opened.
    pub opened: Option<Opened>,
    /// Whether the pool was refused as not trusted.
    pub is_refused: bool,
    /// The pool's content, if the report was complete.
    pub looked: Option<State>,
    /// The problems of the pool.
    pub problems: Vec<String>,
    /// Whether the writers may have started.
    pub is_writing: bool,
    /// The number of acknowledged operations, by writer.
    pub acknowledged: Vec<u64>,
    /// The transactions that may have begun to commit, with their ends.
    pub transactions: BTreeMap<Id, (Recorded, Outcome)>,
    /// Whether the kill hit the process; if not, it had ended before.
    pub was_killed: bool,
    /// The cause of another failure.
    pub failed: Option<String>,
}

/// A child process that is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The kill fails if the process has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `command`, kills it as `kill` says if it has not ended before, and returns its messages.
pub fn run(command: &mut Command, writers: u64, kill: Option<&Kill>) -> Result<Heard, Failure> {
    let mut process = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map(Running)
        .map_err(|error| Failure::trouble(&format!("start {command:?}"), error))?;
    let pipe = process.0.stdout.take().ok_or(Failure::Trouble("there is no pipe".into()))?;
    let (announce, announced) = channel();
    let after = kill.map(|kill| kill.after.clone());
    let reader = std::thread::spawn(move || read(pipe, after.as_ref(), &announce));
    match (announced.recv_timeout(PATIENCE), kill) {
        (Ok(()), Some(kill)) => {
            if kill.delay < SHORT {
                wait_awake(kill.delay)
            } else {
                std::thread::sleep(kill.delay)
            }
            process.0.kill().map_err(|error| Failure::trouble("kill a process", error))?;
        }
        // The reader has reached the end of the pipe: the process has ended by itself.
        (Err(RecvTimeoutError::Disconnected), _) => {}
        (Err(RecvTimeoutError::Timeout) | Ok(()), _) => {
            drop(process);
            let last = joined(reader)?.pop();
            return Err(Failure::trouble(
                &format!("wait for {command:?}"),
                format_args!(
                    "it did not send the expected message within {PATIENCE:?}; its last one: \
                     {last:?}"
                ),
            ));
        }
    }
    // A process whose messages cannot be read is killed, and not waited for.
    let messages = joined(reader)?;
    let status = process.0.wait().map_err(|error| Failure::trouble("wait for a process", error))?;
    Ok(Heard::new(&messages, status, writers))
}

/// The messages that a reader has read to the end of its pipe.
fn joined(reader: JoinHandle<Result<Vec<Message>, Trouble>>) -> Result<Vec<Message>, Failure> {
    let read = reader.join().unwrap_or_else(|_| Err("the reader panicked".into()));
    read.map_err(|error| Failure::trouble("read the messages of a process", error))
}

/// Reads to the end of the pipe, and announces the message `after`.
fn read(
    pipe: ChildStdout,
    after: Option<&Message>,
    announce: &Sender<()>,
) -> Result<Vec<Message>, Trouble> {
    let mut pipe = BufReader::new(pipe);
    let mut messages = Vec::new();
    let mut line = Vec::new();
    // A machine that loses power within a line leaves a line without an end.
    while pipe.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
        let message = serde_json::from_slice(&line)
            .map_err(|error| format!("{error}: {:?}", String::from_utf8_lossy(&line)))?;
        if after == Some(&message) {
            // The receiver is gone if the wait has timed out.
            let _ = announce.send(());
        }
        messages.push(message);
        line.clear();
    }
    Ok(messages)
}

impl Heard {
    fn new(messages: &[Message], status: ExitStatus, writers: u64) -> Self {
        let mut heard = Self { acknowledged: vec![0; writers as usize], ..Self::default() };
        let mut state = State::new();
        for message in messages {
            match message {
                Message::Opening | Message::Closing | Message::Closed => {}
                Message::Opened(opened) => heard.opened = Some(opened.clone()),
                Message::Refused => heard.is_refused = true,
                Message::Map { map } => {
                    state.entry(*map).or_default();
                }
                Message::Record { map, key, version } => {
                    state.entry(*map).or_default().insert(*key, *version);
                }
                Message::Problem(problem) => heard.problems.push(problem.clone()),
                Message::Looked => heard.looked = Some(std::mem::take(&mut state)),
                Message::Writing => heard.is_writing = true,
                Message::Done { writer, count } => heard.acknowledge(*writer, *count),
                Message::Committing { id, is_over_snapshot, reads, writes } => {
                    let (reads, writes) = (reads.clone(), writes.iter().copied().collect());
                    let recorded =
                        Recorded { id: *id, is_over_snapshot: *is_over_snapshot, reads, writes };
                    heard.transactions.entry(*id).or_insert((recorded, Outcome::Unknown));
                }
                Message::Committed { id, lsn } => heard.end(*id, *lsn),
                Message::Failed(failed) => heard.failed = Some(failed.clone()),
            }
        }
        heard.was_killed = status.signal() == Some(SIGKILL);
        let is_done =
            status.success() && matches!(messages.last(), Some(Message::Closed | Message::Refused));
        if !heard.was_killed && !is_done {
            heard.failed.get_or_insert_with(|| format!("the process ended by itself: {status}"));
        }
        heard
    }

    fn end(&mut self, id: Id, lsn: Option<u64>) {
        let outcome = lsn.map_or(Outcome::Failed, |lsn| Outcome::Committed { lsn });
        match self.transactions.get_mut(&id) {
            Some((_, end)) if *end == Outcome::Unknown => *end = outcome,
            other => self.failed = Some(format!("transaction {id}: {outcome:?} follows {other:?}")),
        }
    }

    fn acknowledge(&mut self, writer: u64, count: u64) {
        match self.acknowledged.get_mut(writer as usize) {
            Some(last) if *last < count => *last = count,
            other => self.failed = Some(format!("writer {writer}: {count} follows {other:?}")),
        }
    }
}
