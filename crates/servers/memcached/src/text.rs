//! The text protocol's commands.

use pando_keyspace::failure::Result;
use pando_keyspace::stripes::Access;
use pando_net::web_request;

use crate::connection::{Answer, Block, Connection, Keys, Line, Next, Step};
use crate::counters::{Counter, counter_of};
use crate::item::{self, About};
use crate::parse::{self, MAX_KEY_BYTES, Rest, Words, block_bytes};
use crate::reply::{NOT_A_NUMBER, push_number, say, server_error};
use crate::state::VERSION;
use crate::storage::{self, Counted, Mode, Write};
use crate::{expiry, flush, meta, stats};

const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_TIME: &str = "CLIENT_ERROR invalid exptime argument";
const ERROR: &str = "ERROR";

/// Whether the command of a line reads values, and has no data behind the line.
pub(crate) fn needs_values(line: &[u8]) -> bool {
    let is_of = |name: &[u8]| {
        matches!(name, b"get" | b"bget" | b"gets" | b"gat" | b"gats" | b"incr" | b"decr" | b"touch")
            || matches!(name, b"mg" | b"ma" | b"me")
    };
    Rest(line).next().is_some_and(is_of)
}

/// Whether a command that [needs values](needs_values) has no reply.
pub(crate) fn is_quiet(line: &[u8]) -> bool {
    let words = parse::words(line);
    let may_be = |name: &&[u8]| matches!(*name, b"incr" | b"decr" | b"touch");
    words.first().is_some_and(may_be) && words.last() == Some(&&b"noreply"[..])
}

/// Executes a line.
pub(crate) fn command(connection: &mut Connection<'_>, line: &[u8], reply: &mut Vec<u8>) -> Next {
    let words = parse::words(line);
    let Some(&name) = words.first().filter(|name| name.len() >= 2) else {
        return Next::answered(reply, ERROR);
    };
    let begin = reply.len();
    let mut is_quiet = words.last() == Some(&&b"noreply"[..]);
    // There "noreply" may be the key.
    is_quiet &= name != b"delete" || words.len() > 2;
    let takes = |least: usize, most: usize| (least..=most).contains(&words.len());
    let storing = match name {
        b"set" => Some((Mode::Set, 5)),
        b"add" => Some((Mode::Add, 5)),
        b"replace" => Some((Mode::Replace, 5)),
        b"append" => Some((Mode::Append, 5)),
        b"prepend" => Some((Mode::Prepend, 5)),
        b"cas" => Some((Mode::Compare, 6)),
        _ => None,
    };
    if let Some((mode, least)) = storing
        && takes(least, least + 1)
    {
        return update(connection, &words, mode, is_quiet, reply);
    }
    let answer = match name {
        b"get" | b"bget" if takes(2, usize::MAX) => {
            return keys(connection, line, false, false, reply);
        }
        b"gets" if takes(2, usize::MAX) => return keys(connection, line, true, false, reply),
        b"gat" if takes(2, usize::MAX) => return keys(connection, line, false, true, reply),
        b"gats" if takes(2, usize::MAX) => return keys(connection, line, true, true, reply),
        b"ms" => return meta::set(Line { connection, words: &words, reply }),
        b"mg" | b"md" | b"ma" | b"me" | b"stats" => {
            let line = Line { connection, words: &words, reply };
            let done = match name {
                b"mg" => meta::get(line),
                b"md" => meta::delete(line),
                b"ma" => meta::count(line),
                b"me" => meta::debug(line),
                _ => stats(line),
            };
            if let Err(failure) = done {
                reply.truncate(begin);
                server_error(reply, &failure);
            }
            return Next::Line;
        }
        b"mn" => return Next::answered(reply, "MN"),
        b"quit" => return Next::Close,
        b"version" => return Next::answered(reply, &format!("VERSION {VERSION}")),
        b"shutdown" => return Next::answered(reply, "ERROR: shutdown not enabled"),
        b"incr" if takes(3, 4) => count(connection, &words, true),
        b"decr" if takes(3, 4) => count(connection, &words, false),
        b"delete" if takes(2, 4) => delete(connection, &words, is_quiet),
        b"touch" if takes(3, 4) => touch(connection, &words),
        b"flush_all" if takes(1, 3) => flush_all(connection, &words, is_quiet),
        // The server's log level is set by its options, so this has no effect.
        b"verbosity" if takes(2, 3) => {
            let is_number = parse::parse_u32(words[1]).is_some();
            Ok(Reply::Words(if is_number { "OK" } else { BAD_FORMAT }))
        }
        _ if words.last().is_some_and(|word| web_request::is_version(word)) => {
            connection.server.web_request_alarm.raise(&connection.peer);
            return Next::Close;
        }
        _ => return Next::answered(reply, ERROR),
    };
    match answer {
        _ if is_quiet => {}
        Ok(Reply::Words(words)) => say(reply, words),
        Ok(Reply::Number(number)) => {
            push_number(reply, number);
            say(reply, "");
        }
        Err(failure) => server_error(reply, &failure),
    }
    Next::Line
}

