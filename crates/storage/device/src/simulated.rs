//! A directory in memory that a test cuts off from power, or lets fail.
//!
//! It keeps what is durable apart from what was only written. [`Simulated::cut_power`] makes the
//! directory that a machine could find after a power cut: durable bytes and names, with any subset
//! of the changes that were not synced, sector by sector, in any order. [`Simulated::on_operation`]
//! sees each operation before it takes place, and may refuse it.
//!
//! A refused sync behaves as Linux does: the bytes stay readable, no later sync writes them, and so
//! a power cut loses them. Each handle of the file that was open then reports the failure once.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pando_index::random::Random;

use crate::{Directory, Error, File, Operation, Result, SECTOR_BYTES};

/// Sees an operation on the file of that name before it takes place; an error refuses it. Several
/// threads may call it at once, and it may keep one of them waiting.
pub type Hook = dyn Fn(Operation, &str) -> io::Result<()> + Send + Sync;

/// How many of the changes that were not synced a power cut keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// None.
    Nothing,
    /// Each with a probability of one half, in any order.
    Some,
    /// All.
    All,
}

/// Bytes of a file that its copies share until one of them changes them.
const CHUNK_BYTES: usize = 4096;

/// The bytes of a file. A copy takes a word for each chunk.
#[derive(Clone, Debug, Default)]
struct Bytes {
    /// `None` for zeros.
    chunks: Vec<Option<Arc<[u8; CHUNK_BYTES]>>>,
    length: usize,
}

impl Bytes {
    /// Puts `bytes` at `at`, behind zeros if the file ends before that.
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.length = self.length.max(at + bytes.len());
        self.chunks.resize(self.length.div_ceil(CHUNK_BYTES), None);
        let mut rest = bytes;
        let mut at = at;
        while !rest.is_empty() {
            let from = at % CHUNK_BYTES;
            let (part, behind) = rest.split_at(rest.len().min(CHUNK_BYTES - from));
            let chunk = &mut self.chunks[at / CHUNK_BYTES];
            if chunk.is_some() || part.iter().any(|&byte| byte != 0) {
                let chunk = chunk.get_or_insert_with(|| Arc::new([0; CHUNK_BYTES]));
                Arc::make_mut(chunk)[from..from + part.len()].copy_from_slice(part);
            }
            (rest, at) = (behind, at + part.len());
        }
    }

    /// Copies the bytes from `at` on; false if the file ends before their end.
    fn get(&self, at: usize, bytes: &mut [u8]) -> bool {
        if at.checked_add(bytes.len()).is_none_or(|end| end > self.length) {
            return false;
        }
        let mut rest = bytes;
        let mut at = at;
        while !rest.is_empty() {
            let from = at % CHUNK_BYTES;
            let (part, behind) = rest.split_at_mut(rest.len().min(CHUNK_BYTES - from));
            match &self.chunks[at / CHUNK_BYTES] {
                Some(chunk) => part.copy_from_slice(&chunk[from..from + part.len()]),
                None => part.fill(0),
            }
            at += part.len();
            rest = behind;
        }
        true
    }

    /// Replaces all bytes by what `change` makes of them.
    fn replace(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = vec![0; self.length];
        self.get(0, &mut bytes);
        change(&mut bytes);
        *self = Self::default();
        self.put(0, &bytes);
    }
}

/// Bytes that were written and not synced.
#[derive(Clone, Debug)]
struct Written {
    at: usize,
    bytes: Arc<[u8]>,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    /// What a read finds.
    seen: Bytes,
    durable: Bytes,
    pending: Vec<Written>,
    /// Syncs that have failed.
    failures: u64,
}

impl Contents {
    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.seen.put(at, bytes);
        self.pending.push(Written { at, bytes: bytes.into() });
    }
}

/// The sectors of a write, each as a range of its bytes.
fn sectors(written: &Written) -> impl Iterator<Item = Range<usize>> {
    let (first, end) = (written.at / SECTOR_BYTES, written.at + written.bytes.len());
    let written_at = written.at;
    (first..end.div_ceil(SECTOR_BYTES)).map(move |sector| {
        let from = (sector * SECTOR_BYTES).max(written_at) - written_at;
        from..((sector + 1) * SECTOR_BYTES).min(end) - written_at
    })
}

/// A change of names that was not synced.
#[derive(Clone, Debug)]
enum Renaming {
    Created { name: String, file: usize },
    Renamed { from: String, to: String },
    Removed { name: String },
}

