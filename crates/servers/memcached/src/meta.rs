//! The meta commands: mg, ms, md, ma, me.
//!
//! A command has a key and flags. A flag is a letter, and some have a value after the letter. All
//! flags are parsed before the command is executed. Flags that request data are answered in their
//! order.

use std::borrow::Cow;

use pando_keyspace::clock::Clock;
use pando_keyspace::failure::Result;
use pando_keyspace::stripes::Access;

use crate::connection::{Answer, Block, Line, Next};
use crate::counters::{self, Counter};
use crate::item::{self, About, Found, Marks};
use crate::meta_answer::{MetaAnswer, push_flag, push_key, push_time, push_word};
use crate::parse::{self, MAX_KEY_BYTES};
use crate::reply::{NOT_A_NUMBER, push_number, say, server_error};
use crate::storage::{self, Counted, Mode, Write};
use crate::{base64, expiry};

const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
const BAD_FLAG: &str = "CLIENT_ERROR invalid or duplicate flag";
const TOO_LONG_OPAQUE: &str = "CLIENT_ERROR opaque token too long";
/// A command has fewer words than this.
const MAX_WORDS: usize = 20;
/// The longest opaque word, with its letter.
const MAX_OPAQUE_BYTES: usize = 32;

/// The flags of a command.
struct Request<'line> {
    key: Cow<'line, [u8]>,
    is_binary_key: bool,
    /// The flags as they were sent.
    words: &'line [&'line [u8]],
    is_quiet: bool,
    has_value: bool,
    is_invalidating: bool,
    /// C.
    cas: Option<u64>,
    /// T.
    seconds: Option<i32>,
    /// N.
    new_seconds: Option<i32>,
    /// R.
    renewal_seconds: Option<i32>,
    /// F.
    flags: u32,
    /// M.
    mode: u8,
    /// D.
    delta: u64,
    /// J.
    initial: u64,
}

