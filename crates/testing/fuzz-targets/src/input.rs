//! The input of a target, read from the start.

/// The remaining bytes. After the last one it reads zeros.
pub(crate) struct Input<'bytes>(&'bytes [u8]);

impl<'bytes> Input<'bytes> {
    pub fn new(bytes: &'bytes [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// At most `count` bytes.
    pub fn bytes(&mut self, count: usize) -> &'bytes [u8] {
        let (taken, left) = self.0.split_at(count.min(self.0.len()));
        self.0 = left;
        taken
    }

    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// Little-endian, of at most `count` bytes.
    pub fn number(&mut self, count: usize) -> u64 {
        self.bytes(count).iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }
}
