//! After a start from the pool the files of the server are older than the pool, or missing. What
//! the append-only file gets from then on does not follow from what it has: a load of it without
//! the pool would fail, or give other maps. So the files are written anew in the background. Redis
//! does not repeat a save that has failed, so this does, with growing pauses.
//!
//! | step | ends with |
//! | --- | --- |
//! | a save is due | its command is given, or refused |
//! | the command was given | a later save has succeeded, or none has |
//! | none has succeeded | a line in the log, a pause, and the next save |
//!
//! A full sync ends this: Redis then writes the append-only file anew, and repeats that. So do
//! `pando.save-after-start no`, and a server without files. A replica waits for one of them, or for
//! its promotion.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::log;
use crate::redis::{Ctx, ServerInfo};
use crate::settings;

/// The time between two looks at a save that runs.
const LOOK: Duration = Duration::from_millis(200);

/// The pause after the first failure. Each further one doubles it.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// Which files the server has. With both, the append-only file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    AppendOnly,
    Rdb,
}

impl Kind {
    fn of(ctx: Ctx<'_>) -> Option<Self> {
        let flags = ctx.flags();
        match (flags.has_aof(), flags.has_rdb()) {
            (true, _) => Some(Self::AppendOnly),
            (_, true) => Some(Self::Rdb),
            _ => None,
        }
    }

    /// Begins a save, or lets the server begin it later. If the server refuses, none has begun.
    fn begin(self, ctx: Ctx<'_>) {
        match self {
            Self::AppendOnly => ctx.call("BGREWRITEAOF", &[]),
            Self::Rdb => ctx.call("BGSAVE", &[b"SCHEDULE"]),
        }
    }

    /// How many saves have begun since the start of the server.
    fn count(self, info: &ServerInfo) -> u64 {
        let field = match self {
            Self::AppendOnly => "aof_rewrites",
            Self::Rdb => "rdb_saves",
        };
        info.number(field).unwrap_or(0)
    }

    /// Whether one runs, or is about to.
    fn is_busy(self, info: &ServerInfo) -> bool {
        let fields: &[&str] = match self {
            Self::AppendOnly => &["aof_rewrite_in_progress", "aof_rewrite_scheduled"],
            Self::Rdb => &["rdb_bgsave_in_progress"],
        };
        fields.iter().any(|field| info.number(field).is_some_and(|is_so| is_so != 0))
    }

    /// Whether the latest one has succeeded.
    fn has_succeeded(self, info: &ServerInfo) -> bool {
        let field = match self {
            Self::AppendOnly => "aof_last_bgrewrite_status",
            Self::Rdb => "rdb_last_bgsave_status",
        };
        info.text(field).as_deref() == Some("ok")
    }
}

/// A save that is still to succeed.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// The kind, and the count of saves, when the command was given; none before.
    asked: Option<(Kind, u64)>,
    /// Whether that save has failed.
    has_failed: bool,
    look_at: Instant,
    /// When the next command may be given.
    try_at: Instant,
    pause: Duration,
}

/// Whether the files are to be written.
#[derive(Debug)]
pub struct Files(Mutex<Option<Pending>>);

impl Files {
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn pending(&self) -> MutexGuard<'_, Option<Pending>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files are older than the pool.
    pub fn set_pending(&self) {
        let now = Instant::now();
        *self.pending() = Some(Pending {
            asked: None,
            has_failed: false,
            look_at: now,
            try_at: now,
            pause: PAUSE,
        });
    }

    /// The files are as new as the pool, or the server writes them by itself.
    pub fn set_written(&self) {
        *self.pending() = None;
    }

    pub fn is_pending(&self) -> bool {
        self.pending().is_some()
    }

    /// The main thread is about to sleep: the next step, if it is time.
    pub fn tend(&self, ctx: Ctx<'_>) {
        let pending = *self.pending();
        let now = Instant::now();
        if let Some(pending) = pending.filter(|pending| now >= pending.look_at) {
            // The lock is free meanwhile: a save calls back.
            let next = step(ctx, pending, now);
            *self.pending() = next;
        }
    }
}

/// One step; none if there is nothing more to do.
fn step(ctx: Ctx<'_>, mut pending: Pending, now: Instant) -> Option<Pending> {
    let kind = Kind::of(ctx).filter(|_| settings::saves_after_start())?;
    pending.look_at = now + LOOK;
    if ctx.flags().is_replica() {
        return Some(pending);
    }
    let info = ServerInfo::of("persistence");
    if kind.is_busy(&info) {
        return Some(pending);
    }
    let asked = pending.asked.filter(|&(asked, _)| asked == kind);
    if asked.is_some_and(|(_, count)| kind.count(&info) > count) && kind.has_succeeded(&info) {
        log::notice("the files are written anew after the start from the pool");
        return None;
    }
    if asked.is_some() && !pending.has_failed {
        log::warning(&format!(
            "the files could not be written anew after the start, and may be older than the pool; \
             the lines above say why; the next attempt is in {} s",
            pending.pause.as_secs()
        ));
        pending.has_failed = true;
        pending.try_at = now + pending.pause;
        pending.pause = (2 * pending.pause).min(MAX_PAUSE);
    }
    if now < pending.try_at {
        return Some(pending);
    }
    pending.asked = Some((kind, kind.count(&info)));
    pending.has_failed = false;
    kind.begin(ctx);
    Some(pending)
}
