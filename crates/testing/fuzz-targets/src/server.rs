//! The server's protocols, and the snapshots that it restores.

use pando_server::testing;

use crate::input::Input;
use crate::scratch::Scratch;

/// The first byte gives the size of the pieces in which a client of the Redis protocol sends the
/// rest. The server must send complete replies, and its pool must be consistent. The same bytes
/// after the start of an HTTP request must get no reply.
pub fn redis(data: &[u8]) {
    let replies = replies(data, testing::redis);
    let mut rest = &replies[..];
    while !rest.is_empty() {
        rest = behind_reply(rest).expect("a whole reply");
    }
}

/// The same for a client of the memcached protocol.
pub fn memcached(data: &[u8]) {
    let replies = replies(data, testing::memcached);
    assert!(replies.is_empty() || replies.ends_with(b"\r\n"), "replies end with their lines");
}

/// The replies to a client; none to an HTTP request.
fn replies(data: &[u8], serve: fn(&[u8], usize) -> Vec<u8>) -> Vec<u8> {
    let Some((&pieces, sent)) = data.split_first() else { return Vec::new() };
    let request = http_request(pieces, sent);
    assert!(
        serve(&request, piece_bytes(pieces, &request)).is_empty(),
        "an HTTP request is answered"
    );
    serve(sent, piece_bytes(pieces, sent))
}

/// The first byte says whether the rest is the file of a snapshot, or the entries of its blocks in
/// an otherwise valid file. The snapshot must be refused or restored, and the pool must be
/// consistent.
pub fn snapshot(data: &[u8]) {
    let mut input = Input::new(data);
    let is_whole = input.byte().is_multiple_of(4);
    let mut file = Vec::new();
    if is_whole {
        file.extend_from_slice(input.bytes(usize::MAX));
    } else {
        let keys = input.number(2) as u32;
        file.extend_from_slice(b"PANDOSNP\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        while !input.is_empty() {
            let bytes = input.number(2) as usize;
            let block = input.bytes(bytes);
            if !block.is_empty() {
                file.extend_from_slice(&(block.len() as u32).to_le_bytes());
                file.extend_from_slice(&crc32fast::hash(block).to_le_bytes());
                file.extend_from_slice(block);
            }
        }
        file.extend_from_slice(&[0; 4]);
        file.extend_from_slice(&keys.to_le_bytes());
    }
    let scratch = Scratch::new();
    let path = scratch.path("snapshot");
    std::fs::write(&path, &file).expect("writes");
    testing::restore(&path);
}

/// An HTTP request that ends with `rest`, as more headers or as a body.
fn http_request(choice: u8, rest: &[u8]) -> Vec<u8> {
    const METHODS: [&str; 9] =
        ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    let method = METHODS[usize::from(choice) % METHODS.len()];
    let headers = if choice.is_multiple_of(2) { "Host: x\r\n\r\n" } else { "" };
    [format!("{method} / HTTP/1.1\r\n{headers}").as_bytes(), rest].concat()
}

/// The size of a piece: all bytes, one byte, or a size between.
fn piece_bytes(pieces: u8, sent: &[u8]) -> usize {
    match pieces {
        0 => sent.len(),
        bytes => usize::from(bytes),
    }
}

/// The bytes after the first reply; `None` if the first reply is incomplete.
fn behind_reply(replies: &[u8]) -> Option<&[u8]> {
    let (&kind, rest) = replies.split_first()?;
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    let (line, rest) = (&rest[..end], &rest[end + 2..]);
    let count = || std::str::from_utf8(line).ok()?.parse::<i64>().ok();
    let values = match kind {
        b'+' | b'-' | b':' | b',' | b'_' | b'#' | b'(' => return Some(rest),
        b'$' | b'=' => {
            let Ok(bytes) = usize::try_from(count()?) else { return Some(rest) };
            return rest.get(bytes..)?.strip_prefix(b"\r\n");
        }
        b'*' | b'~' | b'>' => count()?,
        b'%' => 2 * count()?,
        _ => return None,
    };
    (0..values).try_fold(rest, |rest, _| behind_reply(rest))
}
