//! Which blocks are freed at the end of an operation (section 5.2, table 1).

/// Which blocks are freed when an operation is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// None.
    #[default]
    None = 0,
    /// The old one after success, the new one after failure.
    FreeOne = 1,
    /// The new one after failure.
    FreeNewOnFailure = 2,
    /// The old one after success.
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

    /// This policy for an entry that was given a new block: on failure only the operation can
    /// free that one.
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
