//! The connected clients: their names, addresses and state, and how to end them.
//!
//! Each connection has an entry that other threads may read at any time. Only its own event loop
//! writes the entry, by relaxed stores to cache lines without other writers. So the entry costs a
//! request almost nothing. A client is ended by aborting the task that serves it, at any of its
//! waits.

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

/// The addresses of a connection.
#[derive(Clone, Debug, Default)]
pub struct Address {
    /// The address of the client, in the form of CLIENT LIST.
    pub peer: String,
    /// The address of the server.
    pub local: String,
    /// The number of the socket's descriptor.
    pub descriptor: i32,
    /// Whether the socket is in the file system.
    pub is_unix: bool,
    /// Whether the client is certainly on this machine.
    pub is_here: bool,
    /// Whether the parameter `timeout` applies to it.
    pub is_timed: bool,
}

/// The state of a client that other threads may read.
#[derive(Debug)]
pub struct Client {
    /// The number of the client. The server never uses it again.
    pub id: u64,
    /// The addresses.
    pub address: Address,
    connected_at: Instant,
    /// The time of its last input or of the end of its last wait, by [`Clients::now_ms`].
    seen_ms: AtomicU64,
    /// Whether it waits for the log.
    is_blocked: AtomicBool,
    /// The address of the last command's static description.
    last: AtomicUsize,
    database: AtomicU8,
    version: AtomicU8,
    /// The number of commands queued since MULTI; negative outside MULTI.
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
            is_blocked: AtomicBool::new(false),
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

    /// Notes the last command.
    #[inline]
    pub(crate) fn note_command(&self, command: &'static Spec) {
        self.last.store(std::ptr::from_ref(command).addr(), Relaxed);
    }

    /// Notes that the client waits for the log, until the result is dropped. Meanwhile, as in
    /// Redis, the parameter `timeout` does not end it.
    pub(crate) fn block<'client>(&'client self, clients: &'client Clients) -> Blocked<'client> {
        self.is_blocked.store(true, Relaxed);
        Blocked { client: self, clients }
    }

    /// Notes the time of the last input, the buffered bytes and the free bytes of the buffer.
    #[inline]
    pub(crate) fn note_input(&self, now_ms: u64, bytes: usize, free: usize) {
        self.seen_ms.store(now_ms, Relaxed);
        self.input_bytes.store(bytes, Relaxed);
        self.input_free_bytes.store(free, Relaxed);
    }

    /// Notes the capacity of the buffer for replies.
    #[inline]
    pub(crate) fn note_reply_capacity(&self, bytes: usize) {
        self.reply_capacity.store(bytes, Relaxed);
    }

    /// Notes the number and the bytes of commands that are queued for EXEC; `None` outside MULTI.
    pub(crate) fn note_queued(&self, queued: Option<(usize, usize)>) {
        self.queued.store(queued.map_or(-1, |(commands, _)| commands as i64), Relaxed);
        self.queued_bytes.store(queued.map_or(0, |(_, bytes)| bytes), Relaxed);
    }

    /// Adds to the memory of watched keys; 0 resets it.
    pub(crate) fn note_watched(&self, more_bytes: usize) {
        match more_bytes {
            0 => self.watched_bytes.store(0, Relaxed),
            more_bytes => drop(self.watched_bytes.fetch_add(more_bytes, Relaxed)),
        }
    }

    /// The bytes of commands that are queued for EXEC, and of watched keys.
    #[inline]
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes.load(Relaxed) + self.watched_bytes.load(Relaxed)
    }

    /// Notes the selected database.
    pub(crate) fn set_database(&self, database: u8) {
        self.database.store(database, Relaxed);
    }

    /// Notes the version of the protocol.
    pub(crate) fn set_version(&self, version: u8) {
        self.version.store(version, Relaxed);
    }

    /// Notes whether the client must never be ended because of its memory. No client ever is.
    pub(crate) fn set_never_evicted(&self, is: bool) {
        self.is_never_evicted.store(is, Relaxed);
    }

    /// The name that the client has set.
    pub(crate) fn name(&self) -> String {
        self.name.lock().clone()
    }

    pub(crate) fn set_name(&self, name: String) {
        *self.name.lock() = name;
    }

    /// The name of the client's user.
    pub(crate) fn user(&self) -> String {
        self.user.lock().clone()
    }

    /// Notes that the client has authenticated as this user.
    pub(crate) fn set_user(&self, name: &str) {
        name.clone_into(&mut self.user.lock());
    }

    /// Notes the task that serves the client.
    pub fn set_task(&self, task: AbortHandle) {
        let _ = self.task.set(task);
    }

    /// Ends the connection, at the latest when its event loop runs the task again.
    pub(crate) fn end(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }

    /// The client's line of CLIENT LIST.
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

