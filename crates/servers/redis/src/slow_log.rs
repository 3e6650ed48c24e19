//! Commands that took long, the latest first, for SLOWLOG. The number of entries and the size of
//! each entry are bounded.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::spec::Arguments;

/// The most arguments of an entry.
const MAX_ARGUMENTS: usize = 32;
/// The most bytes of an argument in an entry.
const MAX_ARGUMENT_BYTES: usize = 128;

/// A command that took long.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The number of the entry, from 0.
    pub id: u64,
    /// The time when the command ended, in seconds since 1970.
    pub at_s: u64,
    /// The duration in microseconds.
    pub microseconds: u64,
    /// The words of the command, shortened.
    pub arguments: Vec<Vec<u8>>,
    /// The address of the client.
    pub address: String,
    /// The name that the client has set.
    pub name: String,
}

/// The slow log.
#[derive(Debug, Default)]
pub(crate) struct SlowLog {
    log: Mutex<(u64, VecDeque<Entry>)>,
}

impl SlowLog {
    /// Adds a command. The log keeps `most` entries.
    pub(crate) fn note(
        &self,
        arguments: &Arguments<'_>,
        microseconds: u64,
        (address, name): (String, String),
        most: usize,
    ) {
        let at_s = pando_keyspace::clock::system_ms() / 1000;
        let arguments = shorten(arguments);
        let mut log = self.log.lock();
        let id = log.0;
        log.0 += 1;
        log.1.push_front(Entry { id, at_s, microseconds, arguments, address, name });
        log.1.truncate(most);
    }

    /// The latest `count` entries.
    pub(crate) fn latest(&self, count: usize) -> Vec<Entry> {
        self.log.lock().1.iter().take(count).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.log.lock().1.len()
    }

    pub(crate) fn clear(&self) {
        self.log.lock().1.clear();
    }
}

fn shorten(arguments: &Arguments<'_>) -> Vec<Vec<u8>> {
    let kept = match arguments.len() {
        count if count > MAX_ARGUMENTS => MAX_ARGUMENTS - 1,
        count => count,
    };
    let mut short: Vec<Vec<u8>> = arguments[..kept]
        .iter()
        .map(|argument| match argument.get(..MAX_ARGUMENT_BYTES) {
            Some(begin) if argument.len() > MAX_ARGUMENT_BYTES => {
                let more = argument.len() - MAX_ARGUMENT_BYTES;
                [begin, format!("... ({more} more bytes)").as_bytes()].concat()
            }
            _ => argument.to_vec(),
        })
        .collect();
    if kept < arguments.len() {
        short.push(format!("... ({} more arguments)", arguments.len() - kept).into_bytes());
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_few_and_short() {
        let log = SlowLog::default();
        let long = [b'x'; 200];
        let words: Vec<&[u8]> = std::iter::repeat_n(&long[..], 40).collect();
        for _ in 0..5 {
            log.note(&words, 7, Default::default(), 3);
        }
        assert_eq!(log.len(), 3);
        let latest = log.latest(1).remove(0);
        assert_eq!((latest.id, latest.arguments.len()), (4, 32));
        assert!(latest.arguments[0].ends_with(b"xx... (72 more bytes)"));
        assert_eq!(latest.arguments[31], b"... (9 more arguments)");
        log.clear();
        assert_eq!(log.len(), 0);
    }
}