/// The reason why a flag is wrong.
enum Wrong {
    /// Unknown flag.
    Letter,
    /// Its value is wrong; the error in memcached's words.
    Token(&'static str),
    /// The value of F is wrong. Memcached has no error of its own for it.
    ClientFlags,
}

impl<'line> Request<'line> {
    /// Parses the flags. An error is in memcached's words.
    fn read(key: &'line [u8], words: &'line [&'line [u8]]) -> Result<Self, &'static str> {
        let mut request = Self {
            key: Cow::Borrowed(key),
            is_binary_key: false,
            words,
            is_quiet: false,
            has_value: false,
            is_invalidating: false,
            cas: None,
            seconds: None,
            new_seconds: None,
            renewal_seconds: None,
            flags: 0,
            mode: 0,
            delta: 1,
            initial: 0,
        };
        let mut seen = 0u128;
        let mut wrong = None;
        for word in words {
            let (letter, token) = (word[0], &word[1..]);
            if letter >= 127 || seen >> letter & 1 == 1 {
                return Err("CLIENT_ERROR duplicate flag");
            }
            seen |= 1 << letter;
            match request.read_one(letter, token) {
                Ok(()) => {}
                // Memcached reports the last error.
                Err(Wrong::Token(why)) => wrong = Some(why),
                Err(Wrong::ClientFlags) => wrong = wrong.or(Some(BAD_FORMAT)),
                Err(Wrong::Letter) => return Err("CLIENT_ERROR invalid flag"),
            }
        }
        match wrong {
            Some(why) => Err(why),
            None => Ok(request),
        }
    }

    fn read_one(&mut self, letter: u8, token: &[u8]) -> Result<(), Wrong> {
        let seconds = || parse::parse_i32(token).ok_or(Wrong::Token(BAD_TOKEN));
        let number = |why| parse::parse_u64(token).ok_or(Wrong::Token(why));
        match letter {
            b'b' => {
                self.is_binary_key = true;
                match base64::decode(&self.key) {
                    Some(key) => {
                        self.key = Cow::Owned(key);
                        Ok(())
                    }
                    None => Err(Wrong::Token("CLIENT_ERROR error decoding key")),
                }
            }
            b'N' => seconds().map(|seconds| self.new_seconds = Some(seconds)),
            b'T' => seconds().map(|seconds| self.seconds = Some(seconds)),
            b'R' => seconds().map(|seconds| self.renewal_seconds = Some(seconds)),
            b'F' => {
                parse::parse_u32(token).map(|flags| self.flags = flags).ok_or(Wrong::ClientFlags)
            }
            b'C' => number(BAD_TOKEN).map(|cas| self.cas = Some(cas)),
            b'J' => number("CLIENT_ERROR invalid numeric initial value")
                .map(|initial| self.initial = initial),
            b'D' => {
                number("CLIENT_ERROR invalid numeric delta value").map(|delta| self.delta = delta)
            }
            b'M' => match token {
                &[mode] => {
                    self.mode = mode;
                    Ok(())
                }
                _ => Err(Wrong::Token("CLIENT_ERROR incorrect length for M token")),
            },
            b'I' => {
                self.is_invalidating = true;
                Ok(())
            }
            b'q' => {
                self.is_quiet = true;
                Ok(())
            }
            b'v' => {
                self.has_value = true;
                Ok(())
            }
            // These are answered later, or, like u, P and L, have no effect here.
            b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'l' | b'h' | b'u' => Ok(()),
            _ => Err(Wrong::Letter),
        }
    }

    fn has_too_long_opaque(&self) -> bool {
        self.words.iter().any(|word| word[0] == b'O' && word.len() > MAX_OPAQUE_BYTES)
    }

    /// Answers the flags that all commands answer in the same way.
    fn say_common(&self, reply: &mut Vec<u8>) {
        for word in self.words {
            self.say_one(word, self.is_binary_key, reply);
        }
        say(reply, "");
    }

    fn say_one(&self, word: &[u8], is_binary_key: bool, reply: &mut Vec<u8>) {
        match word[0] {
            b'O' => push_word(reply, word),
            b'k' => push_key(reply, &self.key, is_binary_key),
            _ => {}
        }
    }
}

/// Parses the key and the flags of mg, md and ma, and checks their limits. After an error the reply
/// is in `reply`.
fn read<'line>(
    words: &'line [&'line [u8]],
    too_many: &str,
    wrong: Option<&str>,
    reply: &mut Vec<u8>,
) -> Option<Request<'line>> {
    let why = match words {
        [_, key, flags @ ..] => {
            if key.len() > MAX_KEY_BYTES {
                BAD_FORMAT
            } else if words.len() >= MAX_WORDS {
                too_many
            } else {
                match Request::read(key, flags) {
                    Ok(request) if request.has_too_long_opaque() => TOO_LONG_OPAQUE,
                    Ok(request) => return Some(request),
                    Err(why) => wrong.unwrap_or(why),
                }
            }
        }
        _ => "ERROR",
    };
    say(reply, why);
    None
}

