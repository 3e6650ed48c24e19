//! A directory whose changes are in process memory alone.
//!
//! A reader that would write, such as an opening that replays a log, uses an overlay where the
//! files must stay as they are, or cannot be written. It sees its own changes, and they end with
//! the overlay. No file below is opened for writing, created, renamed or removed. Nothing else may
//! change the files below meanwhile.
//!
//! Memory is taken by blocks of 4 KiB that were written with other bytes than those below. Room
//! that is only allocated takes none. A block that cannot be read below can be written whole.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{Directory, Error, File, Operation, Result};

const BLOCK_BYTES: u64 = 4096;

/// The files of another directory, and changes of them in memory.
#[derive(Debug)]
pub struct Overlay {
    below: Arc<dyn Directory>,
    /// Files that were opened, created, renamed or removed, which are none.
    names: Mutex<BTreeMap<String, Option<Arc<Content>>>>,
}

impl Overlay {
    /// The files of `below`, without any change.
    pub fn new(below: Arc<dyn Directory>) -> Self {
        Self { below, names: Mutex::default() }
    }

    /// The blocks of its files in process memory, without files that were removed.
    pub fn blocks(&self) -> usize {
        let names = self.names();
        names.values().flatten().map(|content| content.state().blocks.len()).sum()
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<String, Option<Arc<Content>>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, operation: Operation, name: &str, kind: io::ErrorKind) -> Error {
        Error { operation, path: format!("{}/{name}", self.below.path()), source: kind.into() }
    }

    /// The content of a file that is there.
    fn found(
        &self,
        names: &mut BTreeMap<String, Option<Arc<Content>>>,
        name: &str,
    ) -> Result<Arc<Content>> {
        let not_found = || self.error(Operation::Open, name, io::ErrorKind::NotFound);
        if let Some(changed) = names.get(name) {
            return changed.clone().ok_or_else(not_found);
        }
        let below = self.below.open_read_only(name)?;
        let below_bytes = below.size_bytes()?;
        let path = format!("{}/{name}", self.below.path());
        let state = Mutex::new(State { bytes: below_bytes, blocks: BTreeMap::new() });
        let content = Arc::new(Content { path, below: Some((below, below_bytes)), state });
        names.insert(name.to_owned(), Some(content.clone()));
        Ok(content)
    }

    fn has(&self, names: &BTreeMap<String, Option<Arc<Content>>>, name: &str) -> Result<bool> {
        match names.get(name) {
            Some(changed) => Ok(changed.is_some()),
            None => Ok(self.below.names()?.iter().any(|found| found == name)),
        }
    }

    fn put(&self, from: &str, to: &str, may_replace: bool) -> Result<()> {
        let mut names = self.names();
        let content = self.found(&mut names, from)?;
        if !may_replace && self.has(&names, to)? {
            return Err(self.error(Operation::Rename, to, io::ErrorKind::AlreadyExists));
        }
        names.insert(from.to_owned(), None);
        names.insert(to.to_owned(), Some(content));
        Ok(())
    }
}

impl Directory for Overlay {
    fn path(&self) -> String {
        self.below.path()
    }

    fn names(&self) -> Result<Vec<String>> {
        let changed = self.names();
        let mut names = self.below.names()?;
        names.retain(|name| !changed.contains_key(name));
        let is_there =
            |(name, content): (&String, &Option<_>)| content.is_some().then(|| name.clone());
        names.extend(changed.iter().filter_map(is_there));
        Ok(names)
    }

    fn open(&self, name: &str) -> Result<Box<dyn File>> {
        let content = self.found(&mut self.names(), name)?;
        Ok(Box::new(OverlayFile { content, is_writable: true }))
    }

    fn open_read_only(&self, name: &str) -> Result<Box<dyn File>> {
        let content = self.found(&mut self.names(), name)?;
        Ok(Box::new(OverlayFile { content, is_writable: false }))
    }

