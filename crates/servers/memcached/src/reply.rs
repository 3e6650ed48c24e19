//! Words and numbers of replies.

use pando_keyspace::failure::Failure;

/// The reply to incr and decr of a value that is not a number.
pub(crate) const NOT_A_NUMBER: &str =
    "CLIENT_ERROR cannot increment or decrement non-numeric value";

/// Appends a line.
pub(crate) fn say(reply: &mut Vec<u8>, words: &str) {
    reply.extend_from_slice(words.as_bytes());
    reply.extend_from_slice(b"\r\n");
}

/// Appends a number.
pub(crate) fn push_number(reply: &mut Vec<u8>, number: u64) {
    reply.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends the reply for a failure of the store.
pub(crate) fn server_error(reply: &mut Vec<u8>, failure: &Failure) {
    match failure {
        other if other.is_no_memory() => say(reply, "SERVER_ERROR out of memory storing object"),
        other => {
            let words = other.to_string().replace(['\r', '\n'], " ");
            let words = words.strip_prefix("ERR ").unwrap_or(&words);
            say(reply, &format!("SERVER_ERROR {words}"));
        }
    }
}