/// mg.
pub(crate) fn get(Line { connection, words, reply }: Line<'_, '_>) -> Result<()> {
    let too_many = "CLIENT_ERROR options flags are too long";
    let Some(request) = read(words, too_many, None, reply) else { return Ok(()) };
    let server = &connection.server;
    let clock = server.store.clock();
    let mut is_writing = request.seconds.or(request.new_seconds).is_some();
    is_writing |= request.renewal_seconds.is_some();
    let begin = reply.len();
    let mut is_hit = None;
    if !is_writing {
        let transaction = storage::begin(server, &request.key, Access::Shared)?;
        is_hit = item::look(&transaction, &request.key, |lent| {
            let Some((mut about, bytes)) = lent.item() else {
                return Some(false);
            };
            let is_won =
                show(&request, &mut about, bytes, false, clock, transaction.now_ms(), reply);
            (!is_won).then_some(true)
        })?;
        // The value is stale and no client renews it. That this client does so must be written.
        is_writing = is_hit.is_none();
    }
    if is_writing {
        reply.truncate(begin);
        let mut transaction = match request.new_seconds {
            Some(_) => storage::begin_storing(server, &request.key)?,
            None => storage::begin(server, &request.key, Access::Exclusive)?,
        };
        let now_ms = transaction.now_ms();
        let found = match item::find(&transaction, &request.key)? {
            Found::Item(about, bytes) => Some((about, bytes, false)),
            Found::Nothing if request.new_seconds.is_some() => {
                let about = About::fresh(server.store);
                Some((about, Vec::new(), true))
            }
            _ => None,
        };
        is_hit = Some(found.is_some());
        if let Some((former, bytes, is_new)) = found {
            let mut about = former;
            show(&request, &mut about, &bytes, is_new, clock, now_ms, reply);
            if is_new || about != former {
                item::put(&mut transaction, &request.key, &about, &bytes)?;
                transaction.commit()?;
            }
        }
    }
    let is_hit = is_hit == Some(true);
    connection.count_get(request.seconds.is_some(), is_hit);
    if !is_hit && !request.is_quiet {
        reply.extend_from_slice(b"EN");
        request.say_common(reply);
    }
    Ok(())
}

/// Answers mg with a value, and changes its properties as the flags require. Returns whether the
/// client won the right to renew it.
fn show(
    request: &Request<'_>,
    about: &mut About,
    bytes: &[u8],
    is_new: bool,
    clock: &Clock,
    now_ms: u64,
    reply: &mut Vec<u8>,
) -> bool {
    let expiry_of = |seconds: Option<i32>| expiry::expires_at(clock, now_ms, seconds.unwrap_or(0));
    if request.has_value {
        reply.extend_from_slice(b"VA ");
        push_number(reply, bytes.len() as u64);
    } else {
        reply.extend_from_slice(b"HD");
    }
    let mut is_won = false;
    for word in request.words {
        match word[0] {
            b'T' => about.expires_at = expiry_of(request.seconds),
            b'N' if is_new => {
                about.expires_at = expiry_of(request.new_seconds);
                is_won = true;
            }
            b'R' if !is_new && !about.marks.has(Marks::WON) => {
                let left = |at| expiry::seconds_left(at, now_ms);
                if let (Some(at), Some(limit)) =
                    (about.expires_at, expiry_of(request.renewal_seconds))
                {
                    is_won |= left(at) < left(limit);
                }
            }
            b's' => push_flag(reply, b's', bytes.len() as u64),
            b't' => push_time(reply, about.expires_at, now_ms),
            b'c' => push_flag(reply, b'c', about.cas),
            b'f' => push_flag(reply, b'f', u64::from(about.flags)),
            // Not kept, so the reply is that of a value that was never read.
            letter @ (b'l' | b'h') => push_flag(reply, letter, 0),
            _ => request.say_one(word, about.marks.has(Marks::BINARY_KEY), reply),
        }
    }
    let is_won_already = about.marks.has(Marks::WON);
    if is_won_already {
        reply.extend_from_slice(b" Z");
    }
    if about.marks.has(Marks::STALE) {
        reply.extend_from_slice(b" X");
        is_won |= !is_won_already;
    }
    if is_won {
        reply.extend_from_slice(b" W");
        about.marks = about.marks.with(Marks::WON);
    }
    say(reply, "");
    if request.has_value {
        reply.extend_from_slice(bytes);
        say(reply, "");
    }
    is_won
}

