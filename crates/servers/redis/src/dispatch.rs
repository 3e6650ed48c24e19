//! From a request to its reply: finds the command, checks it, locks its keys, runs it, commits.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pando_keyspace::failure::{Failure, NO_MEMORY, Result, WRONG_TYPE, fail, fail_with};
use pando_keyspace::layout::{Content, MAX_NAME_BYTES};
use pando_keyspace::stripes::{Access, Held, StripeIndex};
use pando_keyspace::{LogSync, Store, Transaction};
use pando_net::stats::Count;
use pando_net::web_request;
use smallvec::SmallVec;

use crate::catalog::kind_of;
use crate::clients::Pause;
use crate::commands::{self, Command, Context};
use crate::config;
use crate::resp::reply::Reply;
use crate::server::Server;
use crate::session::{Replies, Session};
use crate::spec::{Arguments, Keys, Spec, flags};

/// The longest reply of a transaction, in bytes.
const MAX_TRANSACTION_REPLY_BYTES: usize = 1 << 30;

/// Executes a request. When it returns, `reply` has the reply, and the effects survive the death of
/// the process. In a pool with a log, `session.written` has the place of the reply, if it may have
/// to wait for the log.
pub(crate) fn execute(
    server: &Server,
    session: &mut Session,
    arguments: &Arguments<'_>,
    reply: &mut Reply,
) {
    if arguments.is_empty() {
        return;
    }
    let begin = reply.len();
    // If requests are executed together, each begins when the one before it ends.
    let begun_at = session.done_at.unwrap_or_else(Instant::now);
    session.running = None;
    session.may_write = false;
    let tried = try_execute(server, session, arguments, reply);
    if let Err(failure) = &tried {
        reply.truncate(begin);
        let words = failure.to_string();
        reply.error(&words);
        server.stats.note_error(&words);
    }
    if session.replies != Replies::On {
        reply.truncate(begin);
        session.replies = match session.replies {
            Replies::SkipThisAndNext => Replies::SkipThis,
            Replies::SkipThis => Replies::On,
            other => other,
        };
        if let Some(wait) = &mut session.wait {
            wait.is_answered = false;
        }
    }
    if session.may_write && tried.is_ok() && server.store.log().is_some() {
        session.written.push(begin..reply.len());
        session.has_unsynced = true;
    }
    let done_at = Instant::now();
    session.done_at = Some(done_at);
    if let Some(command) = session.running {
        let took = done_at.duration_since(begun_at);
        note_call(server, command, took, tried.is_err());
        note_if_slow(server, session, command, arguments, took);
    }
}

/// The most requests that are executed together.
pub(crate) const MAX_TOGETHER: usize = 16;

/// A kind of requests that can be executed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    /// Each is a GET.
    Gets,
    /// Each writes one key.
    Writes,
}

/// The kind of a request that can be executed together with others of its kind. The request must be
/// simple, its client must be allowed to send it, and replies must be on.
#[inline]
pub(crate) fn together(
    server: &Server,
    session: &Session,
    arguments: &Arguments<'_>,
) -> Option<Together> {
    let is_free = session.multi.is_none() && session.replies == Replies::On;
    let is_allowed = session.may_speak(server) && session.user.is_unrestricted();
    let [name, key, ..] = arguments else { return None };
    if !is_free || !is_allowed || key.len() > MAX_NAME_BYTES {
        return None;
    }
    if name.eq_ignore_ascii_case(b"get") {
        return (arguments.len() == 2).then_some(Together::Gets);
    }
    let command = commands::find(name)?;
    let is_simple = command.takes(arguments.len())
        && command.subcommands.is_empty()
        && command.keys == Keys::Range(1, 1, 1)
        && command.flags.has(flags::WRITE)
        && !command.flags.has(flags::WHOLE)
        && !command.flags.has(flags::NO_MULTI)
        && !command.flags.has(flags::NOT_QUEUED);
    is_simple.then_some(Together::Writes)
}

