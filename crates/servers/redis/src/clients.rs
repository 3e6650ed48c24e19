//! The clients that are connected: who they are, what they do, and how to end them.
//!
//! Each connection has an entry that others may read at any time. Its own event loop writes it by
//! relaxed stores on lines that nobody else writes, so to keep it up costs a request next to
//! nothing. A client is ended by aborting the task that serves it, wherever that waits.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::catalog::{Catalog, Listed};
use crate::spec::Spec;

/// Where a client is and where it came in.
#[derive(Clone, Debug, Default)]
pub struct Address {
    /// Its own, as CLIENT LIST shows it.
    pub peer: String,
    /// Ours.
    pub local: String,
    /// The number of its descriptor.
    pub descriptor: i32,
    /// Whether it came through a socket in the file system.
    pub is_unix: bool,
    /// Whether it is surely on this machine.
    pub is_here: bool,
    /// Whether it is let go when it was silent for long.
    pub is_timed: bool,
}

/// What others may know of a client.
#[derive(Debug)]
pub struct Client {
    /// Its number; no other client of this server has had it.
    pub id: u64,
    /// Where it is.
    pub address: Address,
    connected_at: Instant,
    /// When it was last heard of, by [`Clients::now_ms`].
    seen_ms: AtomicU64,
    /// The command that it sent last: its place in memory, since all are static.
    last: AtomicUsize,
    database: AtomicU8,
    version: AtomicU8,
    /// Commands queued since MULTI; negative if it has not said MULTI.
    queued: AtomicI64,
    queued_bytes: AtomicUsize,
    watched_bytes: AtomicUsize,
    input_bytes: AtomicUsize,
    input_free_bytes: AtomicUsize,
    reply_capacity: AtomicUsize,
    is_never_evicted: AtomicBool,
    name: Mutex<String>,
    user: Mutex<String>,
    task: OnceLock<AbortHandle>,
}

impl Default for Client {
    fn default() -> Self {
        Self::new(0, Address::default(), "default")
    }
}

impl Client {
    fn new(id: u64, address: Address, user: &str) -> Self {
        Self {
            id,
            address,
            connected_at: Instant::now(),
            seen_ms: AtomicU64::new(0),
            last: AtomicUsize::new(0),
            database: AtomicU8::new(0),
            version: AtomicU8::new(2),
            queued: AtomicI64::new(-1),
            queued_bytes: AtomicUsize::new(0),
            watched_bytes: AtomicUsize::new(0),
            input_bytes: AtomicUsize::new(0),
            input_free_bytes: AtomicUsize::new(0),
            reply_capacity: AtomicUsize::new(0),
            is_never_evicted: AtomicBool::new(false),
            name: Mutex::new(String::new()),
            user: Mutex::new(user.to_owned()),
            task: OnceLock::new(),
        }
    }

    /// It sends `command`.
    #[inline]
    pub(crate) fn note_command(&self, command: &'static Spec) {
        self.last.store(std::ptr::from_ref(command).addr(), Relaxed);
    }

    /// It was heard of; so many bytes of it wait, in a buffer with so many free.
    #[inline]
    pub(crate) fn note_input(&self, now_ms: u64, bytes: usize, free: usize) {
        self.seen_ms.store(now_ms, Relaxed);
        self.input_bytes.store(bytes, Relaxed);
        self.input_free_bytes.store(free, Relaxed);
    }

    /// Its buffer for replies is so large.
    #[inline]
    pub(crate) fn note_reply_capacity(&self, bytes: usize) {
        self.reply_capacity.store(bytes, Relaxed);
    }

    /// So many commands with so many bytes wait for EXEC; none if it has not said MULTI.
    pub(crate) fn note_queued(&self, queued: Option<(usize, usize)>) {
        self.queued.store(queued.map_or(-1, |(commands, _)| commands as i64), Relaxed);
        self.queued_bytes.store(queued.map_or(0, |(_, bytes)| bytes), Relaxed);
    }

