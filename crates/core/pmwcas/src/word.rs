//! The bits of a word that may be under a PMwCAS, and of a descriptor's status.

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
/// What a word reads as that refers to an operation that there is not. No block is there.
pub(crate) const DAMAGED: u64 = MAX_VALUE;

/// A word that names a block has the block's offset in its lower bits, and above them a hint that
/// means something only to who put it there.
pub const BLOCK_MASK: u64 = (1 << HINT_SHIFT) - 1;
/// How far above bit 0 that hint stands.
pub const HINT_SHIFT: u32 = 48;
/// The largest hint that a word holds beside a block's offset: twelve bits.
pub const MAX_HINT: u16 = 0xFFF;

/// Words and owned blocks that one descriptor takes.
pub const MAX_WORDS: usize = 10;

const INDEX_BITS: u32 = 16;
const ENTRY_BITS: u32 = 4;
const SEQUENCE_SHIFT: u32 = INDEX_BITS + ENTRY_BITS;
/// Sequence numbers wrap at this: a thread would have to sleep over 2^41 uses of one descriptor,
/// weeks of nothing else, and wake at exactly the same number.
const SEQUENCE_MASK: u64 = (1 << 41) - 1;

/// One life of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub index: u64,
    pub sequence: u64,
}

impl Life {
    /// The reference that stands in the target word of `entry`.
    #[inline(always)]
    pub fn reference(self, entry: usize) -> u64 {
        MWCAS | self.sequence << SEQUENCE_SHIFT | (entry as u64) << INDEX_BITS | self.index
    }

    /// The descriptor's next life.
    pub fn next(self) -> Self {
        Self { sequence: (self.sequence + 1) & SEQUENCE_MASK, ..self }
    }

    /// The conditional reference that stands for `entry`.
    pub fn conditional(self, entry: usize) -> u64 {
        RDCSS | self.sequence << SEQUENCE_SHIFT | (entry as u64) << INDEX_BITS | self.index
    }

    /// What a reference or a conditional reference names.
    pub fn of(word: u64) -> (Self, usize) {
        let index = word & ((1 << INDEX_BITS) - 1);
        let entry = (word >> INDEX_BITS) & ((1 << ENTRY_BITS) - 1);
        let sequence = (word >> SEQUENCE_SHIFT) & SEQUENCE_MASK;
        (Self { index, sequence }, entry as usize)
    }
}

/// What a descriptor is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing.
    Free = 0,
    /// Being filled by its owner.
    Filling = 1,
    /// Executing, not decided.
    Undecided = 2,
    /// Decided: the new values hold.
    Succeeded = 3,
    /// Decided: the old values hold.
    Failed = 4,
    /// The record of a helper's conditional reference.
    Helping = 5,
    /// Executing, not decided: only its owner installs, and lets it succeed; anyone may let it
    /// fail.
    Installing = 6,
    /// Decided: the new values hold. All targets hold references, and the medium has them; it may
    /// not have this status.
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

    /// Checked: `None` for a word that cannot have been written.
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
