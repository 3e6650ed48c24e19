//! Reading encoded numbers and bytes.

/// The bytes of a payload that are not read yet.
pub(crate) struct Rest<'payload>(pub &'payload [u8]);

impl<'payload> Rest<'payload> {
    /// The next bytes; `None` if there are fewer.
    pub fn take(&mut self, bytes: usize) -> Option<&'payload [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next number of 8 bytes.
    pub fn number(&mut self) -> Option<u64> {
        self.take(8)?.try_into().map(u64::from_le_bytes).ok()
    }

    /// The next numbers of 4 bytes.
    pub fn numbers<const N: usize>(&mut self) -> Option<[u32; N]> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
        }
        Some(numbers)
    }
}