/// Executes requests that arrived together until `reply` has `send_bytes`, and returns their
/// number.
pub(crate) fn execute_together(
    server: &Server,
    session: &mut Session,
    what: Together,
    requests: &[&Arguments<'_>],
    reply: &mut Reply,
    send_bytes: usize,
) -> usize {
    if let [arguments] = requests {
        execute(server, session, arguments, reply);
        return 1;
    }
    let keys: SmallVec<[&[u8]; MAX_TOGETHER]> =
        requests.iter().map(|arguments| arguments[1]).collect();
    match what {
        Together::Gets => execute_gets(server, session, &keys, reply, send_bytes),
        Together::Writes => {
            server.store.warm(session.database, &keys);
            let mut done = 0;
            for arguments in requests {
                execute(server, session, arguments, reply);
                done += 1;
                if reply.len() >= send_bytes || is_disk_behind(server) {
                    break;
                }
            }
            done
        }
    }
}

/// Executes several GET, so that their cache misses overlap, and returns their number. Each is a
/// separate command; all see the same state.
fn execute_gets(
    server: &Server,
    session: &mut Session,
    keys: &[&[u8]],
    reply: &mut Reply,
    send_bytes: usize,
) -> usize {
    let Some(get) = commands::find(b"get") else { return 0 };
    let begun_at = session.done_at.unwrap_or_else(Instant::now);
    session.client.note_command(get);
    let begin = reply.len();
    let (mut done, mut failed) = (0, 0);
    let tried = (|| {
        let stripes = keys.iter().map(|key| Store::stripe_of_key(key)).collect();
        let held = server.store.lock(stripes, Access::Shared)?;
        let transaction = server.store.begin(held, server.store.clock().now_ms());
        let space = transaction.space(session.database);
        transaction.heads(space, keys, |head| {
            match head.map(|head| head.content) {
                Some(Content::String(bytes)) => reply.bulk(bytes),
                Some(Content::Long(long)) => commands::reply_long(&transaction, reply, long)?,
                Some(Content::Collection(..)) => {
                    failed += 1;
                    let words = WRONG_TYPE.to_string();
                    server.stats.note_error(&words);
                    reply.error(&words);
                }
                None => reply.null(),
            }
            done += 1;
            Ok(reply.len() < send_bytes)
        })?;
        note_lookups(server, get, &transaction);
        Ok::<_, Failure>(())
    })();
    if let Err(failure) = tried {
        reply.truncate(begin);
        (done, failed) = (keys.len(), keys.len());
        let words = failure.to_string();
        for _ in keys {
            server.stats.note_error(&words);
            reply.error(&words);
        }
    }
    let done_at = Instant::now();
    session.done_at = Some(done_at);
    let took = done_at.duration_since(begun_at) / done.max(1) as u32;
    for (index, key) in keys[..done].iter().enumerate() {
        note_call(server, get, took, index < failed);
        note_if_slow(server, session, get, &[b"get", key], took);
    }
    done
}

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// CLIENT PAUSE.
    Pause,
    /// The disk of the log, which is slower than the writers.
    Disk,
}

/// What a request must wait for before it is executed.
#[inline]
pub(crate) fn obstacle(
    server: &Server,
    session: &Session,
    arguments: &Arguments<'_>,
) -> Option<Obstacle> {
    match server.clients.paused() {
        Pause::All => return Some(Obstacle::Pause),
        Pause::Writes if may_write(session, arguments) => return Some(Obstacle::Pause),
        Pause::Writes | Pause::None => {}
    }
    (is_disk_behind(server) && may_write(session, arguments)).then_some(Obstacle::Disk)
}

/// Whether writes wait for the disk of the log.
#[inline]
pub(crate) fn is_disk_behind(server: &Server) -> bool {
    server.store.log().is_some_and(LogSync::is_behind)
}

/// Whether a request may write.
fn may_write(session: &Session, arguments: &Arguments<'_>) -> bool {
    let writes = |command: &Spec| command.flags.has(flags::WRITE) && command.name != "watch";
    let named = arguments.first().and_then(|name| commands::find(name));
    named.is_some_and(|command| {
        let queued = session.multi.iter().flat_map(|multi| &multi.commands);
        let is_exec = command.name == "exec";
        writes(command) || is_exec && queued.into_iter().any(|(command, _)| writes(command))
    })
}