/// ms, up to its data.
pub(crate) fn set(Line { connection, words, reply }: Line<'_, '_>) -> Next {
    let server = &connection.server;
    let [_, key, bytes, flags @ ..] = words else {
        return Next::answered(reply, if words.len() == 2 { BAD_FORMAT } else { "ERROR" });
    };
    if key.len() > MAX_KEY_BYTES {
        return Next::answered(reply, BAD_FORMAT);
    }
    if words.len() >= MAX_WORDS {
        return Next::answered(reply, "CLIENT_ERROR options flags too long");
    }
    let Some(bytes) = parse::block_bytes(bytes) else {
        return Next::answered(reply, BAD_FORMAT);
    };
    // From here on the length of the data is known.
    let skip = |reply: &mut Vec<u8>, why: &str| {
        say(reply, why);
        Next::Skip(bytes + 2)
    };
    let request = match Request::read(key, flags) {
        Ok(request) => request,
        Err(why) => return skip(reply, why),
    };
    let mode = match (request.mode, request.cas) {
        (0 | b'S' | b'R', Some(_)) => Mode::Compare,
        (0 | b'S', None) => Mode::Set,
        (b'R', None) => Mode::Replace,
        (b'E', _) => Mode::Add,
        (b'A', _) => Mode::Append,
        (b'P', _) => Mode::Prepend,
        _ => return skip(reply, "CLIENT_ERROR invalid mode for ms M token"),
    };
    if request.has_too_long_opaque() {
        return skip(reply, TOO_LONG_OPAQUE);
    }
    if item::item_bytes(&request.key, request.flags, bytes) > server.state.max_item_bytes {
        connection.count(Counter::TooLarge);
        // The client wants to replace the old value, so it must not remain.
        if let Err(failure) = storage::delete(server, &request.key) {
            server_error(reply, &failure);
            return Next::Skip(bytes + 2);
        }
        return skip(reply, "SERVER_ERROR object too large for cache");
    }
    let clock = server.store.clock();
    let answered = flags.iter().filter(|word| matches!(word[0], b'O' | b'k' | b'c'));
    let answer = MetaAnswer {
        is_quiet: request.is_quiet,
        words: answered.copied().collect::<Vec<_>>().join(&b' '),
    };
    let seconds = request.seconds.unwrap_or(0);
    let write = Write {
        mode,
        flags: request.flags,
        expires_at: expiry::expires_at(clock, clock.now_ms(), seconds),
        cas: request.cas.unwrap_or(0),
        may_be_stale: request.is_invalidating,
        is_binary_key: request.is_binary_key,
        key: request.key.into_owned(),
    };
    Next::Block(Box::new(Block { write, bytes, answer: Answer::Meta(answer) }))
}

/// md.
pub(crate) fn delete(Line { connection, words, reply }: Line<'_, '_>) -> Result<()> {
    let too_many = "CLIENT_ERROR options flags too long";
    let Some(request) = read(words, too_many, Some(BAD_FLAG), reply) else { return Ok(()) };
    let server = &connection.server;
    let mut transaction = storage::begin(server, &request.key, Access::Exclusive)?;
    let status: &[u8; 2] = match item::find(&transaction, &request.key)? {
        Found::Item(about, _) if request.cas.is_some_and(|cas| cas != about.cas) => b"EX",
        Found::Item(mut about, bytes) => {
            if request.is_invalidating {
                if let Some(seconds) = request.seconds {
                    let clock = server.store.clock();
                    about.expires_at = expiry::expires_at(clock, transaction.now_ms(), seconds);
                }
                about.marks = about.marks.with(Marks::STALE).without(Marks::WON);
                about.cas = item::new_cas(server.store);
                item::put(&mut transaction, &request.key, &about, &bytes)?;
            } else {
                let space = transaction.space(item::DATABASE);
                transaction.remove_head(space, &request.key)?;
                connection.count(Counter::DeleteHits);
            }
            transaction.commit()?;
            b"HD"
        }
        _ => b"NF",
    };
    if status != b"HD" {
        connection.count(Counter::DeleteMisses);
    } else if request.is_quiet {
        return Ok(());
    }
    reply.extend_from_slice(status);
    request.say_common(reply);
    Ok(())
}

