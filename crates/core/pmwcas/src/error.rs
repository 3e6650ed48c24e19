//! The errors of PMwCAS.

use crate::word::{MAX_VALUE, MAX_WORDS};

/// Why a word was not added, or a descriptor not allocated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool's operations were recovered before, since it was opened; new ones may be running.
    #[error("PMwCAS was opened on this pool already; share the handle that this returned")]
    BegunBefore,
    /// The address is in the descriptor already.
    #[error("the word at {off:#x} is in the descriptor already; add each address once")]
    DuplicateAddress {
        /// The address that was given twice.
        off: u64,
    },
    /// The address is not the address of a word.
    #[error("{off:#x} is not the address of a word; it must be a multiple of 8 and not zero")]
    NotAWord {
        /// The address that was given.
        off: u64,
    },
    /// The descriptor is full.
    #[error("the descriptor is full; it holds at most {MAX_WORDS} words and owned blocks")]
    TooManyWords,
    /// A value needs the control bits.
    #[error(
        "the value {value:#x} needs the three control bits; the largest value is {MAX_VALUE:#x}"
    )]
    ControlBits {
        /// The value that was given.
        value: u64,
    },
    /// All descriptors are in use.
    #[error("all descriptors of all participants are in use; finish or discard some")]
    DescriptorsExhausted,
    /// The pool refused.
    #[error(transparent)]
    Pool(#[from] pando_pmem::Error),
}

/// The result of a call on a descriptor.
pub type Result<T, E = Error> = std::result::Result<T, E>;