/// Counts a command that was executed or failed.
#[inline]
fn note_call(server: &Server, command: &'static Spec, took: Duration, has_failed: bool) {
    let (number, kind) = (server.catalog.number_of(command), kind_of(command));
    server.stats.note_call(number, kind, took, has_failed);
}

/// Adds a slow command to the slow log.
#[inline]
fn note_if_slow(
    server: &Server,
    session: &Session,
    command: &Spec,
    arguments: &Arguments<'_>,
    took: Duration,
) {
    let Ok(least) = u64::try_from(server.config.number(config::SLOW_LOG_SLOWER_THAN)) else {
        return;
    };
    let microseconds = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    if microseconds >= least && !command.flags.has(flags::SKIP_SLOWLOG) {
        let who = (session.client.address.peer.clone(), session.client.name());
        let most = server.config.size(config::SLOW_LOG_MAX_LEN);
        server.slow_log.note(arguments, microseconds, who, most);
    }
}

/// Refuses a command that the client may not run.
#[inline]
fn admit(
    server: &Server,
    session: &Session,
    command: &'static Spec,
    arguments: &Arguments<'_>,
) -> Result<()> {
    if !session.is_known && server.acl.needs_password() && !command.flags.has(flags::NO_AUTH) {
        return Err(fail("NOAUTH Authentication required."));
    }
    if session.user.is_unrestricted() {
        return Ok(());
    }
    commands::admit(server, session, command, arguments, false)
}

/// Counts the hits and misses of a command that reads.
#[inline]
fn note_lookups(server: &Server, command: &Spec, transaction: &Transaction<'_>) {
    let lookups = transaction.take_lookups();
    if !command.flags.has(flags::WRITE) {
        server.stats.add(Count::Hits, u64::from(lookups.found));
        server.stats.add(Count::Misses, u64::from(lookups.missed));
    }
}

fn try_execute(
    server: &Server,
    session: &mut Session,
    arguments: &Arguments<'_>,
    reply: &mut Reply,
) -> Result<()> {
    let command = match find(arguments) {
        Ok(command) => command,
        Err(_) if web_request::is_one(arguments) => {
            server.web_request_alarm.raise(&session.client.address.peer);
            session.is_closing = true;
            return Ok(());
        }
        Err(failure) => {
            return Err(refuse(
                session,
                commands::find(arguments[0]).map(|command| &command.spec),
                failure,
            ));
        }
    };
    session.client.note_command(command);
    session.running = Some(command);
    if let Err(failure) = admit(server, session, command, arguments) {
        session.running = None;
        server.stats.note_rejected(server.catalog.number_of(command));
        return Err(refuse(session, Some(command), failure));
    }
    session.running = None;
    if let Some(multi) = &mut session.multi {
        if command.flags.has(flags::NO_MULTI) && !command.flags.has(flags::NOT_QUEUED) {
            multi.is_refused = true;
            return Err(fail("ERR Command not allowed inside a transaction"));
        }
        // Queued commands take memory. (SLOWLOG RESET is queued; RESET is not.)
        let may_end = command.flags.has(flags::NOT_QUEUED)
            && matches!(command.name, "exec" | "discard" | "quit" | "reset");
        let room = if may_end { Ok(true) } else { server.store.make_room() };
        if !matches!(room, Ok(true)) {
            multi.is_refused = true;
            return Err(room.err().unwrap_or(NO_MEMORY));
        }
        if !command.flags.has(flags::NOT_QUEUED) {
            let words = arguments.iter().map(|argument| argument.to_vec()).collect();
            multi.bytes +=
                arguments.iter().map(|one| one.len() + size_of::<Vec<u8>>()).sum::<usize>();
            multi.commands.push((&command.spec, words));
            session.client.note_queued(Some((multi.commands.len(), multi.bytes)));
            reply.simple("QUEUED");
            return Ok(());
        }
        session.running = Some(command);
        if command.name == "exec" {
            let database = session.database;
            let executed = execute_queued(server, session, reply);
            if executed.is_err() {
                // None of its writes has taken place, so its SELECT has not either.
                session.select(database);
            }
            return executed;
        }
    }
    session.running = Some(command);
    let mut stripes = SmallVec::new();
    let access = note_stripes(command, arguments, &mut stripes)?;
    if command.flags.has(flags::DENYOOM) && !server.store.make_room()? {
        return Err(NO_MEMORY);
    }
    // WATCH notes itself whether it writes.
    let is_watch = command.name == "watch";
    session.may_write = access == Some(Access::Exclusive) && !is_watch;
    let held = match is_watch {
        true => server.store.lock_to_watch(stripes)?,
        false => lock(server, access, stripes)?,
    };
    let mut transaction = server.store.begin(held, server.store.clock().now_ms());
    let space = transaction.space(session.database);
    let mut context = Context { server, session, transaction: &mut transaction, reply, space };
    let ran = commands::run(command, &mut context, arguments);
    note_lookups(server, command, &transaction);
    ran?;
    transaction.commit()
}

