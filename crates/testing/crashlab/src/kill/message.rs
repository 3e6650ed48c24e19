//! The messages of the process that is killed.
//!
//! A message is a line of JSON, and a line is one write. A pipe takes the write as a whole or not
//! at all, so a message that was sent before a kill is complete. Therefore [`Message::Done`] is an
//! acknowledgement: it is sent only after the call has returned, and it counts only if it arrived.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use pando_tc::testing::{Id, Place, Recorded};
use serde::{Deserialize, Serialize};

/// Most characters of a free text: a line must fit into `PIPE_BUF`, or it would not be one piece.
const MAX_TEXT_CHARS: usize = 500;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// The pool is about to be opened, or created.
    Opening,
    /// The pool is open and has answered a get.
    Opened(Opened),
    /// The pool was refused, because it was open when the machine went down.
    Refused,
    /// The pool holds this map.
    Map { map: u64 },
    /// The pool holds this record.
    Record { map: u64, key: u64, version: u64 },
    /// The pool holds an unexpected map or record, or its check found a problem.
    Problem(String),
    /// The report of the pool's content is complete.
    Looked,
    /// The writers are about to start.
    Writing,
    /// The operation number `count` of a writer has returned.
    Done { writer: u64, count: u64 },
    /// A transaction is about to commit. It may be said several times.
    Committing {
        id: Id,
        is_over_snapshot: bool,
        reads: BTreeSet<(Place, Id)>,
        writes: Vec<(Place, Id)>,
    },
    /// The commit has returned, with this LSN, or with a conflict.
    Committed { id: Id, lsn: Option<u64> },
    /// The pool is about to be closed.
    Closing,
    /// The pool is closed.
    Closed,
    /// The library returned an unexpected error.
    Failed(String),
}

/// The state of a pool after it was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Whether the pool was created now.
    pub created: bool,
    /// Whether the pool was new or had been closed cleanly.
    pub was_clean: bool,
    /// Whether the pool, or the tail of a store's log, was lost, and the log has replaced it.
    pub from_log: bool,
    /// From the beginning of open to the answer of the first get.
    pub first_get_ns: u64,
    /// Operations in flight that recovery completed.
    pub completed: u64,
    /// Operations in flight that recovery undid.
    pub undone: u64,
    /// The persistence domain.
    pub domain: String,
    /// The medium.
    pub medium: String,
    /// Which failures a returned write survives.
    pub guarantee: String,
}

impl Message {
    /// The transaction is about to commit.
    pub fn committing(recorded: &Recorded) -> Self {
        let Recorded { id, is_over_snapshot, reads, writes } = recorded.clone();
        Self::Committing { id, is_over_snapshot, reads, writes: writes.into_iter().collect() }
    }
}

/// Sends messages to standard output, without a buffer. Only one thread writes at a time, because
/// the port of a virtual machine drops the write of a second thread while its queue is full.
#[derive(Debug)]
pub struct Voice(Mutex<Output>);

#[derive(Debug)]
struct Output {
    file: File,
    /// Messages so far.
    count: u64,
}

impl Voice {
    /// The standard output of this process.
    pub fn standard_output() -> std::io::Result<Self> {
        let file = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Self(Mutex::new(Output { file, count: 0 })))
    }

    /// Sends `message`. When this returns, the message has left the process. Returns the number of
    /// messages so far.
    pub fn say(&self, message: &Message) -> std::io::Result<u64> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let mut output = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        output.file.write_all(&line)?;
        output.count += 1;
        Ok(output.count)
    }

    /// Sends `message` until so many others have followed it. When this returns, it has left a
    /// queue that holds so many.
    pub fn say_through(&self, message: &Message, queue: u64) -> std::io::Result<()> {
        let first = self.say(message)?;
        while queue > 0 && self.say(message)? < first + queue {}
        Ok(())
    }
}

/// `text`, cut to the length of a message.
pub fn short(text: impl std::fmt::Display) -> String {
    text.to_string().chars().take(MAX_TEXT_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_piece_and_comes_back() {
        // A control character takes the most room: six bytes.
        let failed = Message::Failed(short("\u{1}".repeat(10_000)));
        // All keys, and some that were read twice.
        let mut recorded = Recorded::new(u64::MAX, true);
        recorded.reads = (0..20).map(|number| ((1, number), u64::MAX - number)).collect();
        recorded.writes = recorded.reads.iter().copied().collect();
        for message in [failed, Message::committing(&recorded)] {
            let line = serde_json::to_vec(&message).unwrap();
            assert!(line.len() < 4096, "{}", line.len());
            assert!(!line.contains(&b'\n'));
            assert_eq!(serde_json::from_slice::<Message>(&line).unwrap(), message);
        }
    }
}