    /// It watches keys that take so much more; 0 if it watches none any more.
    pub(crate) fn note_watched(&self, more_bytes: usize) {
        match more_bytes {
            0 => self.watched_bytes.store(0, Relaxed),
            more_bytes => drop(self.watched_bytes.fetch_add(more_bytes, Relaxed)),
        }
    }

    /// Bytes of the commands that wait for EXEC, and of the keys that it watches.
    #[inline]
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes.load(Relaxed) + self.watched_bytes.load(Relaxed)
    }

    /// It has selected a database.
    pub(crate) fn set_database(&self, database: u8) {
        self.database.store(database, Relaxed);
    }

    /// It speaks this version of the protocol.
    pub(crate) fn set_version(&self, version: u8) {
        self.version.store(version, Relaxed);
    }

    /// Whether it is spared when clients are ended for their memory; none ever is.
    pub(crate) fn set_never_evicted(&self, is: bool) {
        self.is_never_evicted.store(is, Relaxed);
    }

    /// The name that it has given itself.
    pub(crate) fn name(&self) -> String {
        self.name.lock().clone()
    }

    /// It gives itself a name.
    pub(crate) fn set_name(&self, name: String) {
        *self.name.lock() = name;
    }

    /// The user that it is.
    pub(crate) fn user(&self) -> String {
        self.user.lock().clone()
    }

    /// It has said who it is.
    pub(crate) fn set_user(&self, name: &str) {
        name.clone_into(&mut self.user.lock());
    }

    /// The task that serves it.
    pub fn set_task(&self, task: AbortHandle) {
        let _ = self.task.set(task);
    }

    /// Ends its connection, at the latest when its event loop gets to it.
    pub(crate) fn end(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    /// A line about it, as CLIENT LIST has it.
    pub(crate) fn describe(&self, now_ms: u64, catalog: &Catalog) -> String {
        let get = |of: &AtomicUsize| of.load(Relaxed);
        let queued = self.queued.load(Relaxed);
        let mut marks = String::new();
        for (is_set, mark) in [
            (queued >= 0, 'x'),
            (self.address.is_unix, 'U'),
            (self.is_never_evicted.load(Relaxed), 'e'),
        ] {
            if is_set {
                marks.push(mark);
            }
        }
        if marks.is_empty() {
            marks.push('N');
        }
        let (input, free) = (get(&self.input_bytes), get(&self.input_free_bytes));
        let (queued_bytes, reply) = (get(&self.queued_bytes), get(&self.reply_capacity));
        let mut line = String::new();
        let _ = write!(
            line,
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={marks} db={} sub=0 psub=0 \
             ssub=0 multi={queued} qbuf={input} qbuf-free={free} argv-mem=0 \
             multi-mem={queued_bytes} rbs={reply} rbp={reply} obl=0 oll=0 omem=0 tot-mem={} \
             events=r cmd={} user={} redir=-1 resp={}",
            self.id,
            self.address.peer,
            self.address.local,
            self.address.descriptor,
            self.name.lock(),
            self.connected_at.elapsed().as_secs(),
            now_ms.saturating_sub(self.seen_ms.load(Relaxed)) / 1000,
            self.database.load(Relaxed),
            input + free + queued_bytes + reply + size_of::<Self>(),
            self.last_command(catalog),
            self.user.lock(),
            self.version.load(Relaxed),
        );
        line
    }

    fn last_command(&self, catalog: &Catalog) -> String {
        let address = self.last.load(Relaxed);
        let mut listed = catalog.listed();
        let found = listed.find(|listed| std::ptr::from_ref(listed.command).addr() == address);
        found.map_or_else(|| "NULL".to_owned(), Listed::name)
    }
}

/// Which requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// None.
    None = 0,
    /// Those that write.
    Writes = 1,
    /// All.
    All = 2,
}

/// All clients of the server.
#[derive(Debug)]
pub struct Clients {
    started_at: Instant,
    /// Kept up by [`tick`](Self::tick).
    now_ms: AtomicU64,
    next_id: AtomicU64,
    entries: Mutex<BTreeMap<u64, Arc<Client>>>,
    pause: AtomicU8,
    paused_until_ms: AtomicU64,
    /// Clients whose next request waits for the end of a pause.
    waiting: AtomicUsize,
}