/// The error reply for a command that is refused before it runs. EXEC of its transaction will then
/// fail. A refused EXEC ends the transaction.
fn refuse(session: &mut Session, command: Option<&Spec>, failure: Failure) -> Failure {
    if command.is_none_or(|command| command.name != "exec") {
        if let Some(multi) = &mut session.multi {
            multi.is_refused = true;
        }
        return failure;
    }
    session.end_transaction();
    let why = failure.to_string();
    let why = why.strip_prefix("ERR ").unwrap_or(&why);
    fail_with(format!("EXECABORT Transaction discarded because of: {why}"))
}

/// Finds the command or subcommand that `arguments` names, and checks the number of arguments.
fn find(arguments: &Arguments<'_>) -> Result<&'static Command> {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(128)]).into_owned();
    let Some(command) = commands::find(arguments[0]) else {
        let mut rest = String::new();
        for argument in &arguments[1..] {
            if rest.len() >= 128 {
                break;
            }
            rest.push_str(&format!("'{}' ", shown(argument)));
        }
        return Err(fail_with(format!(
            "ERR unknown command '{}', with args beginning with: {rest}",
            shown(arguments[0])
        )));
    };
    let wrong_number =
        |name: String| fail_with(format!("ERR wrong number of arguments for '{name}' command"));
    if !command.subcommands.is_empty()
        && let Some(name) = arguments.get(1)
    {
        let lower = name.to_ascii_lowercase();
        let Some(subcommand) =
            command.subcommands.iter().find(|subcommand| subcommand.name.as_bytes() == lower)
        else {
            return Err(fail_with(format!(
                "ERR unknown subcommand '{}'. Try {} HELP.",
                shown(name),
                command.name.to_uppercase()
            )));
        };
        if !subcommand.takes(arguments.len()) {
            return Err(wrong_number(format!("{}|{}", command.name, subcommand.name)));
        }
        return Ok(subcommand);
    }
    if !command.takes(arguments.len()) {
        return Err(wrong_number(command.name.to_owned()));
    }
    Ok(command)
}

/// Adds the stripes that a command must lock to `stripes`, and returns how to lock them; `None`
/// without stripes.
fn note_stripes(
    command: &Spec,
    arguments: &Arguments<'_>,
    stripes: &mut SmallVec<[StripeIndex; 4]>,
) -> Result<Option<Access>> {
    for place in command.keys.places(arguments) {
        let key = arguments[place];
        if key.len() > MAX_NAME_BYTES {
            return Err(fail_with(format!(
                "ERR a key has {} bytes; at most {MAX_NAME_BYTES} are allowed",
                key.len()
            )));
        }
        stripes.push(Store::stripe_of_key(key));
    }
    if command.flags.has(flags::WHOLE) {
        stripes.extend(0..pando_keyspace::stripes::STRIPES as StripeIndex);
        return Ok(Some(Access::Exclusive));
    }
    Ok(match (stripes.is_empty(), command.flags.has(flags::WRITE)) {
        (true, _) => None,
        (false, true) => Some(Access::Exclusive),
        (false, false) => Some(Access::Shared),
    })
}

