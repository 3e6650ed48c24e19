//! The errors of an index: each says what was requested, and the limit that was exceeded.

/// The result of an operation on an index.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on an index failed. The index is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An insert found its key.
    #[error("the key is already there; use upsert to replace its value")]
    KeyExists,
    /// An update or a compare-exchange did not find its key.
    #[error("the key is not there; use insert or upsert to add it")]
    KeyNotFound,
    /// A compare-exchange did not find the expected value.
    #[error("the value is not the expected one; read it and try again")]
    ValueMismatch,
    /// The key is longer than the index allows.
    #[error("a key of {found_bytes} bytes is longer than the {max_bytes} bytes that keys may have")]
    KeyTooLong {
        /// Length of the key that was given.
        found_bytes: usize,
        /// Longest allowed key.
        max_bytes: usize,
    },
    /// The value is longer than the index allows.
    #[error(
        "a value of {found_bytes} bytes is longer than the {max_bytes} bytes that values may have"
    )]
    ValueTooLong {
        /// Length of the value that was given.
        found_bytes: usize,
        /// Longest allowed value.
        max_bytes: usize,
    },
    /// The key is shorter than the keys of the index, which all have one length. So it cannot be
    /// present: reads, removes and updates find it absent.
    #[error(
        "a key of {found_bytes} bytes is shorter than the {min_bytes} bytes that keys have here"
    )]
    KeyTooShort {
        /// Length of the key that was given.
        found_bytes: usize,
        /// Shortest allowed key.
        min_bytes: usize,
    },
    /// The value is shorter than the values of the index, which all have one length.
    #[error(
        "a value of {found_bytes} bytes is shorter than the {min_bytes} bytes that values have here"
    )]
    ValueTooShort {
        /// Length of the value that was given.
        found_bytes: usize,
        /// Shortest allowed value.
        min_bytes: usize,
    },
    /// The index has read data that it cannot have written. The operation has not taken place, but
    /// parts of it may have been written.
    #[error(
        "the block at {off:#x} is damaged: {what}; `pando check` lists all damage, and `pando --salvage dump` copies \
         out what can be read"
    )]
    Damaged {
        /// Offset in the pool of the block, or of a word in it.
        off: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The pool could not serve the operation: it is full, it has no free descriptor or participant
    /// slot, or its file could not grow.
    #[error(transparent)]
    Storage(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// An error of the pool, as an error of the index.
    pub fn storage(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Storage(Box::new(error))
    }

    /// Reads and writes of a key do not agree ([`ATTEMPTS`](crate::ATTEMPTS)).
    #[cold]
    pub fn contradiction() -> Self {
        Self::Damaged { off: 0, what: "reads and writes of a key contradict each other" }
    }
}
