//! The rules of one user, as Redis's ACL writes them: `on >password ~cached:* +@read -get`.
//!
//! Rules about commands are kept in their order beside the set of allowed commands, because a later
//! rule overrides an earlier one. A rule that a later one makes meaningless is dropped, so the list
//! stays short.

use std::fmt::Write;

use pando_net::access::{Access, KeyPattern, Rights, hash};

use super::access;
use crate::catalog::{Catalog, Listed};
use crate::categories::{CATEGORIES, is_in};
use crate::spec::{Arguments, Spec, flags};

/// The most rules of one kind. It bounds the memory of a user's rules.
const MOST: usize = 4096;
const WRONG_SYNTAX: &str = "Syntax error";
const UNKNOWN: &str = "Unknown command or category name in ACL";

/// A user with these rules.
pub(crate) type User = pando_net::access::User<Words>;
/// The rights of one user.
pub(crate) type Rules = Rights<Words>;

/// The reason why a command may not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The command itself.
    Command,
    /// The key at this index of its arguments.
    Key(usize),
}

/// The data that ACL LIST and the file of users need in addition to the rights.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    /// Whether RESTORE checks its argument closely. It has no effect; it is kept for the file of
    /// users.
    sanitize: Option<bool>,
    /// Whether commands without a rule are allowed.
    allows_rest: bool,
    /// The rules about commands, with their signs.
    commands: Vec<String>,
    allows_all_channels: bool,
    channels: Vec<Vec<u8>>,
}

/// The rules of the default user of a new server: everything is allowed, without a password.
pub(crate) fn everything(catalog: &Catalog) -> Rules {
    let mut rules = Rules { is_on: true, ..Rules::default() };
    rules.passwords.clear(true);
    rules.grants.set_all_keys(true);
    rules.words.allows_all_channels = true;
    set_all_commands(&mut rules, catalog, true);
    rules
}

fn set_all_commands(rules: &mut Rules, catalog: &Catalog, is_allowed: bool) {
    rules.words.allows_rest = is_allowed;
    rules.words.commands.clear();
    rules.grants.set_all_commands(is_allowed, catalog.listed().count());
}

/// Applies one more rule.
///
/// # Errors
///
/// The reason in Redis's words, if it is not a rule.
pub(crate) fn apply(rules: &mut Rules, catalog: &Catalog, rule: &[u8]) -> Result<(), String> {
    let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
    let Rights { is_on, passwords, grants, words } = rules;
    match rule {
        _ if is("on") => *is_on = true,
        _ if is("off") => *is_on = false,
        _ if is("nopass") => passwords.clear(true),
        _ if is("resetpass") => passwords.clear(false),
        _ if is("sanitize-payload") => words.sanitize = Some(true),
        _ if is("skip-sanitize-payload") => words.sanitize = Some(false),
        _ if is("allkeys") || is("~*") => grants.set_all_keys(true),
        _ if is("resetkeys") => grants.set_all_keys(false),
        _ if is("allchannels") || is("&*") => set_all_channels(words, true),
        _ if is("resetchannels") => set_all_channels(words, false),
        _ if is("allcommands") || is("+@all") => set_all_commands(rules, catalog, true),
        _ if is("nocommands") || is("-@all") => set_all_commands(rules, catalog, false),
        _ if is("clearselectors") => {}
        _ if is("reset") => {
            *rules = Rules::default();
            rules.words.sanitize = Some(true);
        }
        [b'>', password @ ..] => add_password(rules, hash(password))?,
        [b'#', hash @ ..] => add_password(rules, checked_hash(hash)?)?,
        [b'<', password @ ..] => remove_password(rules, &hash(password))?,
        [b'!', hash @ ..] => remove_password(rules, &checked_hash(hash)?)?,
        [b'~', pattern @ ..] => add_keys(rules, pattern, access::BOTH)?,
        [b'%', rest @ ..] => {
            let (letters, pattern) = split_once(rest, b'~').ok_or(WRONG_SYNTAX)?;
            let has = |letter: u8| letters.iter().any(|byte| byte.eq_ignore_ascii_case(&letter));
            let known = |byte: &u8| matches!(byte.to_ascii_uppercase(), b'R' | b'W');
            if letters.is_empty() || !letters.iter().all(known) {
                return Err(WRONG_SYNTAX.into());
            }
            add_keys(rules, pattern, Access { reads: has(b'R'), writes: has(b'W') })?;
        }
        [b'&', pattern @ ..] => add_channel(words, pattern)?,
        [b'+', name @ ..] => add_command(rules, catalog, name, true)?,
        [b'-', name @ ..] => add_command(rules, catalog, name, false)?,
        [b'(', ..] => {
            return Err("selectors are not supported; write the rules without parentheses, or \
                        create another user"
                .into());
        }
        _ => return Err(WRONG_SYNTAX.into()),
    }
    Ok(())
}