/// Locks stripes. Pending writes are executed first.
pub(crate) fn lock(
    server: &Server,
    access: Option<Access>,
    stripes: SmallVec<[StripeIndex; 4]>,
) -> Result<Held<'_>> {
    let Some(access) = access else { return Ok(Held::none()) };
    server.store.lock(stripes, access)
}

/// EXEC: executes the queued commands in one transaction.
fn execute_queued(server: &Server, session: &mut Session, reply: &mut Reply) -> Result<()> {
    let multi = session.multi.take().unwrap_or_default();
    session.client.note_queued(None);
    let (watched, changed) = session.take_watched();
    if multi.is_refused {
        return Err(fail("EXECABORT Transaction discarded because of previous errors."));
    }
    let mut stripes = SmallVec::new();
    let mut access = None;
    for (command, words) in &multi.commands {
        let arguments: SmallVec<[&[u8]; 8]> = words.iter().map(Vec::as_slice).collect();
        match note_stripes(command, &arguments, &mut stripes)? {
            Some(Access::Exclusive) => access = Some(Access::Exclusive),
            found => access = access.or(found),
        }
    }
    // Watched keys are checked while they are locked.
    stripes.extend(watched.iter().map(|(_, key)| Store::stripe_of_key(key)));
    if access.is_none() && !stripes.is_empty() {
        access = Some(Access::Shared);
    }
    let needs_memory = multi.commands.iter().any(|(command, _)| command.flags.has(flags::DENYOOM));
    if needs_memory && !server.store.make_room()? {
        return Err(fail_with(format!("EXECABORT Transaction discarded because of: {NO_MEMORY}")));
    }
    session.may_write = access == Some(Access::Exclusive);
    let held = lock(server, access, stripes)?;
    let mut transaction = server.store.begin(held, server.store.clock().now_ms());
    transaction.gather_commands();
    // Relaxed: the flag is set by threads that hold locks of these stripes.
    let mut is_changed = changed.is_some_and(|changed| changed.load(Ordering::Relaxed));
    for (database, key) in &watched {
        // A watched key that has expired since counts as changed, whether it was swept or not.
        is_changed = is_changed || transaction.is_overdue(transaction.space(*database), key)?;
    }
    if is_changed {
        reply.null_array();
        return Ok(());
    }
    reply.array(multi.commands.len());
    let mut begun_at = Instant::now();
    for (command, words) in &multi.commands {
        let arguments: SmallVec<[&[u8]; 8]> = words.iter().map(Vec::as_slice).collect();
        let begin = reply.len();
        if begin > MAX_TRANSACTION_REPLY_BYTES {
            return Err(fail(
                "ERR the replies of the transaction are longer than 1 GiB; the transaction was undone",
            ));
        }
        if !session.user.is_unrestricted()
            && let Err(failure) = commands::admit(server, session, command, &arguments, true)
        {
            let words = failure.to_string();
            server.stats.note_error(&words);
            reply.error(&words);
            continue;
        }
        let space = transaction.space(session.database);
        let mut context = Context { server, session, transaction: &mut transaction, reply, space };
        let ran = commands::run(commands::described(command), &mut context, &arguments);
        note_lookups(server, command, &transaction);
        let done_at = Instant::now();
        note_call(server, command, done_at.duration_since(begun_at), ran.is_err());
        begun_at = done_at;
        match ran {
            Ok(()) => {}
            Err(failure @ Failure::Reply(_)) => {
                let words = failure.to_string();
                server.stats.note_error(&words);
                reply.truncate(begin);
                reply.error(&words);
            }
            // An error of the store undoes the whole transaction.
            Err(failure) => return Err(failure),
        }
    }
    transaction.commit()
}