/// The reply line of a command.
enum Reply {
    Words(&'static str),
    Number(u64),
}

/// The position of a get's keys, after checking that all are keys.
fn keys(
    connection: &Connection<'_>,
    line: &[u8],
    has_cas: bool,
    is_touching: bool,
    reply: &mut Vec<u8>,
) -> Next {
    let mut rest = Rest(line);
    rest.next();
    let touch = if is_touching {
        let Some(seconds) = rest.next().and_then(parse::parse_i32) else {
            return Next::answered(reply, BAD_TIME);
        };
        let clock = connection.server.store.clock();
        Some(expiry::expires_at(clock, clock.now_ms(), seconds))
    } else {
        None
    };
    if { rest }.any(|key| key.len() > MAX_KEY_BYTES) {
        return Next::answered(reply, BAD_FORMAT);
    }
    Next::Keys(line.len() - rest.0.len(), Keys { bytes: 0, tail_bytes: 0, has_cas, touch })
}

/// Answers the keys in `input` until there are `send_bytes` of replies, and returns the number of
/// bytes that are done.
pub(crate) fn retrieve(
    connection: &mut Connection<'_>,
    keys: Keys,
    input: &[u8],
    reply: &mut Vec<u8>,
    send_bytes: usize,
) -> usize {
    let mut rest = Rest(&input[..keys.bytes]);
    while reply.len() < send_bytes {
        let retrieved = match rest.next() {
            Some(key) => retrieve_one(connection, keys, key, reply),
            None => {
                reply.extend_from_slice(b"END\r\n");
                connection.step = Step::Line;
                return keys.bytes + keys.tail_bytes;
            }
        };
        if let Err(failure) = retrieved {
            server_error(reply, &failure);
            connection.step = Step::Line;
            return keys.bytes + keys.tail_bytes;
        }
    }
    connection.step = Step::Keys(Keys { bytes: rest.0.len(), ..keys });
    keys.bytes - rest.0.len()
}

fn retrieve_one(
    connection: &Connection<'_>,
    keys: Keys,
    key: &[u8],
    reply: &mut Vec<u8>,
) -> Result<()> {
    let show = |about: &About, bytes: &[u8], reply: &mut Vec<u8>| {
        reply.extend_from_slice(b"VALUE ");
        reply.extend_from_slice(key);
        reply.push(b' ');
        push_number(reply, u64::from(about.flags));
        reply.push(b' ');
        push_number(reply, bytes.len() as u64);
        if keys.has_cas {
            reply.push(b' ');
            push_number(reply, about.cas);
        }
        reply.extend_from_slice(b"\r\n");
        reply.extend_from_slice(bytes);
        reply.extend_from_slice(b"\r\n");
    };
    let is_hit = match keys.touch {
        None => {
            let transaction = storage::begin(&connection.server, key, Access::Shared)?;
            item::look(&transaction, key, |lent| {
                let found = lent.item();
                if let Some((about, bytes)) = &found {
                    show(about, bytes, reply);
                }
                found.is_some()
            })?
        }
        Some(expires_at) => {
            let mut transaction = storage::begin(&connection.server, key, Access::Exclusive)?;
            match item::find(&transaction, key)? {
                item::Found::Item(about, bytes) => {
                    item::put(&mut transaction, key, &About { expires_at, ..about }, &bytes)?;
                    transaction.commit()?;
                    show(&about, &bytes, reply);
                    true
                }
                _ => false,
            }
        }
    };
    connection.count_get(keys.touch.is_some(), is_hit);
    Ok(())
}

fn update(
    connection: &Connection<'_>,
    words: &Words<'_>,
    mode: Mode,
    is_quiet: bool,
    reply: &mut Vec<u8>,
) -> Next {
    let refuse = |reply: &mut Vec<u8>, why: &str, next: Next| {
        if !is_quiet {
            say(reply, why);
        }
        next
    };
    let key = words[1];
    let cas = if mode == Mode::Compare { parse::parse_u64(words[5]) } else { Some(0) };
    let (Some(flags), Some(seconds), Some(bytes), Some(cas), 1..=MAX_KEY_BYTES) = (
        parse::parse_u32(words[2]),
        parse::parse_i32(words[3]),
        block_bytes(words[4]),
        cas,
        key.len(),
    ) else {
        return refuse(reply, BAD_FORMAT, Next::Line);
    };
    let server = &connection.server;
    if item::item_bytes(key, flags, bytes) > server.state.max_item_bytes {
        connection.count(Counter::TooLarge);
        // The client wants to replace the old value, so it must not remain.
        if mode == Mode::Set
            && let Err(failure) = storage::delete(server, key)
        {
            if !is_quiet {
                server_error(reply, &failure);
            }
            return Next::Skip(bytes + 2);
        }
        let why = "SERVER_ERROR object too large for cache";
        return refuse(reply, why, Next::Skip(bytes + 2));
    }
    let clock = server.store.clock();
    let write = Write {
        key: key.to_vec(),
        mode,
        flags,
        expires_at: expiry::expires_at(clock, clock.now_ms(), seconds),
        cas,
        may_be_stale: false,
        is_binary_key: false,
    };
    Next::Block(Box::new(Block { write, bytes, answer: Answer::Text { is_quiet } }))
}

fn count(connection: &Connection<'_>, words: &Words<'_>, is_up: bool) -> Result<Reply> {
    let key = words[1];
    if key.len() > MAX_KEY_BYTES {
        return Ok(Reply::Words(BAD_FORMAT));
    }
    let Some(delta) = parse::parse_u64(words[2]) else {
        return Ok(Reply::Words("CLIENT_ERROR invalid numeric delta argument"));
    };
    let mut transaction = storage::begin_storing(&connection.server, key)?;
    let (number, about, bytes) = match storage::count(&transaction, key, is_up, delta, 0)? {
        Counted::Number(number, about, bytes) => (number, about, bytes),
        Counted::NotANumber => return Ok(Reply::Words(NOT_A_NUMBER)),
        Counted::NotFound(_) | Counted::Exists => {
            connection.count(counter_of(is_up, false));
            return Ok(Reply::Words("NOT_FOUND"));
        }
    };
    item::put(&mut transaction, key, &about, &bytes)?;
    transaction.commit()?;
    connection.count(counter_of(is_up, true));
    Ok(Reply::Number(number))
}

fn delete(connection: &Connection<'_>, words: &Words<'_>, is_quiet: bool) -> Result<Reply> {
    // In old versions a time of 0 followed the key.
    let is_valid = match &words[2..] {
        [] => true,
        [word] => *word == b"0" || is_quiet,
        [word, ..] => *word == b"0" && is_quiet,
    };
    if !is_valid {
        return Ok(Reply::Words(
            "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
        ));
    }
    if words[1].len() > MAX_KEY_BYTES {
        return Ok(Reply::Words(BAD_FORMAT));
    }
    let is_deleted = storage::delete(&connection.server, words[1])?;
    connection.count(if is_deleted { Counter::DeleteHits } else { Counter::DeleteMisses });
    Ok(Reply::Words(if is_deleted { "DELETED" } else { "NOT_FOUND" }))
}

fn touch(connection: &Connection<'_>, words: &Words<'_>) -> Result<Reply> {
    if words[1].len() > MAX_KEY_BYTES {
        return Ok(Reply::Words(BAD_FORMAT));
    }
    let Some(seconds) = parse::parse_i32(words[2]) else { return Ok(Reply::Words(BAD_TIME)) };
    let clock = connection.server.store.clock();
    let expires_at = expiry::expires_at(clock, clock.now_ms(), seconds);
    let is_touched = storage::touch(&connection.server, words[1], expires_at)?;
    connection.count(Counter::Touch);
    connection.count(if is_touched { Counter::TouchHits } else { Counter::TouchMisses });
    Ok(Reply::Words(if is_touched { "TOUCHED" } else { "NOT_FOUND" }))
}

fn flush_all(connection: &Connection<'_>, words: &Words<'_>, is_quiet: bool) -> Result<Reply> {
    connection.count(Counter::Flush);
    let seconds = match words.len() - usize::from(is_quiet) {
        1 => Some(0),
        _ => parse::parse_i32(words[1]),
    };
    let Some(seconds) = seconds else { return Ok(Reply::Words(BAD_TIME)) };
    let clock = connection.server.store.clock();
    match expiry::expires_at(clock, clock.now_ms(), seconds) {
        Some(due_at) if due_at > clock.now_ms() => {
            connection.server.state.waiting.wait_until(due_at);
        }
        _ => {
            flush::flush(*connection.server)?;
            connection.server.may_write.set(true);
        }
    }
    Ok(Reply::Words("OK"))
}

fn stats(Line { connection, words, reply }: Line<'_, '_>) -> Result<()> {
    match words.get(1) {
        Some(&b"reset") => {
            connection.server.state.counters.reset();
            say(reply, "RESET");
        }
        about => {
            if !stats::reply_to(*connection.server, about.copied(), reply)? {
                say(reply, ERROR);
            }
        }
    }
    Ok(())
}