/// A client that waits, until it is dropped.
pub(crate) struct Waiting<'clients>(&'clients AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            started_at: Instant::now(),
            now_ms: AtomicU64::new(0),
            next_id: AtomicU64::new(1),
            entries: Mutex::default(),
            pause: AtomicU8::new(Pause::None as u8),
            paused_until_ms: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
        }
    }
}

impl Clients {
    /// Lets a client in; none if there are `most` already.
    pub fn add(&self, address: Address, user: &str, most: usize) -> Option<Arc<Client>> {
        let mut entries = self.entries.lock();
        if entries.len() >= most {
            return None;
        }
        // Relaxed: only its being new matters.
        let id = self.next_id.fetch_add(1, Relaxed);
        let client = Arc::new(Client::new(id, address, user));
        client.seen_ms.store(self.now_ms(), Relaxed);
        entries.insert(id, Arc::clone(&client));
        Some(client)
    }

    /// A client has gone.
    pub fn remove(&self, id: u64) {
        self.entries.lock().remove(&id);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.entries.lock().len()
    }

    /// All of them, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.entries.lock().values().cloned().collect()
    }

    /// Milliseconds since the server started, as of the last tick.
    #[inline]
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms.load(Relaxed)
    }

    /// To be called ten times a second or so: keeps the time, ends clients that were silent for
    /// longer than `timeout_s` (0 for never), and a pause whose time is over.
    pub fn tick(&self, timeout_s: u64) {
        let now_ms = self.elapsed_ms();
        self.now_ms.store(now_ms, Relaxed);
        if timeout_s > 0 {
            for client in self.entries.lock().values() {
                let silent_ms = now_ms.saturating_sub(client.seen_ms.load(Relaxed));
                if client.address.is_timed && silent_ms > timeout_s * 1000 {
                    client.end();
                }
            }
        }
    }

    fn elapsed_ms(&self) -> u64 {
        self.started_at.elapsed().as_millis() as u64
    }

    /// Lets requests wait for so long. A pause that is there is not shortened, nor made milder.
    pub(crate) fn pause(&self, what: Pause, for_ms: u64) {
        let until = self.elapsed_ms().saturating_add(for_ms);
        self.paused_until_ms.fetch_max(until, Relaxed);
        self.pause.fetch_max(what as u8, Relaxed);
    }

    /// A client's next request waits from now on.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Relaxed);
        Waiting(&self.waiting)
    }

    /// How many clients wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Ends a pause.
    pub(crate) fn unpause(&self) {
        self.pause.store(Pause::None as u8, Relaxed);
        self.paused_until_ms.store(0, Relaxed);
    }

    /// What waits now.
    #[inline]
    pub(crate) fn paused(&self) -> Pause {
        match self.pause.load(Relaxed) {
            0 => Pause::None,
            _ if self.elapsed_ms() >= self.paused_until_ms.load(Relaxed) => {
                self.unpause();
                Pause::None
            }
            1 => Pause::Writes,
            _ => Pause::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_let_in_than_may_be() {
        let clients = Clients::default();
        let first = clients.add(Address::default(), "default", 2).unwrap();
        let second = clients.add(Address::default(), "default", 2).unwrap();
        assert!(clients.add(Address::default(), "default", 2).is_none());
        clients.remove(first.id);
        let third = clients.add(Address::default(), "default", 2).unwrap();
        let ids: Vec<_> = clients.all().iter().map(|client| client.id).collect();
        assert_eq!(ids, [second.id, third.id]);
        assert_eq!((first.id, second.id, third.id), (1, 2, 3));
    }

    #[test]
    fn a_pause_ends_by_itself() {
        let clients = Clients::default();
        clients.pause(Pause::All, 60_000);
        clients.pause(Pause::Writes, 1);
        assert_eq!(clients.paused(), Pause::All);
        clients.unpause();
        assert_eq!(clients.paused(), Pause::None);
        clients.pause(Pause::Writes, 0);
        assert_eq!(clients.paused(), Pause::None);
    }
}
