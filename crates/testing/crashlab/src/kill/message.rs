//! What a process that is to be cut short tells of itself, and how it tells it.
//!
//! A message is a line of JSON, and a line is one write: a pipe takes it whole or not at all, so
//! whatever was said before a kill has been said. That is what makes [`Message::Done`] an
//! acknowledgement. It is sent only after the call has returned, and it counts only if it arrived.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// Characters of a free text: a line has to fit `PIPE_BUF`, or it would not be one piece.
const MAX_TEXT_CHARS: usize = 500;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// The pool is about to be opened, or created.
    Opening,
    /// The pool is open and has answered a get.
    Opened(Opened),
    /// The pool was refused, because the machine went down while it was open.
    Refused,
    /// The pool holds this map.
    Map { map: u64 },
    /// The pool holds this record.
    Record { map: u64, key: u64, version: u64 },
    /// The pool holds something that it must not hold, or a check found something wrong.
    Problem(String),
    /// The pool's content has been told.
    Looked,
    /// The writers are about to begin.
    Writing,
    /// A writer's operation, the so-manieth, has returned.
    Done { writer: u64, count: u64 },
    /// The pool is about to be closed.
    Closing,
    /// The pool is closed.
    Closed,
    /// The library failed where it must not.
    Failed(String),
}

/// What an open pool says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Whether there was no pool, so that one was created.
    pub created: bool,
    /// Whether the pool was new or had been closed in order.
    pub was_clean: bool,
    /// From the beginning of open to the answer of the first get.
    pub first_get_ns: u64,
    /// Operations in flight that recovery completed, ...
    pub completed: u64,
    /// ... and those that it undid.
    pub undone: u64,
    /// The persistence domain.
    pub domain: String,
    /// What the pool lies on.
    pub medium: String,
    /// What a returned write survives.
    pub guarantee: String,
}

/// Where messages go: standard output, without a buffer. One thread at a time, because the port of
/// a virtual machine drops what a second one writes while its queue is full.
#[derive(Debug)]
pub struct Voice(Mutex<File>);

impl Voice {
    /// The standard output of this process.
    pub fn standard_output() -> std::io::Result<Self> {
        Ok(Self(Mutex::new(File::from(std::io::stdout().as_fd().try_clone_to_owned()?))))
    }

    /// Says `message`; it has left this process when this returns.
    pub fn say(&self, message: &Message) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
    }
}

/// `text`, cut to what fits a message.
pub fn short(text: impl std::fmt::Display) -> String {
    text.to_string().chars().take(MAX_TEXT_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_piece_and_comes_back() {
        // A control character takes the most room: six bytes.
        let message = Message::Failed(short("\u{1}".repeat(10_000)));
        let line = serde_json::to_vec(&message).unwrap();
        assert!(line.len() < 4096, "{}", line.len());
        assert!(!line.contains(&b'\n'));
        assert_eq!(serde_json::from_slice::<Message>(&line).unwrap(), message);
    }
}
