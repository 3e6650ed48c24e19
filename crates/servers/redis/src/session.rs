//! The state of one client.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::acl::User;
use crate::clients::Client;
use crate::server::Server;
use crate::spec::Spec;

/// The replies that a client gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    /// All replies.
    #[default]
    On,
    /// None until the client turns them on.
    Off,
    /// Neither this one nor the next.
    SkipThisAndNext,
    /// Not this one.
    SkipThis,
}

/// Keys, with their databases.
pub(crate) type Watched = HashSet<(u8, Vec<u8>)>;

/// The state of one client.
pub(crate) struct Session {
    /// The selected database.
    pub database: u8,
    /// Whether it has authenticated, or need not.
    pub is_known: bool,
    /// Whether the connection ends after the reply is sent.
    pub is_closing: bool,
    /// The commands queued since MULTI.
    pub multi: Option<Multi>,
    /// The watched keys.
    pub watched: Watched,
    /// Set when a watched key changes. When it is dropped here, it is no longer set.
    pub changed: Option<Arc<AtomicBool>>,
    /// The running command, if its time counts.
    pub running: Option<&'static Spec>,
    /// The time when the previous request ended, if the connection has not waited since.
    pub done_at: Option<Instant>,
    /// The state that other threads may read.
    pub client: Arc<Client>,
    pub user: Arc<User>,
    pub replies: Replies,
    /// Whether the running command has exclusive locks, so it may write.
    pub may_write: bool,
    /// If the pool has a log: the places of unsent replies to commands that may have written.
    pub written: Vec<Range<usize>>,
    /// Whether a command may have written something that is not known to be durable.
    pub has_unsynced: bool,
    /// The wait of WAITAOF, before its reply.
    pub wait: Option<DurabilityWait>,
}

/// The wait of WAITAOF.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DurabilityWait {
    /// The longest time; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Whether the client gets a reply.
    pub is_answered: bool,
}

impl Session {
    /// The state of a new client.
    pub(crate) fn new(server: &Server, client: Arc<Client>) -> Self {
        Self {
            database: 0,
            is_known: !server.acl.needs_password(),
            is_closing: false,
            multi: None,
            watched: HashSet::new(),
            changed: None,
            running: None,
            done_at: None,
            client,
            user: server.acl.default_user(),
            replies: Replies::On,
            may_write: false,
            written: Vec::new(),
            has_unsynced: false,
            wait: None,
        }
    }

    /// Selects a database.
    pub(crate) fn select(&mut self, database: u8) {
        self.database = database;
        self.client.set_database(database);
    }

    /// Drops queued commands and watched keys.
    pub(crate) fn end_transaction(&mut self) {
        if self.multi.take().is_some() {
            self.client.note_queued(None);
        }
        self.take_watched();
    }

    /// Ends all watches, and returns the watched keys and the flag of changes.
    pub(crate) fn take_watched(&mut self) -> (Watched, Option<Arc<AtomicBool>>) {
        self.client.note_watched(0);
        (std::mem::take(&mut self.watched), self.changed.take())
    }
}

/// Commands between MULTI and EXEC.
#[derive(Default)]
pub(crate) struct Multi {
    /// In order, with their words.
    pub commands: Vec<(&'static Spec, Vec<Vec<u8>>)>,
    /// Their memory, in bytes.
    pub bytes: usize,
    /// Whether a command was refused; then EXEC fails.
    pub is_refused: bool,
}
