//! What the server keeps of a client.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::acl::User;
use crate::clients::Client;
use crate::server::Server;
use crate::spec::Spec;

/// Which replies a client gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    /// All.
    #[default]
    On,
    /// None until it asks for them again.
    Off,
    /// Neither this one nor the next.
    SkipThisAndNext,
    /// Not this one.
    SkipThis,
}

/// Keys, with their databases.
pub(crate) type Watched = HashSet<(u8, Vec<u8>)>;

/// A client's state.
pub(crate) struct Session {
    /// The database that it has selected.
    pub database: u8,
    /// Whether it has said who it is, as far as it must.
    pub is_known: bool,
    /// Whether the connection is to be closed once the reply is out.
    pub is_closing: bool,
    /// What it has queued since MULTI.
    pub multi: Option<Multi>,
    /// The keys that it watches.
    pub watched: Watched,
    /// Set when one of them changes; nobody sets it any more once it is dropped here.
    pub changed: Option<Arc<AtomicBool>>,
    /// The command that is being carried out, if its time counts.
    pub running: Option<&'static Spec>,
    /// When the request before this one was done, if nothing was waited for since.
    pub done_at: Option<Instant>,
    /// What others may know of it.
    pub client: Arc<Client>,
    /// The user that it is.
    pub user: Arc<User>,
    /// Which replies it gets.
    pub replies: Replies,
}

impl Session {
    /// That of a client that has just come.
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
        }
    }

    /// Forgets what was queued, and what is watched.
    pub(crate) fn end_transaction(&mut self) {
        if self.multi.take().is_some() {
            self.client.note_queued(None);
        }
        self.take_watched();
    }

    /// Watches nothing any more: what was watched, and whether any of it has changed.
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
    /// What they take, in bytes.
    pub bytes: usize,
    /// Whether one was refused, so that EXEC will be.
    pub is_refused: bool,
}