impl Renaming {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Created { name, file } => {
                names.insert(name.clone(), *file);
            }
            Self::Renamed { from, to } => {
                if let Some(file) = names.remove(from) {
                    names.insert(to.clone(), file);
                }
            }
            Self::Removed { name } => {
                names.remove(name);
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct State {
    /// Copied when it changes: a copy of the directory costs little.
    files: Vec<Arc<Contents>>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    renamings: Vec<Renaming>,
}

struct Shared {
    state: Mutex<State>,
    hook: Mutex<Option<Arc<Hook>>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Simulated").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is made by one call, so a panic elsewhere leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the hook. No lock is held meanwhile.
    fn admit(&self, operation: Operation, name: &str) -> Result<()> {
        let hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let answer = hook.map_or(Ok(()), |hook| hook(operation, name));
        answer.map_err(|source| error(operation, name, source))
    }
}

fn error(operation: Operation, name: &str, source: impl Into<io::Error>) -> Error {
    Error { operation, path: format!("simulated/{name}"), source: source.into() }
}

/// A directory in memory. Clones share it.
#[derive(Clone, Debug)]
pub struct Simulated {
    shared: Arc<Shared>,
}

impl Default for Simulated {
    fn default() -> Self {
        Self::of(State::default())
    }
}

impl Simulated {
    /// An empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    fn of(state: State) -> Self {
        Self { shared: Arc::new(Shared { state: Mutex::new(state), hook: Mutex::new(None) }) }
    }

    /// Calls `hook` before each operation from now on, in the place of an earlier hook. The hook
    /// may call [`cut_power`](Self::cut_power) and no other operation of this directory.
    pub fn on_operation(
        &self,
        hook: impl Fn(Operation, &str) -> io::Result<()> + Send + Sync + 'static,
    ) {
        let mut place = self.shared.hook.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(Arc::new(hook));
    }

    /// Refuses operation number `number` from now on, counted from zero, with this error of the
    /// system. Returns whether that has happened, as a flag.
    pub fn refuse_operation(&self, number: u64, error: i32) -> Arc<AtomicBool> {
        let (count, refused) = (AtomicU64::new(0), Arc::new(AtomicBool::new(false)));
        let is_refused = refused.clone();
        self.on_operation(move |_, _| {
            // Relaxed, also below: counts for tests.
            if count.fetch_add(1, Ordering::Relaxed) == number {
                is_refused.store(true, Ordering::Relaxed);
                return Err(io::Error::from_raw_os_error(error));
            }
            Ok(())
        });
        refused
    }

    /// The directory as a machine finds it after a power cut now. This one is unchanged.
    #[must_use]
    pub fn cut_power(&self, kept: Kept, random: &mut Random) -> Self {
        let state = self.shared.state();
        let mut keeps = || match kept {
            Kept::Nothing => false,
            Kept::Some => random.below(2) == 0,
            Kept::All => true,
        };
        let mut names = state.durable_names.clone();
        for renaming in &state.renamings {
            if keeps() {
                renaming.apply(&mut names);
            }
        }
        let mut images = Vec::new();
        for contents in &state.files {
            let mut kept_sectors = Vec::new();
            for written in &contents.pending {
                for sector in sectors(written) {
                    if keeps() {
                        kept_sectors.push((written, sector));
                    }
                }
            }
            images.push((contents.durable.clone(), kept_sectors));
        }
        let mut files = Vec::new();
        for (mut durable, mut kept_sectors) in images {
            if kept == Kept::Some {
                random.shuffle(&mut kept_sectors);
            }
            for (written, sector) in kept_sectors {
                durable.put(written.at + sector.start, &written.bytes[sector]);
            }
            let contents = Contents { seen: durable.clone(), durable, ..Contents::default() };
            files.push(Arc::new(contents));
        }
        Self::of(State { files, durable_names: names.clone(), names, renamings: Vec::new() })
    }

    /// A copy of the directory, as a process finds it after another was killed now: all that was
    /// written is seen, and what was not synced is still open. The copy has no hook.
    #[must_use]
    pub fn after_kill(&self) -> Self {
        Self::of(self.shared.state().clone())
    }

    /// Changes bytes of the file `name` as a failing medium does: durably, and unseen by any
    /// operation. Returns false if there is no such file.
    pub fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut state = self.shared.state();
        let Some(&file) = state.names.get(name) else { return false };
        let contents = Arc::make_mut(&mut state.files[file]);
        contents.seen.replace(change);
        contents.durable = contents.seen.clone();
        contents.pending.clear();
        true
    }
}

impl Directory for Simulated {
    fn path(&self) -> String {
        "simulated".to_owned()
    }

