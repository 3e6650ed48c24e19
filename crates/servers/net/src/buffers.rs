//! What a connection keeps of what comes and goes.

/// What is read at once, in bytes.
const READ_BYTES: usize = 16 * 1024;
/// Replies of so many bytes are sent before the next request is carried out.
pub const SEND_BYTES: usize = 64 * 1024;
/// An idle connection keeps no more buffer than this.
const IDLE_BYTES: usize = 64 * 1024;

/// Empties a buffer, and lets go of it if it is large.
pub fn empty(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > IDLE_BYTES {
        *buffer = Vec::new();
    }
}

/// Removes what was carried out, which is what stands before `begin`.
pub fn drop_done(input: &mut Vec<u8>, begin: &mut usize) {
    if *begin == input.len() {
        empty(input);
    } else {
        input.drain(..*begin);
    }
    *begin = 0;
}

/// Makes room for what is to come. What is known to be missing is read in large pieces, but only
/// kept as it comes.
pub fn make_room(input: &mut Vec<u8>, missing: usize) {
    input.reserve(READ_BYTES.max(missing.min(input.len().max(READ_BYTES))));
}