fn set_all_channels(words: &mut Words, is_allowed: bool) {
    words.allows_all_channels = is_allowed;
    words.channels.clear();
}

fn add_password(rules: &mut Rules, hash: String) -> Result<(), String> {
    if !rules.passwords.hashes().contains(&hash) {
        check_room(rules.passwords.hashes())?;
    }
    rules.passwords.add(hash);
    Ok(())
}

fn remove_password(rules: &mut Rules, hash: &str) -> Result<(), String> {
    match rules.passwords.remove(hash) {
        true => Ok(()),
        false => Err("The password you are trying to remove from the user does not exist".into()),
    }
}

fn add_keys(rules: &mut Rules, pattern: &[u8], access: Access) -> Result<(), String> {
    let grants = &mut rules.grants;
    if grants.has_all_keys() {
        return Err("Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid \
                    and does not have any effect. Try 'resetkeys' to start with an empty list of \
                    patterns"
            .into());
    }
    check_pattern(pattern)?;
    if pattern == b"*" && access == access::BOTH {
        grants.set_all_keys(true);
        return Ok(());
    }
    check_room(grants.keys())?;
    grants.add_keys(pattern, access);
    Ok(())
}

fn add_channel(words: &mut Words, pattern: &[u8]) -> Result<(), String> {
    if words.allows_all_channels {
        return Err(
            "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid \
                    and does not have any effect. Try 'resetchannels' to start with an empty list \
                    of channels"
                .into(),
        );
    }
    check_pattern(pattern)?;
    check_room(&words.channels)?;
    if !words.channels.iter().any(|known| known == pattern) {
        words.channels.push(pattern.to_vec());
    }
    Ok(())
}

fn add_command(
    rules: &mut Rules,
    catalog: &Catalog,
    name: &[u8],
    is_allowed: bool,
) -> Result<(), String> {
    let said = std::str::from_utf8(name).map_err(|_| UNKNOWN)?;
    let name = said.to_ascii_lowercase();
    let category = name.strip_prefix('@');
    if category.is_some_and(|category| !CATEGORIES.contains(&category)) {
        return Err(UNKNOWN.into());
    }
    let is_meant = |listed: &Listed| match category {
        Some(category) => is_in(*listed, category),
        None => listed.name() == name || listed.parent.is_some_and(|parent| parent.name == name),
    };
    let meant: Vec<Listed> = catalog.listed().filter(is_meant).collect();
    if meant.is_empty() && category.is_none() {
        return add_first_argument(rules, catalog, said, is_allowed);
    }
    for listed in meant {
        if rules.grants.set_command(catalog.number_of(listed.command), is_allowed) {
            let parts = format!("+{}|", listed.name());
            rules.words.commands.retain(|known| !known.starts_with(&parts));
        }
    }
    // The new rule overrides earlier rules about the same command or its subcommands.
    let (commands, parts) = (&mut rules.words.commands, format!("{name}|"));
    commands.retain(|known| known[1..] != name && !known[1..].starts_with(&parts));
    check_room(commands)?;
    commands.push(format!("{}{name}", if is_allowed { '+' } else { '-' }));
    Ok(())
}

/// Applies `+command|argument` for a command without subcommands: it may run with that first
/// argument.
fn add_first_argument(
    rules: &mut Rules,
    catalog: &Catalog,
    said: &str,
    is_allowed: bool,
) -> Result<(), String> {
    let (name, argument) = said.rsplit_once('|').ok_or(UNKNOWN)?;
    let name = name.to_ascii_lowercase();
    let found = catalog.listed().find(|listed| listed.name() == name).filter(|_| is_allowed);
    let Some(listed) = found else { return Err(UNKNOWN.into()) };
    if listed.parent.is_some() {
        return Err("Allowing first-arg of a subcommand is not supported".into());
    }
    if listed.command.has_subcommands {
        return Err(UNKNOWN.into());
    }
    if argument.is_empty() {
        return Err(WRONG_SYNTAX.into());
    }
    // A command that may run with all arguments needs no such rule.
    if rules.grants.add_first_argument(catalog.number_of(listed.command), argument) {
        check_room(&rules.words.commands)?;
        rules.words.commands.push(format!("+{name}|{argument}"));
    }
    Ok(())
}

