//! The errors of an index: each names what was asked and the limit that it hit.

/// Why an operation on an index did not take place. The index is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An insert found its key.
    #[error("the key is already there; use upsert to replace its value")]
    KeyExists,
    /// An update or a compare-exchange did not find its key.
    #[error("the key is not there; use insert or upsert to add it")]
    KeyNotFound,
    /// A compare-exchange found another value than the expected one.
    #[error("the value is not the expected one; read it again and decide anew")]
    ValueMismatch,
    /// The key is longer than the index takes.
    #[error("a key of {found_bytes} bytes is longer than the {max_bytes} bytes that keys may have")]
    KeyTooLong {
        /// Length of the key that was given.
        found_bytes: usize,
        /// Longest key that is taken.
        max_bytes: usize,
    },
    /// The value is longer than the index takes.
    #[error(
        "a value of {found_bytes} bytes is longer than the {max_bytes} bytes that values may have"
    )]
    ValueTooLong {
        /// Length of the value that was given.
        found_bytes: usize,
        /// Longest value that is taken.
        max_bytes: usize,
    },
    /// The key is shorter than those of the index, which all have one length. It cannot be there:
    /// reads, removes and updates find it absent.
    #[error(
        "a key of {found_bytes} bytes is shorter than the {min_bytes} bytes that keys have here"
    )]
    KeyTooShort {
        /// Length of the key that was given.
        found_bytes: usize,
        /// Shortest key that is taken.
        min_bytes: usize,
    },
    /// The value is shorter than those of the index, which all have one length.
    #[error(
        "a value of {found_bytes} bytes is shorter than the {min_bytes} bytes that values have here"
    )]
    ValueTooShort {
        /// Length of the value that was given.
        found_bytes: usize,
        /// Shortest value that is taken.
        min_bytes: usize,
    },
    /// The index cannot have written what it reads. What was asked for has not taken place, but
    /// parts of it may have been written.
    #[error(
        "the block at {off:#x} is damaged: {what}; `pando check` says what else is, and `pando --salvage dump` copies \
         out what can be read"
    )]
    Damaged {
        /// Offset in the pool of the block, or of a word in it.
        off: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The pool beneath could not serve the operation: it is full, out of descriptors or
    /// participants, or its file system refused to grow the file.
    #[error(transparent)]
    Storage(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// What the pool beneath refused with, as an error of the index.
    pub fn storage(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Storage(Box::new(error))
    }
}
