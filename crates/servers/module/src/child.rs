//! Saves in a forked child (BGSAVE, BGREWRITEAOF, full sync).
//!
//! A forked child does not have the mapping of the pool. It reads the records from a socket, and a
//! thread of the server writes them there from a snapshot that was taken just before the fork. So
//! the child touches no byte of the pool, and its RDB file is of the instant of the fork, as for
//! Redis's own data. The module API has no event in the server before a fork, so this is done by
//! handlers of `fork`.
//!
//! | step | where | a kill of the server | a kill of the child |
//! | --- | --- | --- | --- |
//! | snapshot, socket pair, number of the save | server, before the fork | no file | |
//! | a thread takes the snapshot and one end | server, after the fork | the child reads an end, and fails | the thread reads an end, and drops the snapshot |
//! | the child asks for a map by its number | child | the same | the same |
//! | pieces, an empty piece, both counts; or a refusal | server's thread | the same | the same |
//!
//! If the snapshot is revoked, because it has become too old or holds back too much, the thread
//! sends a refusal. The child then ends with an error: the save fails, and not the writes.
//!
//! ```text
//! request   number, 8 bytes
//! answer    (length of a piece, 4 bytes; the piece)*, 0, records 8 bytes, receipts 8 bytes
//!           or at any piece: 2^32-1
//! ```

use std::io::{self, BufWriter, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use crate::kill_point::{fail_point, kill_point};
use crate::layout::Kind;
use crate::log;
use crate::pieces;
use crate::store::{ALL, Pinned, Store};

const REFUSAL: u32 = u32::MAX;

/// What a fork needs.
struct Prepared {
    pinned: Pinned,
    of_server: UnixStream,
    of_child: UnixStream,
    save: u64,
}

/// Between the handlers before and after a fork.
static PREPARED: Mutex<Option<Prepared>> = Mutex::new(None);

/// In the child: its end of the socket, and the number of the save.
static CHILD: Mutex<Option<(UnixStream, u64)>> = Mutex::new(None);

/// A failure of a save.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{0}")]
    Pool(#[from] pando::Error),
    #[error("the server does not send the records: {0}")]
    Socket(#[from] io::Error),
    #[error("the server's snapshot was revoked, or it cannot read the map; its log says why")]
    Refused,
    #[error("the snapshot of this save could not be taken; the server's log says why")]
    NoSnapshot,
}

/// Runs in the server before a fork.
pub fn before_fork(store: &Arc<Store>) {
    let prepared = || -> Result<Prepared, Failure> {
        let save = store.next_save()?;
        let pinned = store.pin("a save of Redis")?;
        let (of_server, of_child) = UnixStream::pair()?;
        Ok(Prepared { pinned, of_server, of_child, save })
    };
    let prepared = prepared().inspect_err(|failure| {
        log::warning(&format!("a child that saves would fail, because {failure}"));
    });
    *PREPARED.lock().unwrap_or_else(PoisonError::into_inner) = prepared.ok();
}

/// Runs in the server after a fork.
pub fn after_fork_in_server() {
    let prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(Prepared { pinned, of_server, .. }) = prepared else { return };
    let serve = move || {
        if let Err(failure) = serve(&pinned, of_server) {
            log::warning(&format!("a child cannot save: {failure}"));
        }
    };
    if let Err(error) = std::thread::Builder::new().name("pando-save".to_owned()).spawn(serve) {
        log::warning(&format!("a child cannot save: no thread: {error}"));
    }
}

/// Runs in the child after a fork.
pub fn after_fork_in_child() {
    let prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(Prepared { pinned, of_child, save, .. }) = prepared else { return };
    // Its drop would use the pool, which this process does not have.
    std::mem::forget(pinned);
    *CHILD.lock().unwrap_or_else(PoisonError::into_inner) = Some((of_child, save));
}

/// Answers the child until it ends.
fn serve(pinned: &Pinned, socket: UnixStream) -> Result<(), Failure> {
    let mut requests = socket.try_clone()?;
    let mut answers = BufWriter::with_capacity(128 << 10, socket);
    let mut number = [0; 8];
    loop {
        match requests.read_exact(&mut number) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let number = u64::from_le_bytes(number);
        kill_point("save");
        let records = pinned.scan(number, Kind::Record, ALL);
        let receipts = pinned.scan(number, Kind::Receipt, ALL);
        let written = pieces::write(records, receipts, |piece| -> Result<(), Failure> {
            fail_point("save")?;
            answers.write_all(&(piece.len() as u32).to_le_bytes())?;
            answers.write_all(piece)?;
            Ok(())
        });
        match written {
            Ok((records, receipts)) => {
                answers.write_all(&0_u32.to_le_bytes())?;
                answers.write_all(&records.to_le_bytes())?;
                answers.write_all(&receipts.to_le_bytes())?;
            }
            Err(Failure::Pool(error)) => {
                answers.write_all(&REFUSAL.to_le_bytes())?;
                answers.flush()?;
                return Err(error.into());
            }
            // The child has ended, perhaps because BGSAVE was stopped.
            Err(_) => return Ok(()),
        }
        if answers.flush().is_err() {
            return Ok(());
        }
    }
}

/// In the child: the number of its save.
pub fn save_number() -> Option<u64> {
    CHILD.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(_, save)| *save)
}

/// In the child: hands the pieces of a map to `sink`, and returns the counts.
pub fn fetch(number: u64, mut sink: impl FnMut(&[u8])) -> Result<(u64, u64), Failure> {
    let child = CHILD.lock().unwrap_or_else(PoisonError::into_inner);
    let (socket, _) = child.as_ref().ok_or(Failure::NoSnapshot)?;
    let mut socket = socket;
    socket.write_all(&number.to_le_bytes())?;
    let mut piece = Vec::new();
    let mut word = [0; 8];
    loop {
        let mut length = [0; 4];
        socket.read_exact(&mut length)?;
        match u32::from_le_bytes(length) {
            0 => break,
            REFUSAL => return Err(Failure::Refused),
            length => {
                piece.resize(length as usize, 0);
                socket.read_exact(&mut piece)?;
                sink(&piece);
            }
        }
    }
    socket.read_exact(&mut word)?;
    let records = u64::from_le_bytes(word);
    socket.read_exact(&mut word)?;
    Ok((records, u64::from_le_bytes(word)))
}
