//! The text protocol's commands.

use pando_keyspace::failure::Result;
use pando_keyspace::stripes::Access;
use pando_net::web_request;

use crate::connection::{Answer, Block, Connection, Keys, Next, Step};
use crate::counters::{Counter, counter_of};
use crate::item::{self, About};
use crate::parse::{self, MAX_KEY_BYTES, Rest, Words, block_bytes};
use crate::reply::{push_number, say, server_error};
use crate::state::VERSION;
use crate::storage::{self, Counted, Mode, Write};
use crate::{expiry, flush, meta, stats};

const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_TIME: &str = "CLIENT_ERROR invalid exptime argument";
const ERROR: &str = "ERROR";

/// Carries out a line.
pub(crate) fn command(connection: &mut Connection<'_>, line: &[u8], reply: &mut Vec<u8>) -> Next {
    let words = parse::words(line);
    let Some(&name) = words.first().filter(|name| name.len() >= 2) else {
        say(reply, ERROR);
        return Next::Line;
    };
    let begin = reply.len();
    let mut is_quiet = words.last() == Some(&&b"noreply"[..]);
    // There it may be the key.
    is_quiet &= name != b"delete" || words.len() > 2;
    let takes = |least: usize, most: usize| (least..=most).contains(&words.len());
    let done = match name {
        b"get" | b"bget" if takes(2, usize::MAX) => {
            return keys(connection, line, false, false, reply);
        }
        b"gets" if takes(2, usize::MAX) => return keys(connection, line, true, false, reply),
        b"gat" if takes(2, usize::MAX) => return keys(connection, line, false, true, reply),
        b"gats" if takes(2, usize::MAX) => return keys(connection, line, true, true, reply),
        b"set" if takes(5, 6) => return update(connection, &words, Mode::Set, is_quiet, reply),
        b"add" if takes(5, 6) => return update(connection, &words, Mode::Add, is_quiet, reply),
        b"replace" if takes(5, 6) => {
            return update(connection, &words, Mode::Replace, is_quiet, reply);
        }
        b"append" if takes(5, 6) => {
            return update(connection, &words, Mode::Append, is_quiet, reply);
        }
        b"prepend" if takes(5, 6) => {
            return update(connection, &words, Mode::Prepend, is_quiet, reply);
        }
        b"cas" if takes(6, 7) => return update(connection, &words, Mode::Compare, is_quiet, reply),
        b"ms" => return meta::set(connection, &words, reply),
        b"mg" => return answered(meta::get(connection, &words, reply), reply, begin, false),
        b"md" => return answered(meta::delete(connection, &words, reply), reply, begin, false),
        b"ma" => return answered(meta::count(connection, &words, reply), reply, begin, false),
        b"me" => return answered(meta::debug(connection, &words, reply), reply, begin, false),
        b"mn" => {
            say(reply, "MN");
            return Next::Line;
        }
        b"quit" => return Next::Close,
        b"version" => {
            say(reply, &format!("VERSION {VERSION}"));
            return Next::Line;
        }
        b"shutdown" => {
            say(reply, "ERROR: shutdown not enabled");
            return Next::Line;
        }
        b"stats" => return answered(tell(connection, &words, reply), reply, begin, false),
        b"incr" if takes(3, 4) => count(connection, &words, true, reply),
        b"decr" if takes(3, 4) => count(connection, &words, false, reply),
        b"delete" if takes(2, 4) => delete(connection, &words, is_quiet, reply),
        b"touch" if takes(3, 4) => touch(connection, &words, reply),
        b"flush_all" if takes(1, 3) => flush_all(connection, &words, is_quiet, reply),
        b"verbosity" if takes(2, 3) => {
            // What is written down is set where the server is started.
            say(reply, if parse::parse_u32(words[1]).is_some() { "OK" } else { BAD_FORMAT });
            Ok(())
        }
        _ if words.last().is_some_and(|word| web_request::is_version(word)) => {
            connection.server.web_request_alarm.raise(&connection.peer);
            return Next::Close;
        }
        _ => {
            say(reply, ERROR);
            return Next::Line;
        }
    };
    answered(done, reply, begin, is_quiet)
}

/// Leaves in `reply` from `begin` on what is to be said of a command that was carried out.
fn answered(done: Result<()>, reply: &mut Vec<u8>, begin: usize, is_quiet: bool) -> Next {
    if let Err(failure) = done {
        reply.truncate(begin);
        server_error(reply, &failure);
    }
    if is_quiet {
        reply.truncate(begin);
    }
    Next::Line
}

/// Where the keys of a get begin, if all are keys.
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
            say(reply, BAD_TIME);
            return Next::Line;
        };
        let clock = connection.server.store.clock();
        Some(expiry::moment(clock, clock.now_ms(), seconds))
    } else {
        None
    };
    if { rest }.any(|key| key.len() > MAX_KEY_BYTES) {
        say(reply, BAD_FORMAT);
        return Next::Line;
    }
    Next::Keys(line.len() - rest.0.len(), Keys { bytes: 0, tail_bytes: 0, has_cas, touch })
}

/// Answers keys that stand in `input`, until there are `send_bytes` of replies; how many bytes of
/// it are done with.
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
            let transaction = storage::begin(connection.server, key, Access::Shared)?;
            item::look(&transaction, key, |lent| {
                let found = lent.item();
                if let Some((about, bytes)) = &found {
                    show(about, bytes, reply);
                }
                found.is_some()
            })?
        }
        Some(expires_at) => {
            let mut transaction = storage::begin(connection.server, key, Access::Alone)?;
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
    if keys.touch.is_some() {
        connection.count(Counter::Touch);
        connection.count(if is_hit { Counter::TouchHits } else { Counter::TouchMisses });
    } else {
        connection.count(Counter::Get);
        connection.count(if is_hit { Counter::GetHits } else { Counter::GetMisses });
    }
    Ok(())
}

