//! Buffers of a connection.

/// Bytes that are read at once, at least.
const READ_BYTES: usize = 16 * 1024;
/// When replies have this many bytes, they are sent before the next request is executed.
pub const SEND_BYTES: usize = 64 * 1024;
/// The largest buffer that an idle connection keeps, in bytes.
const IDLE_BYTES: usize = 64 * 1024;

/// Empties a buffer, and frees its memory if it is large.
pub fn empty(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > IDLE_BYTES {
        *buffer = Vec::new();
    }
}

/// Removes the bytes before `begin`: their requests have been executed.
pub fn drop_done(input: &mut Vec<u8>, begin: &mut usize) {
    if *begin == input.len() {
        empty(input);
    } else {
        input.drain(..*begin);
    }
    *begin = 0;
}

/// Makes room for input. If `missing` bytes are known to come, the next reads are large, but memory
/// is allocated only as the bytes arrive.
pub fn make_room(input: &mut Vec<u8>, missing: usize) {
    input.reserve(READ_BYTES.max(missing.min(input.len().max(READ_BYTES))));
}
