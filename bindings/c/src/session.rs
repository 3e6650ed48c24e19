//! Sessions: a batch is applied once, however often it is sent.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;

use pando::{Outcome, Pool, Session, SessionId};

use crate::batch::{batch, pando_batch};
use crate::bytes::{required, text};
use crate::error::{call, free, pando_error};
use crate::failure::Failure;
use crate::handle::{self, Object};
use crate::pool::{pando_pool, pool};

/// A session numbers the batches of a client, and keeps the outcomes of its newest 128.
pub struct pando_session {
    _private: [u8; 0],
}

/// The outcome of a batch.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum pando_outcome {
    /// It was applied.
    Applied = 0,
    /// A condition did not hold. Nothing was applied.
    ConditionFailed = 1,
    /// It was not applied, and never will be.
    NotApplied = 2,
}

impl From<Outcome> for pando_outcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Applied { .. } => Self::Applied,
            Outcome::ConditionFailed { .. } => Self::ConditionFailed,
            Outcome::NotApplied => Self::NotApplied,
        }
    }
}

/// The session behind a handle.
struct SessionObject {
    session: Session,
    pool: Pool,
    id: CString,
}

impl Object for SessionObject {
    const KIND: u64 = 8;
    const NAME: &'static str = "pando_session";
    fn pool(&self) -> Option<&Pool> {
        Some(&self.pool)
    }
}

fn give(session: Session, pool: &Pool) -> *mut pando_session {
    let id = CString::new(session.id().to_string()).unwrap_or_default();
    handle::give(SessionObject { session, pool: pool.clone(), id }) as *mut pando_session
}

/// Begins a session. It stays in the pool until pando_session_end.
#[unsafe(no_mangle)]
pub extern "C" fn pando_session_new(
    pool: *const pando_pool,
    session: Option<&mut MaybeUninit<*mut pando_session>>,
) -> *mut pando_error {
    call(|| {
        let session = required(session, "the place of the session")?;
        let pool = self::pool(pool)?;
        session.write(give(pool.new_session()?, pool));
        Ok(())
    })
}

/// The session of that number: 32 hexadecimal digits.
#[unsafe(no_mangle)]
pub extern "C" fn pando_session_open(
    pool: *const pando_pool,
    id: *const c_char,
    session: Option<&mut MaybeUninit<*mut pando_session>>,
) -> *mut pando_error {
    call(|| {
        let session = required(session, "the place of the session")?;
        let pool = self::pool(pool)?;
        let id: SessionId = text(id, "the number of the session")?.parse()?;
        session.write(give(pool.session(id)?, pool));
        Ok(())
    })
}

/// The number of the session: 32 hexadecimal digits, valid until the handle is freed; NULL for a
/// wrong handle. The client keeps it.
#[unsafe(no_mangle)]
pub extern "C" fn pando_session_id(session: *const pando_session) -> *const c_char {
    match handle::look::<SessionObject>(session as usize) {
        Ok(object) => object.id.as_ptr(),
        Err(_) => std::ptr::null(),
    }
}

/// Applies the batch with that sequence, or finds that it was applied. outcome must not be NULL.
#[unsafe(no_mangle)]
pub extern "C" fn pando_session_apply(
    session: *const pando_session,
    sequence: u64,
    batch: *const pando_batch,
    outcome: Option<&mut MaybeUninit<pando_outcome>>,
) -> *mut pando_error {
    call(|| {
        let outcome = required(outcome, "outcome")?;
        let object = handle::get::<SessionObject>(session as usize)?;
        outcome.write(object.session.apply(sequence, &self::batch(batch)?)?.into());
        Ok(())
    })
}

/// The outcome of a sequence. If it has none, it is closed: no batch is applied with it later.
#[unsafe(no_mangle)]
pub extern "C" fn pando_session_outcome(
    session: *const pando_session,
    sequence: u64,
    outcome: Option<&mut MaybeUninit<pando_outcome>>,
) -> *mut pando_error {
    call(|| {
        let outcome = required(outcome, "outcome")?;
        let object = handle::get::<SessionObject>(session as usize)?;
        outcome.write(object.session.outcome(sequence)?.into());
        Ok(())
    })
}

/// Removes the session and its receipts from the pool. The handle is still to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn pando_session_end(session: *const pando_session) -> *mut pando_error {
    call(|| {
        let object = handle::get::<SessionObject>(session as usize)?;
        object.session.clone().end().map_err(Failure::from)
    })
}

/// Frees the handle; the session stays in the pool. NULL is left alone.
#[unsafe(no_mangle)]
pub extern "C" fn pando_session_free(session: *mut pando_session) -> *mut pando_error {
    free::<SessionObject>(session as usize)
}