fn update(
    connection: &Connection<'_>,
    words: &Words<'_>,
    mode: Mode,
    is_quiet: bool,
    reply: &mut Vec<u8>,
) -> Next {
    let begin = reply.len();
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
    let server = connection.server;
    if item::item_bytes(key, flags, bytes) > server.state.max_item_bytes {
        connection.count(Counter::TooLarge);
        // What was there is not what the client means to be there.
        if mode == Mode::Set
            && let Err(failure) = storage::delete(server, key)
        {
            let _ = answered(Err(failure), reply, begin, is_quiet);
            return Next::Swallow(bytes + 2);
        }
        let why = "SERVER_ERROR object too large for cache";
        return refuse(reply, why, Next::Swallow(bytes + 2));
    }
    let clock = server.store.clock();
    let write = Write {
        key: key.to_vec(),
        mode,
        flags,
        expires_at: expiry::moment(clock, clock.now_ms(), seconds),
        cas,
        may_be_stale: false,
        is_binary_key: false,
    };
    Next::Block(Box::new(Block { write, bytes, answer: Answer::Text { is_quiet } }))
}

fn count(
    connection: &Connection<'_>,
    words: &Words<'_>,
    is_up: bool,
    reply: &mut Vec<u8>,
) -> Result<()> {
    let key = words[1];
    if key.len() > MAX_KEY_BYTES {
        say(reply, BAD_FORMAT);
        return Ok(());
    }
    let Some(delta) = parse::parse_u64(words[2]) else {
        say(reply, "CLIENT_ERROR invalid numeric delta argument");
        return Ok(());
    };
    let mut transaction = storage::begin_storing(connection.server, key)?;
    match storage::count(&transaction, key, is_up, delta, 0)? {
        Counted::Number(number, about, bytes) => {
            item::put(&mut transaction, key, &about, &bytes)?;
            transaction.commit()?;
            push_number(reply, number);
            say(reply, "");
        }
        Counted::NotANumber => {
            say(reply, "CLIENT_ERROR cannot increment or decrement non-numeric value");
            return Ok(());
        }
        Counted::NotFound(_) | Counted::Exists => {
            connection.count(counter_of(is_up, false));
            say(reply, "NOT_FOUND");
            return Ok(());
        }
    }
    connection.count(counter_of(is_up, true));
    Ok(())
}

fn delete(
    connection: &Connection<'_>,
    words: &Words<'_>,
    is_quiet: bool,
    reply: &mut Vec<u8>,
) -> Result<()> {
    // A time that had to be 0 stood behind the key once.
    let is_valid = match &words[2..] {
        [] => true,
        [word] => *word == b"0" || is_quiet,
        [word, ..] => *word == b"0" && is_quiet,
    };
    if !is_valid {
        say(reply, "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]");
        return Ok(());
    }
    if words[1].len() > MAX_KEY_BYTES {
        say(reply, BAD_FORMAT);
        return Ok(());
    }
    let is_deleted = storage::delete(connection.server, words[1])?;
    connection.count(if is_deleted { Counter::DeleteHits } else { Counter::DeleteMisses });
    say(reply, if is_deleted { "DELETED" } else { "NOT_FOUND" });
    Ok(())
}

fn touch(connection: &Connection<'_>, words: &Words<'_>, reply: &mut Vec<u8>) -> Result<()> {
    if words[1].len() > MAX_KEY_BYTES {
        say(reply, BAD_FORMAT);
        return Ok(());
    }
    let Some(seconds) = parse::parse_i32(words[2]) else {
        say(reply, BAD_TIME);
        return Ok(());
    };
    let clock = connection.server.store.clock();
    let expires_at = expiry::moment(clock, clock.now_ms(), seconds);
    let is_touched = storage::touch(connection.server, words[1], expires_at)?;
    connection.count(Counter::Touch);
    connection.count(if is_touched { Counter::TouchHits } else { Counter::TouchMisses });
    say(reply, if is_touched { "TOUCHED" } else { "NOT_FOUND" });
    Ok(())
}

fn flush_all(
    connection: &Connection<'_>,
    words: &Words<'_>,
    is_quiet: bool,
    reply: &mut Vec<u8>,
) -> Result<()> {
    connection.count(Counter::Flush);
    let seconds = if words.len() == if is_quiet { 2 } else { 1 } {
        0
    } else {
        let Some(seconds) = parse::parse_i32(words[1]) else {
            say(reply, BAD_TIME);
            return Ok(());
        };
        seconds
    };
    let clock = connection.server.store.clock();
    match expiry::moment(clock, clock.now_ms(), seconds) {
        Some(due_at) if due_at > clock.now_ms() => {
            connection.server.state.waiting.wait_until(due_at);
        }
        _ => flush::flush(connection.server)?,
    }
    say(reply, "OK");
    Ok(())
}

fn tell(connection: &Connection<'_>, words: &Words<'_>, reply: &mut Vec<u8>) -> Result<()> {
    match words.get(1) {
        Some(&b"reset") => {
            connection.server.state.counters.reset();
            say(reply, "RESET");
        }
        about => {
            if !stats::tell(connection.server, about.copied(), reply)? {
                say(reply, ERROR);
            }
        }
    }
    Ok(())
}
