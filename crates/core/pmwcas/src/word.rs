//! The bits of a word that may take part in a PMwCAS, and of a descriptor's status.

/// The word holds a reference to a descriptor.
pub(crate) const MWCAS: u64 = 1 << 63;
/// The word holds a conditional reference.
pub(crate) const RDCSS: u64 = 1 << 62;
/// The word may not be durable yet.
pub const DIRTY: u64 = 1 << 61;
/// The bits that no value may use.
pub const CONTROL_BITS: u64 = MWCAS | RDCSS | DIRTY;
/// The largest value of a word.
pub const MAX_VALUE: u64 = !CONTROL_BITS;
/// The value as which a damaged word reads: one that refers to an operation that does not exist. No
/// block lies at this offset.
pub(crate) const DAMAGED: u64 = MAX_VALUE;

/// The bits of a word that are a block's offset, in a word that names a block. The bits above hold
/// a hint, whose meaning only its writer knows.
pub const BLOCK_MASK: u64 = (1 << HINT_SHIFT) - 1;
/// The lowest bit of the hint.
pub const HINT_SHIFT: u32 = 48;
/// The largest hint: twelve bits.
pub const MAX_HINT: u16 = 0xFFF;

/// Words and owned blocks that one descriptor holds at most.
pub const MAX_WORDS: usize = 10;

const INDEX_BITS: u32 = 16;
const ENTRY_BITS: u32 = 4;
const SEQUENCE_SHIFT: u32 = INDEX_BITS + ENTRY_BITS;
/// Sequence numbers wrap at 2^41. A wrong match needs a thread that sleeps while one descriptor is
/// used 2^41 times, which takes weeks of nothing else, and that wakes at exactly the same number.
const SEQUENCE_MASK: u64 = (1 << 41) - 1;

/// One life of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub index: u64,
    pub sequence: u64,
}

impl Life {
    /// The reference in the target of `entry`.
    #[inline(always)]
    pub fn reference(self, entry: usize) -> u64 {
        MWCAS | self.sequence << SEQUENCE_SHIFT | (entry as u64) << INDEX_BITS | self.index
    }

    /// The descriptor's next life.
    pub fn next(self) -> Self {
        Self { sequence: (self.sequence + 1) & SEQUENCE_MASK, ..self }
    }

    /// The conditional reference of `entry`.
    pub fn conditional(self, entry: usize) -> u64 {
        RDCSS | self.sequence << SEQUENCE_SHIFT | (entry as u64) << INDEX_BITS | self.index
    }

    /// The life and the entry that a reference or a conditional reference names.
    pub fn of(word: u64) -> (Self, usize) {
        let index = word & ((1 << INDEX_BITS) - 1);
        let entry = (word >> INDEX_BITS) & ((1 << ENTRY_BITS) - 1);
        let sequence = (word >> SEQUENCE_SHIFT) & SEQUENCE_MASK;
        (Self { index, sequence }, entry as usize)
    }
}

/// The state of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not in use.
    Free = 0,
    /// Its owner fills it.
    Filling = 1,
    /// Executing, not decided.
    Undecided = 2,
    /// Decided: the new values hold.
    Succeeded = 3,
    /// Decided: the old values hold.
    Failed = 4,
    /// The record of a helper's conditional reference.
    Helping = 5,
    /// Executing, not decided: only its owner installs references and lets it succeed; any thread
    /// may let it fail.
    Installing = 6,
    /// Decided: the new values hold. The medium has the references of all targets; it may not have
    /// this status.
    CommittedPending = 7,
}

impl State {
    /// Whether target words may refer to a descriptor in this state.
    pub fn is_executing(self) -> bool {
        match self {
            Self::Undecided
            | Self::Installing
            | Self::Succeeded
            | Self::Failed
            | Self::CommittedPending => true,
            Self::Free | Self::Filling | Self::Helping => false,
        }
    }

    /// Whether the operation is decided, and the new values hold.
    pub fn has_succeeded(self) -> bool {
        matches!(self, Self::Succeeded | Self::CommittedPending)
    }
}

/// A descriptor's status: state, sequence number, dirty bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub state: State,
    pub sequence: u64,
    pub dirty: bool,
}

const STATE_SHIFT: u32 = 48;

impl Status {
    pub fn new(state: State, sequence: u64) -> Self {
        Self { state, sequence: sequence & SEQUENCE_MASK, dirty: false }
    }

    pub fn encode(self) -> u64 {
        let dirty = if self.dirty { DIRTY } else { 0 };
        dirty | (self.state as u64) << STATE_SHIFT | self.sequence
    }

    /// Decodes a status; `None` for a word that no thread can have written.
    pub fn decode(word: u64) -> Option<Self> {
        let state = match (word >> STATE_SHIFT) & 0x1FFF {
            0 => State::Free,
            1 => State::Filling,
            2 => State::Undecided,
            3 => State::Succeeded,
            4 => State::Failed,
            5 => State::Helping,
            6 => State::Installing,
            7 => State::CommittedPending,
            _ => return None,
        };
        let sequence = word & ((1 << STATE_SHIFT) - 1);
        if word & (MWCAS | RDCSS) != 0 || sequence & !SEQUENCE_MASK != 0 {
            return None;
        }
        Some(Self { state, sequence, dirty: word & DIRTY != 0 })
    }
}

const _: () = {
    assert!(CONTROL_BITS == 0b111 << 61);
    assert!(SEQUENCE_MASK << SEQUENCE_SHIFT & CONTROL_BITS == 0);
    assert!(SEQUENCE_SHIFT + 41 == 61);
    assert!((MAX_HINT as u64) << HINT_SHIFT & CONTROL_BITS == 0);
    assert!(MAX_WORDS <= 1 << ENTRY_BITS);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_name_what_they_were_made_of() {
        let life = Life { index: 1023, sequence: SEQUENCE_MASK };
        assert_eq!(Life::of(life.reference(9)), (life, 9));
        assert_eq!(Life::of(life.conditional(9)), (life, 9));
        assert_eq!(life.reference(9) & CONTROL_BITS, MWCAS);
        assert_eq!(life.conditional(9) & CONTROL_BITS, RDCSS);
    }

    #[test]
    fn golden_status_words() {
        let status = |state| Status { state, sequence: 0x12, dirty: true }.encode();
        assert_eq!(status(State::Undecided), 0x2002_0000_0000_0012);
        assert_eq!(status(State::Helping), 0x2005_0000_0000_0012);
        assert_eq!(status(State::Installing), 0x2006_0000_0000_0012);
        assert_eq!(status(State::CommittedPending), 0x2007_0000_0000_0012);
        for word in [status(State::Succeeded), 0, 7] {
            assert_eq!(Status::decode(word).map(Status::encode), Some(word));
        }
        assert_eq!(Status::decode(8 << STATE_SHIFT), None);
        assert_eq!(Status::decode(MWCAS), None);
    }
}