/// ma.
pub(crate) fn count(Line { connection, words, reply }: Line<'_, '_>) -> Result<()> {
    let too_many = "CLIENT_ERROR options flags too long";
    let Some(request) = read(words, too_many, Some(BAD_FLAG), reply) else { return Ok(()) };
    let is_up = match request.mode {
        0 | b'I' | b'+' => true,
        b'D' | b'-' => false,
        _ => {
            say(reply, "CLIENT_ERROR invalid mode for ma M token");
            return Ok(());
        }
    };
    let server = &connection.server;
    let mut transaction = storage::begin_storing(server, &request.key)?;
    let cas = request.cas.unwrap_or(0);
    let counted = storage::count(&transaction, &request.key, is_up, request.delta, cas)?;
    let (number, mut about, bytes, is_new) = match counted {
        Counted::Number(number, about, bytes) => (number, about, bytes, false),
        Counted::NotFound(Found::Nothing) if request.new_seconds.is_some() => {
            let about = About::fresh(server.store);
            (request.initial, about, request.initial.to_string().into_bytes(), true)
        }
        Counted::NotANumber => {
            say(reply, NOT_A_NUMBER);
            return Ok(());
        }
        Counted::NotFound(_) => {
            connection.count(counters::counter_of(is_up, false));
            reply.extend_from_slice(b"NF");
            request.say_common(reply);
            return Ok(());
        }
        Counted::Exists => {
            reply.extend_from_slice(b"EX");
            request.say_common(reply);
            return Ok(());
        }
    };
    let begin = reply.len();
    let (clock, now_ms) = (server.store.clock(), transaction.now_ms());
    let digits = number.to_string();
    if request.has_value {
        reply.extend_from_slice(b"VA ");
        push_number(reply, digits.len() as u64);
    } else {
        reply.extend_from_slice(b"HD");
    }
    for word in request.words {
        let expiry_of =
            |seconds: Option<i32>| expiry::expires_at(clock, now_ms, seconds.unwrap_or(0));
        match word[0] {
            b'c' => push_flag(reply, b'c', about.cas),
            b't' => push_time(reply, about.expires_at, now_ms),
            b'T' => about.expires_at = expiry_of(request.seconds),
            b'N' if is_new => about.expires_at = expiry_of(request.new_seconds),
            _ => request.say_one(word, request.is_binary_key, reply),
        }
    }
    say(reply, "");
    if request.has_value {
        say(reply, &digits);
    }
    item::put(&mut transaction, &request.key, &about, &bytes)?;
    transaction.commit()?;
    if !is_new {
        connection.count(counters::counter_of(is_up, true));
        if request.is_quiet {
            reply.truncate(begin);
        }
    }
    Ok(())
}

/// me: the properties of a value. There are no slabs, so its class is always 1.
pub(crate) fn debug(Line { connection, words, reply }: Line<'_, '_>) -> Result<()> {
    let key = match words {
        [_, key, ..] if key.len() > MAX_KEY_BYTES => None,
        [_, key, flag, ..] if *flag == b"b" => base64::decode(key).map(Cow::Owned),
        [_, key, ..] => Some(Cow::Borrowed(*key)),
        _ => None,
    };
    let Some(key) = key else {
        say(reply, BAD_FORMAT);
        return Ok(());
    };
    connection.count(Counter::Meta);
    let transaction = storage::begin(&connection.server, &key, Access::Shared)?;
    item::look(&transaction, &key, |lent| {
        let Some((about, bytes)) = lent.item() else {
            say(reply, "EN");
            return;
        };
        reply.extend_from_slice(b"ME ");
        if about.marks.has(Marks::BINARY_KEY) {
            base64::encode(&key, reply);
        } else {
            reply.extend_from_slice(&key);
        }
        let expires_at = match about.expires_at {
            None => "-1".to_owned(),
            Some(at) => format!("-{}", expiry::seconds_left(at, transaction.now_ms())),
        };
        let size = item::item_bytes(&key, about.flags, bytes.len());
        let cas = about.cas;
        say(reply, &format!(" exp={expires_at} la=0 cas={cas} fetch=no cls=1 size={size}"));
    })
}
