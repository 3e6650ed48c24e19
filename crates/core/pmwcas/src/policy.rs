//! Which blocks are freed at the end of an operation (section 5.2, table 1).

/// Which blocks are freed at the end of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// No block.
    #[default]
    None = 0,
    /// The old block after success, the new block after failure.
    FreeOne = 1,
    /// The new block after failure.
    FreeNewOnFailure = 2,
    /// The old block after success.
    FreeOldOnSuccess = 3,
}

impl Policy {
    pub(crate) fn decode(bits: u64) -> Option<Self> {
        match bits {
            0 => Some(Self::None),
            1 => Some(Self::FreeOne),
            2 => Some(Self::FreeNewOnFailure),
            3 => Some(Self::FreeOldOnSuccess),
            _ => None,
        }
    }

    /// The policy of an entry that has a new block: after a failure, only the operation can free
    /// the new block.
    pub(crate) fn with_new(self) -> Self {
        match self {
            Self::None | Self::FreeNewOnFailure => Self::FreeNewOnFailure,
            Self::FreeOne | Self::FreeOldOnSuccess => Self::FreeOne,
        }
    }

    pub(crate) fn owns_new(self) -> bool {
        matches!(self, Self::FreeOne | Self::FreeNewOnFailure)
    }

    pub(crate) fn owns_old(self) -> bool {
        matches!(self, Self::FreeOne | Self::FreeOldOnSuccess)
    }
}