/// The requests that a pause delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// No request.
    None = 0,
    /// Requests that write.
    Writes = 1,
    /// All requests.
    All = 2,
}

/// All clients of the server.
#[derive(Debug)]
pub struct Clients {
    started_at: Instant,
    /// Updated by [`tick`](Self::tick).
    now_ms: AtomicU64,
    next_id: AtomicU64,
    entries: Mutex<BTreeMap<u64, Arc<Client>>>,
    pause: AtomicU8,
    paused_until_ms: AtomicU64,
    /// The number of clients that wait for the end of a pause.
    waiting: AtomicUsize,
}

/// Counts a waiting client until it is dropped.
pub(crate) struct Waiting<'clients>(&'clients AtomicUsize);

/// A client that waits for the log until this is dropped.
pub(crate) struct Blocked<'client> {
    client: &'client Client,
    clients: &'client Clients,
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        // Relaxed: the client's silence is not known more exactly than to a tick.
        self.client.seen_ms.store(self.clients.now_ms(), Relaxed);
        self.client.is_blocked.store(false, Relaxed);
    }
}

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
    /// Adds a client; `None` if there are already `most`.
    pub fn add(&self, address: Address, user: &str, most: usize) -> Option<Arc<Client>> {
        let mut entries = self.entries.lock();
        if entries.len() >= most {
            return None;
        }
        // Relaxed: the number must only be unique.
        let id = self.next_id.fetch_add(1, Relaxed);
        let client = Arc::new(Client::new(id, address, user));
        client.seen_ms.store(self.now_ms(), Relaxed);
        entries.insert(id, Arc::clone(&client));
        Some(client)
    }

    /// Removes a client whose connection has ended.
    pub fn remove(&self, id: u64) {
        self.entries.lock().remove(&id);
    }

    /// The number of clients.
    pub(crate) fn count(&self) -> usize {
        self.entries.lock().len()
    }

    /// All clients, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.entries.lock().values().cloned().collect()
    }

    /// Milliseconds from the server's start to the last tick.
    #[inline]
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms.load(Relaxed)
    }

    /// Updates the time, ends clients that were silent for longer than `timeout_s` (0 for never)
    /// and do not wait for the log, and ends a pause at its time. The server calls it about ten
    /// times a second.
    pub fn tick(&self, timeout_s: u64) {
        let now_ms = self.elapsed_ms();
        self.now_ms.store(now_ms, Relaxed);
        if timeout_s > 0 {
            for client in self.entries.lock().values() {
                let silent_ms = now_ms.saturating_sub(client.seen_ms.load(Relaxed));
                let is_timed = client.address.is_timed && !client.is_blocked.load(Relaxed);
                if is_timed && silent_ms > timeout_s * 1000 {
                    client.end();
                }
            }
        }
    }

    fn elapsed_ms(&self) -> u64 {
        self.started_at.elapsed().as_millis() as u64
    }

    /// Starts a pause. A running pause is neither shortened nor weakened.
    pub(crate) fn pause(&self, what: Pause, for_ms: u64) {
        let until = self.elapsed_ms().saturating_add(for_ms);
        self.paused_until_ms.fetch_max(until, Relaxed);
        self.pause.fetch_max(what as u8, Relaxed);
    }

    /// Counts a client that waits for the end of a pause.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Relaxed);
        Waiting(&self.waiting)
    }

    /// The number of waiting clients.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    pub(crate) fn unpause(&self) {
        self.pause.store(Pause::None as u8, Relaxed);
        self.paused_until_ms.store(0, Relaxed);
    }

    /// The requests that wait at present.
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