    fn create(&self, name: &str) -> Result<Box<dyn File>> {
        let mut names = self.names();
        if self.has(&names, name)? {
            return Err(self.error(Operation::Create, name, io::ErrorKind::AlreadyExists));
        }
        let path = format!("{}/{name}", self.below.path());
        let content = Arc::new(Content { path, below: None, state: Mutex::default() });
        names.insert(name.to_owned(), Some(content.clone()));
        Ok(Box::new(OverlayFile { content, is_writable: true }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.put(from, to, false)
    }

    fn replace(&self, from: &str, to: &str) -> Result<()> {
        self.put(from, to, true)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut names = self.names();
        if !self.has(&names, name)? {
            return Err(self.error(Operation::Remove, name, io::ErrorKind::NotFound));
        }
        names.insert(name.to_owned(), None);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

/// The bytes of a file.
#[derive(Debug)]
struct Content {
    /// For messages.
    path: String,
    /// The file below, if there is one, and its size.
    below: Option<(Box<dyn File>, u64)>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bytes: u64,
    /// The blocks that were written, by number.
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl Content {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, operation: Operation, kind: io::ErrorKind) -> Error {
        Error { operation, path: self.path.clone(), source: kind.into() }
    }

    /// Fills `bytes` from byte `at` on, without the blocks that were written.
    fn read_below(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        let (file, end) = match &self.below {
            Some((file, end)) => (Some(file), *end),
            None => (None, 0),
        };
        let there = bytes.len().min(usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX));
        let (there, behind) = bytes.split_at_mut(there);
        behind.fill(0);
        match file {
            Some(file) if !there.is_empty() => file.read_at(there, at),
            _ => Ok(()),
        }
    }
}

/// Cuts `length` bytes from byte `at` on at the borders of blocks: the number of the block, the
/// first byte in it, and how many.
fn pieces(at: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = at + length as u64;
    let mut at = at;
    std::iter::from_fn(move || {
        let first = at % BLOCK_BYTES;
        let count = (BLOCK_BYTES - first).min(end - at);
        let piece = (at / BLOCK_BYTES, first as usize, count as usize);
        at += count;
        (count > 0).then_some(piece)
    })
}

#[derive(Debug)]
struct OverlayFile {
    content: Arc<Content>,
    is_writable: bool,
}

impl OverlayFile {
    /// The end of an operation on so many bytes.
    fn end(&self, operation: Operation, at: u64, length: usize) -> Result<u64> {
        let end = at.checked_add(length as u64);
        end.ok_or_else(|| self.content.error(operation, io::ErrorKind::InvalidInput))
    }

    fn check_writable(&self, operation: Operation) -> Result<()> {
        match self.is_writable {
            true => Ok(()),
            false => Err(self.content.error(operation, io::ErrorKind::PermissionDenied)),
        }
    }
}

impl File for OverlayFile {
    fn size_bytes(&self) -> Result<u64> {
        Ok(self.content.state().bytes)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        let end = self.end(Operation::Read, at, bytes.len())?;
        let state = self.content.state();
        if end > state.bytes {
            return Err(self.content.error(Operation::Read, io::ErrorKind::UnexpectedEof));
        }
        if state.blocks.range(at / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)).next().is_none() {
            drop(state);
            return self.content.read_below(bytes, at);
        }
        let mut rest = bytes;
        for (number, first, count) in pieces(at, rest.len()) {
            let (piece, behind) = rest.split_at_mut(count);
            match state.blocks.get(&number) {
                Some(block) => piece.copy_from_slice(&block[first..first + count]),
                None => self.content.read_below(piece, number * BLOCK_BYTES + first as u64)?,
            }
            rest = behind;
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.check_writable(Operation::Write)?;
        let end = self.end(Operation::Write, at, bytes.len())?;
        let mut state = self.content.state();
        let mut rest = bytes;
        for (number, first, count) in pieces(at, bytes.len()) {
            let (piece, behind) = rest.split_at(count);
            rest = behind;
            let block = match state.blocks.entry(number) {
                Entry::Occupied(found) => found.into_mut(),
                Entry::Vacant(vacant) => {
                    let mut block = vec![0; BLOCK_BYTES as usize].into_boxed_slice();
                    match self.content.read_below(&mut block, number * BLOCK_BYTES) {
                        Ok(()) if block[first..first + count] == *piece => continue,
                        Err(error) if piece.len() < block.len() => return Err(error),
                        _ => {}
                    }
                    vacant.insert(block)
                }
            };
            block[first..first + count].copy_from_slice(piece);
        }
        state.bytes = state.bytes.max(end);
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> Result<()> {
        self.check_writable(Operation::Allocate)?;
        let mut state = self.content.state();
        state.bytes = state.bytes.max(bytes);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}