/// Whether a user may run a command with these arguments.
#[inline]
pub(crate) fn check(
    user: &User,
    catalog: &Catalog,
    command: &'static Spec,
    arguments: &Arguments<'_>,
) -> Result<(), Denied> {
    if user.is_unrestricted() {
        return Ok(());
    }
    user.with_rights(|Rights { grants, .. }| {
        let first_argument = arguments.get(1).copied();
        if !command.flags.has(flags::NO_AUTH)
            && !grants.may_run(catalog.number_of(command), first_argument)
        {
            return Err(Denied::Command);
        }
        if grants.has_all_keys() {
            return Ok(());
        }
        let is_denied = |place: &usize| {
            !grants.may_use(arguments[*place], access::of(command, arguments, *place))
        };
        match command.keys.places(arguments).find(is_denied) {
            Some(place) => Err(Denied::Key(place)),
            None => Ok(()),
        }
    })
}

/// The flags in the reply of ACL GETUSER.
pub(crate) fn marks(rules: &Rules) -> Vec<&'static str> {
    let mut marks = vec![if rules.is_on { "on" } else { "off" }];
    if rules.passwords.is_none_needed() {
        marks.push("nopass");
    }
    match rules.words.sanitize {
        Some(true) => marks.push("sanitize-payload"),
        Some(false) => marks.push("skip-sanitize-payload"),
        None => {}
    }
    marks
}

/// The rules about commands.
pub(crate) fn describe_commands(rules: &Rules) -> String {
    let mut text = if rules.words.allows_rest { "+@all" } else { "-@all" }.to_owned();
    for rule in &rules.words.commands {
        let _ = write!(text, " {rule}");
    }
    text
}

/// The rules about keys.
pub(crate) fn describe_keys(rules: &Rules) -> Vec<u8> {
    if rules.grants.has_all_keys() {
        return b"~*".to_vec();
    }
    let each = rules.grants.keys().iter().map(|KeyPattern { pattern, access }| {
        let sign: &[u8] = match (access.reads, access.writes) {
            (true, true) => b"~",
            (true, false) => b"%R~",
            _ => b"%W~",
        };
        [sign, pattern].concat()
    });
    each.collect::<Vec<_>>().join(&b' ')
}

/// The rules about channels.
pub(crate) fn describe_channels(rules: &Rules) -> Vec<u8> {
    if rules.words.allows_all_channels {
        return b"&*".to_vec();
    }
    let each = rules.words.channels.iter().map(|pattern| [b"&", &pattern[..]].concat());
    each.collect::<Vec<_>>().join(&b' ')
}

/// All rules, in the form of ACL LIST.
pub(crate) fn describe(rules: &Rules) -> String {
    let mut text = marks(rules).join(" ");
    for password in rules.passwords.hashes() {
        let _ = write!(text, " #{password}");
    }
    let mut push = |words: &[u8]| {
        if !words.is_empty() {
            let _ = write!(text, " {}", String::from_utf8_lossy(words));
        }
    };
    push(&describe_keys(rules));
    if !rules.words.allows_all_channels {
        push(b"resetchannels");
    }
    push(&describe_channels(rules));
    push(describe_commands(rules).as_bytes());
    text
}

/// Joins the words of each rule in parentheses, which clients may send as several words.
///
/// # Errors
///
/// A parenthesis without its end, and the error text.
pub(super) fn join_selectors(rules: &[&[u8]]) -> Result<Vec<Vec<u8>>, (Vec<u8>, String)> {
    let mut joined: Vec<Vec<u8>> = Vec::new();
    let mut open: Option<Vec<u8>> = None;
    for rule in rules {
        match &mut open {
            Some(selector) => {
                selector.push(b' ');
                selector.extend_from_slice(rule);
            }
            None if rule.first() == Some(&b'(') => open = Some(rule.to_vec()),
            None => joined.push(rule.to_vec()),
        }
        if rule.last() == Some(&b')') {
            joined.extend(open.take());
        }
    }
    match open {
        Some(selector) => Err((selector, "Unmatched parenthesis in acl selector".into())),
        None => Ok(joined),
    }
}

fn check_room<Rule>(rules: &[Rule]) -> Result<(), String> {
    if rules.len() < MOST {
        Ok(())
    } else {
        Err(format!("a user has at most {MOST} rules of one kind"))
    }
}

fn check_pattern(pattern: &[u8]) -> Result<(), String> {
    let is_bad = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0;
    if pattern.iter().any(is_bad) { Err(WRONG_SYNTAX.into()) } else { Ok(()) }
}

fn checked_hash(hash: &[u8]) -> Result<String, String> {
    let is_right = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    if hash.len() == 64 && hash.iter().all(is_right) {
        return Ok(String::from_utf8_lossy(hash).into_owned());
    }
    Err("The password hash must be exactly 64 characters and contain only lowercase hexadecimal \
         characters"
        .into())
}

fn split_once(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = bytes.iter().position(|&byte| byte == at)?;
    Some((&bytes[..place], &bytes[place + 1..]))
}