    fn names(&self) -> Result<Vec<String>> {
        self.shared.admit(Operation::List, "")?;
        Ok(self.shared.state().names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> Result<Box<dyn File>> {
        Ok(Box::new(self.opened(name)?))
    }

    fn open_read_only(&self, name: &str) -> Result<Box<dyn File>> {
        Ok(Box::new(SimulatedFile { is_writable: false, ..self.opened(name)? }))
    }

    fn create(&self, name: &str) -> Result<Box<dyn File>> {
        self.shared.admit(Operation::Create, name)?;
        let mut state = self.shared.state();
        if state.names.contains_key(name) {
            return Err(error(Operation::Create, name, io::ErrorKind::AlreadyExists));
        }
        let file = state.files.len();
        state.files.push(Arc::default());
        state.names.insert(name.to_owned(), file);
        state.renamings.push(Renaming::Created { name: name.to_owned(), file });
        Ok(Box::new(self.file(&state, name, file)))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.shared.admit(Operation::Rename, from)?;
        let mut state = self.shared.state();
        if state.names.contains_key(from) && state.names.contains_key(to) {
            return Err(error(Operation::Rename, to, io::ErrorKind::AlreadyExists));
        }
        let renaming = Renaming::Renamed { from: from.to_owned(), to: to.to_owned() };
        state.change_name(Operation::Rename, from, renaming)
    }

    fn replace(&self, from: &str, to: &str) -> Result<()> {
        self.shared.admit(Operation::Rename, from)?;
        let renaming = Renaming::Renamed { from: from.to_owned(), to: to.to_owned() };
        self.shared.state().change_name(Operation::Rename, from, renaming)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.shared.admit(Operation::Remove, name)?;
        let renaming = Renaming::Removed { name: name.to_owned() };
        self.shared.state().change_name(Operation::Remove, name, renaming)
    }

    fn sync(&self) -> Result<()> {
        let admitted = self.shared.admit(Operation::SyncDirectory, "");
        let mut state = self.shared.state();
        let renamings = std::mem::take(&mut state.renamings);
        if admitted.is_ok() {
            for renaming in renamings {
                renaming.apply(&mut state.durable_names);
            }
        }
        admitted
    }
}

impl State {
    fn change_name(&mut self, operation: Operation, name: &str, renaming: Renaming) -> Result<()> {
        if !self.names.contains_key(name) {
            return Err(error(operation, name, io::ErrorKind::NotFound));
        }
        renaming.apply(&mut self.names);
        self.renamings.push(renaming);
        Ok(())
    }
}

impl Simulated {
    fn opened(&self, name: &str) -> Result<SimulatedFile> {
        self.shared.admit(Operation::Open, name)?;
        let state = self.shared.state();
        match state.names.get(name) {
            Some(&file) => Ok(self.file(&state, name, file)),
            None => Err(error(Operation::Open, name, io::ErrorKind::NotFound)),
        }
    }

    fn file(&self, state: &State, name: &str, file: usize) -> SimulatedFile {
        let reported = AtomicU64::new(state.files[file].failures);
        let (shared, name) = (self.shared.clone(), name.to_owned());
        SimulatedFile { shared, name, file, is_writable: true, reported }
    }
}

#[derive(Debug)]
struct SimulatedFile {
    shared: Arc<Shared>,
    name: String,
    file: usize,
    is_writable: bool,
    /// How many failures of syncs this handle has reported, or was opened after.
    reported: AtomicU64,
}

impl SimulatedFile {
    fn size(&self) -> usize {
        self.shared.state().files[self.file].seen.length
    }

    fn check_writable(&self, operation: Operation) -> Result<()> {
        match self.is_writable {
            true => Ok(()),
            false => Err(error(operation, &self.name, io::ErrorKind::PermissionDenied)),
        }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        Arc::make_mut(&mut self.shared.state().files[self.file]).write(at, bytes);
    }
}

impl File for SimulatedFile {
    fn size_bytes(&self) -> Result<u64> {
        Ok(self.size() as u64)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<()> {
        self.shared.admit(Operation::Read, &self.name)?;
        let state = self.shared.state();
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        match state.files[self.file].seen.get(at, bytes) {
            true => Ok(()),
            false => Err(error(Operation::Read, &self.name, io::ErrorKind::UnexpectedEof)),
        }
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<()> {
        self.check_writable(Operation::Write)?;
        self.shared.admit(Operation::Write, &self.name)?;
        let at = usize::try_from(at)
            .map_err(|_| error(Operation::Write, &self.name, io::ErrorKind::FileTooLarge))?;
        self.write(at, bytes);
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> Result<()> {
        self.check_writable(Operation::Allocate)?;
        self.shared.admit(Operation::Allocate, &self.name)?;
        let size = self.size();
        let bytes = usize::try_from(bytes)
            .map_err(|_| error(Operation::Allocate, &self.name, io::ErrorKind::FileTooLarge))?;
        if bytes > size {
            self.write(size, &vec![0; bytes - size]);
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let admitted = self.shared.admit(Operation::Sync, &self.name);
        let mut state = self.shared.state();
        let contents = Arc::make_mut(&mut state.files[self.file]);
        let pending = std::mem::take(&mut contents.pending);
        match &admitted {
            Ok(()) => {
                for written in pending {
                    contents.durable.put(written.at, &written.bytes);
                }
            }
            Err(_) => contents.failures += 1,
        }
        let reported = self.reported.swap(contents.failures, Ordering::Relaxed);
        if admitted.is_ok() && reported < contents.failures {
            let source = io::Error::other("an earlier sync has failed");
            return Err(error(Operation::Sync, &self.name, source));
        }
        admitted
    }
}

/// Copies of `bytes` that a check must refuse: one for each bit of the first `count` bytes, in
/// which the bit is changed, and one for each shorter length. Each with a description.
///
/// For tests of formats; the bytes behind `count` are padding.
pub fn damaged_copies(
    bytes: &[u8],
    count: usize,
) -> impl Iterator<Item = (String, Vec<u8>)> + use<'_> {
    let changed = (0..count * 8).map(|bit| {
        let mut damaged = bytes.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        (format!("bit {bit}"), damaged)
    });
    let short = (0..count).map(|length| (format!("{length} bytes"), bytes[..length].to_vec()));
    changed.chain(short)
}
