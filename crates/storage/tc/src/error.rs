//! The errors of transactions.

use pando_tree::room::Refusal;

/// Why a transaction, or a part of it, did not take place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another transaction came first. Nothing of this one has taken place; run it again.
    #[error(
        "the transaction conflicts with another one at the key {} of map {map}; run it again",
        shown(key)
    )]
    Conflict {
        /// The map.
        map: u64,
        /// A key at which they conflict; of a range that was scanned, the key where the scan began.
        key: Vec<u8>,
    },
    /// There is no map of that number.
    #[error("there is no transactional map of number {map}")]
    UnknownMap {
        /// The number.
        map: u64,
    },
    /// The values of the map have no room for a stamp.
    #[error(
        "values of map {map} have at most {max_value_bytes} bytes, and a transactional map needs {}; \
         use an index with values of any length",
        crate::stamp::LEAST_VALUE_BYTES
    )]
    NoRoomForStamp {
        /// The map.
        map: u64,
        /// The longest value of its index.
        max_value_bytes: usize,
    },
    /// A record, or a version of a key, is damaged.
    #[error("map {map} is damaged at the key {}: {what}", shown(key))]
    Damaged {
        /// The map.
        map: u64,
        /// The key.
        key: Vec<u8>,
        /// What is wrong.
        what: &'static str,
    },
    /// The commit writes more than can be undone in this memory. Nothing has taken place.
    #[error(
        "the transaction may change {found_bytes} bytes of pages, and at most {max_bytes} are \
         allowed with this memory; split it into several, or give the store more memory"
    )]
    TooManyWrites {
        /// Bytes of the pages that it may change, at most.
        found_bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// The maps are open for reading alone ([`refuse_writes`]). Nothing has taken place.
    ///
    /// [`refuse_writes`]: crate::TransactionComponent::refuse_writes
    #[error("the maps are open for reading alone; open them where they can be written")]
    ReadOnly,
    /// The snapshot was the oldest one, and was beyond a limit of age or of bytes, or the pool was
    /// full. Take a new one.
    #[error(
        "the snapshot is revoked: it was too old, or held too many bytes, or the pool was full; \
         take a new one"
    )]
    SnapshotRevoked,
    /// The index refused an operation; a commit has not taken place.
    #[error(transparent)]
    Index(#[from] pando_index::Error),
    /// The log refused an operation; a commit has not taken place.
    #[error(transparent)]
    Log(pando_log::Error),
}

/// An error of this crate that has come through the log is itself again.
impl From<pando_log::Error> for Error {
    fn from(error: pando_log::Error) -> Self {
        match error {
            pando_log::Error::Unsettled(source) => match source.downcast() {
                Ok(error) => *error,
                Err(source) => Self::Log(pando_log::Error::Unsettled(source)),
            },
            error => Self::Log(error),
        }
    }
}

impl Refusal for Error {
    fn is_full(&self) -> bool {
        match self {
            Self::Index(error) => error.is_full(),
            Self::Log(pando_log::Error::Pool(error)) => error.is_full(),
            _ => false,
        }
    }
}

/// A key as a message has it.
fn shown(key: &[u8]) -> String {
    const MOST_BYTES: usize = 64;
    let more = if key.len() > MOST_BYTES { ".." } else { "" };
    format!("\"{}\"{more}", key[..key.len().min(MOST_BYTES)].escape_ascii())
}

/// The result of a part of a transaction.
pub type Result<T, E = Error> = std::result::Result<T, E>;
