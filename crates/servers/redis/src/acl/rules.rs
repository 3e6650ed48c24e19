//! What one user may do, and the words that say so: `on >password ~cached:* +@read -get`.
//!
//! Rules about commands are kept in the order in which they were said, since a later one counts
//! more, and beside them the set of commands that they come to. What a rule makes meaningless is
//! dropped, so that the list stays short.

use std::collections::HashSet;
use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::access;
use crate::catalog::{Catalog, Listed};
use crate::categories::{CATEGORIES, is_in};
use crate::glob;
use crate::spec::{Arguments, Spec, flags};

/// Most rules of one sort, so that no user's take memory without bound.
const MOST: usize = 4096;

/// Why a command may not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The command itself.
    Command,
    /// The key at this place among its arguments.
    Key(usize),
}

/// Keys that may be used, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    pattern: Vec<u8>,
    may_read: bool,
    may_write: bool,
}

/// What a user may do.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    catalog: &'static Catalog,
    is_on: bool,
    /// Any password is right.
    needs_no_password: bool,
    /// Whether RESTORE is to look closely at what it is given; said and kept for the sake of files.
    sanitize: Option<bool>,
    /// In hexadecimal.
    passwords: Vec<String>,
    /// Of commands that no rule names.
    allows_rest: bool,
    /// With their signs.
    commands: Vec<String>,
    /// Of the commands that there are, by their place in memory, what may run.
    allowed: HashSet<usize>,
    /// Of commands that may not run otherwise, first arguments with which they may (`+select|0`).
    first_arguments: Vec<(usize, String)>,
    allows_all_keys: bool,
    keys: Vec<KeyPattern>,
    allows_all_channels: bool,
    channels: Vec<Vec<u8>>,
}

fn address(command: &Spec) -> usize {
    std::ptr::from_ref(command).addr()
}

/// A password's hash, in hexadecimal.
pub(crate) fn hash(password: &[u8]) -> String {
    hex::encode(Sha256::digest(password))
}

/// Whether two texts are equal, in a time that does not tell where they differ.
fn is_same(one: &str, other: &str) -> bool {
    let difference =
        one.bytes().zip(other.bytes()).fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && difference == 0
}

const WRONG_SYNTAX: &str = "Syntax error";
const UNKNOWN: &str = "Unknown command or category name in ACL";

impl Rules {
    /// Those of a user who may do nothing.
    pub(crate) fn new(catalog: &'static Catalog) -> Self {
        Self {
            catalog,
            is_on: false,
            needs_no_password: false,
            sanitize: None,
            passwords: Vec::new(),
            allows_rest: false,
            commands: Vec::new(),
            allowed: HashSet::new(),
            first_arguments: Vec::new(),
            allows_all_keys: false,
            keys: Vec::new(),
            allows_all_channels: false,
            channels: Vec::new(),
        }
    }

    /// Those of the default user of a new server: everything, without a password.
    pub(crate) fn of_everyone(catalog: &'static Catalog) -> Self {
        let mut rules = Self { is_on: true, needs_no_password: true, ..Self::new(catalog) };
        rules.allows_all_keys = true;
        rules.allows_all_channels = true;
        rules.set_all_commands(true);
        rules
    }

    /// Whether nothing is denied.
    pub(super) fn is_unrestricted(&self) -> bool {
        self.allows_rest && self.commands.is_empty() && self.allows_all_keys
    }

    /// Whether anybody is this user.
    pub(super) fn is_open(&self) -> bool {
        self.is_on && self.needs_no_password
    }

    /// Whether a password of this hash is right.
    pub(crate) fn admits(&self, hash: &str) -> bool {
        // All are compared, whichever is right.
        let found = self.passwords.iter().fold(false, |found, known| found | is_same(known, hash));
        self.is_on && (self.needs_no_password || found)
    }

    /// Makes `password` the only one; with an empty one, none is needed.
    pub(super) fn set_only_password(&mut self, password: &[u8]) {
        self.passwords.clear();
        self.needs_no_password = password.is_empty();
        if !password.is_empty() {
            self.passwords.push(hash(password));
        }
    }

    fn set_all_commands(&mut self, is_allowed: bool) {
        self.allows_rest = is_allowed;
        self.commands.clear();
        self.allowed.clear();
        self.first_arguments.clear();
        if is_allowed {
            self.allowed.extend(self.catalog.listed().map(|listed| address(listed.command)));
        }
    }

    /// Takes one more rule.
    ///
    /// # Errors
    ///
    /// Why it is none, in Redis's words.
    pub(crate) fn apply(&mut self, rule: &[u8]) -> Result<(), String> {
        let is = |word: &str| rule.eq_ignore_ascii_case(word.as_bytes());
        match rule {
            _ if is("on") => self.is_on = true,
            _ if is("off") => self.is_on = false,
            _ if is("nopass") => {
                self.needs_no_password = true;
                self.passwords.clear();
            }
            _ if is("resetpass") => {
                self.needs_no_password = false;
                self.passwords.clear();
            }
            _ if is("sanitize-payload") => self.sanitize = Some(true),
            _ if is("skip-sanitize-payload") => self.sanitize = Some(false),
            _ if is("allkeys") || is("~*") => {
                self.allows_all_keys = true;
                self.keys.clear();
            }
            _ if is("resetkeys") => {
                self.allows_all_keys = false;
                self.keys.clear();
            }
            _ if is("allchannels") || is("&*") => {
                self.allows_all_channels = true;
                self.channels.clear();
            }
            _ if is("resetchannels") => {
                self.allows_all_channels = false;
                self.channels.clear();
            }
            _ if is("allcommands") || is("+@all") => self.set_all_commands(true),
            _ if is("nocommands") || is("-@all") => self.set_all_commands(false),
            _ if is("clearselectors") => {}
            _ if is("reset") => *self = Self { sanitize: Some(true), ..Self::new(self.catalog) },
            [b'>', password @ ..] => self.add_password(hash(password))?,
            [b'#', hash @ ..] => self.add_password(checked_hash(hash)?)?,
            [b'<', password @ ..] => self.remove_password(&hash(password))?,
            [b'!', hash @ ..] => self.remove_password(&checked_hash(hash)?)?,
            [b'~', pattern @ ..] => self.add_key(pattern, true, true)?,
            [b'%', rest @ ..] => {
                let (letters, pattern) = split_once(rest, b'~').ok_or(WRONG_SYNTAX)?;
                let has =
                    |letter: u8| letters.iter().any(|byte| byte.eq_ignore_ascii_case(&letter));
                let known = |byte: &u8| matches!(byte.to_ascii_uppercase(), b'R' | b'W');
                if letters.is_empty() || !letters.iter().all(known) {
                    return Err(WRONG_SYNTAX.into());
                }
                self.add_key(pattern, has(b'R'), has(b'W'))?;
            }
            [b'&', pattern @ ..] => self.add_channel(pattern)?,
            [b'+', name @ ..] => self.add_command(name, true)?,
            [b'-', name @ ..] => self.add_command(name, false)?,
            [b'(', ..] => {
                return Err(
                    "selectors are not supported: say what is allowed in one set of rules, \
                            or in a user of its own"
                        .into(),
                );
            }
            _ => return Err(WRONG_SYNTAX.into()),
        }
        Ok(())
    }

    fn add_password(&mut self, hash: String) -> Result<(), String> {
        if !self.passwords.contains(&hash) {
            hold(&self.passwords)?;
            self.passwords.push(hash);
        }
        self.needs_no_password = false;
        Ok(())
    }

    fn remove_password(&mut self, hash: &str) -> Result<(), String> {
        let at = self.passwords.iter().position(|known| known == hash);
        let at = at.ok_or("The password you are trying to remove from the user does not exist")?;
        self.passwords.remove(at);
        Ok(())
    }

    fn add_key(&mut self, pattern: &[u8], may_read: bool, may_write: bool) -> Result<(), String> {
        if self.allows_all_keys {
            return Err(
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid \
                        and does not have any effect. Try 'resetkeys' to start with an empty list \
                        of patterns"
                    .into(),
            );
        }
        check_pattern(pattern)?;
        if pattern == b"*" && may_read && may_write {
            self.allows_all_keys = true;
            self.keys.clear();
            return Ok(());
        }
        hold(&self.keys)?;
        match self.keys.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => {
                known.may_read |= may_read;
                known.may_write |= may_write;
            }
            None => {
                let pattern = pattern.to_vec();
                self.keys.push(KeyPattern { pattern, may_read, may_write });
            }
        }
        Ok(())
    }

    fn add_channel(&mut self, pattern: &[u8]) -> Result<(), String> {
        if self.allows_all_channels {
            return Err("Adding a pattern after the * pattern (or the 'allchannels' flag) is not \
                        valid and does not have any effect. Try 'resetchannels' to start with an \
                        empty list of channels"
                .into());
        }
        check_pattern(pattern)?;
        hold(&self.channels)?;
        if !self.channels.iter().any(|known| known == pattern) {
            self.channels.push(pattern.to_vec());
        }
        Ok(())
    }

    fn add_command(&mut self, name: &[u8], is_allowed: bool) -> Result<(), String> {
        let said = std::str::from_utf8(name).map_err(|_| UNKNOWN)?;
        let name = said.to_ascii_lowercase();
        let matching: Vec<Listed> = match name.strip_prefix('@') {
            Some(category) => {
                if !CATEGORIES.contains(&category) {
                    return Err(UNKNOWN.into());
                }
                self.catalog.listed().filter(|listed| is_in(*listed, category)).collect()
            }
            None => self
                .catalog
                .listed()
                .filter(|listed| {
                    listed.name() == name || listed.parent.is_some_and(|parent| parent.name == name)
                })
                .collect(),
        };
        if matching.is_empty() && !name.starts_with('@') {
            return self.add_first_argument(said, is_allowed);
        }
        for listed in matching {
            if is_allowed {
                self.allowed.insert(address(listed.command));
            } else {
                self.allowed.remove(&address(listed.command));
            }
            let command = address(listed.command);
            if self.first_arguments.iter().any(|(known, _)| *known == command) {
                self.first_arguments.retain(|(known, _)| *known != command);
                let parts = format!("+{}|", listed.name());
                self.commands.retain(|known| !known.starts_with(&parts));
            }
        }
        // What was said of the same before, or of a part of it, says nothing any more.
        let parts = format!("{name}|");
        self.commands.retain(|known| known[1..] != name && !known[1..].starts_with(&parts));
        hold(&self.commands)?;
        self.commands.push(format!("{}{name}", if is_allowed { '+' } else { '-' }));
        Ok(())
    }

    /// Takes `+command|argument`, for a command without subcommands: it may run with that first
    /// argument.
    fn add_first_argument(&mut self, said: &str, is_allowed: bool) -> Result<(), String> {
        let (name, argument) = said.rsplit_once('|').ok_or(UNKNOWN)?;
        let name = name.to_ascii_lowercase();
        let found =
            self.catalog.listed().find(|listed| listed.name() == name).filter(|_| is_allowed);
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
        let entry = (address(listed.command), argument.to_owned());
        // What may run anyhow needs no such rule.
        if !self.allowed.contains(&entry.0) && !self.first_arguments.contains(&entry) {
            hold(&self.commands)?;
            self.commands.push(format!("+{name}|{argument}"));
            self.first_arguments.push(entry);
        }
        Ok(())
    }

    /// Whether a command that may not run with any arguments may with these.
    fn allows_first_argument(&self, command: &Spec, arguments: &Arguments<'_>) -> bool {
        let Some(first) = arguments.get(1) else { return false };
        self.first_arguments.iter().any(|(known, argument)| {
            *known == address(command) && argument.as_bytes().eq_ignore_ascii_case(first)
        })
    }

    /// Whether a command may run with these arguments.
    pub(super) fn check(&self, command: &Spec, arguments: &Arguments<'_>) -> Result<(), Denied> {
        let is_allowed =
            self.allowed.contains(&address(command)) || command.flags.has(flags::NO_AUTH);
        if !is_allowed && !self.allows_first_argument(command, arguments) {
            return Err(Denied::Command);
        }
        if self.allows_all_keys {
            return Ok(());
        }
        let denied = |place: &usize| {
            let access = access::of(command, arguments, *place);
            !self.keys.iter().any(|key| {
                (key.may_read || !access.reads)
                    && (key.may_write || !access.writes)
                    && glob::matches(&key.pattern, arguments[*place], false)
            })
        };
        match command.keys.places(arguments).find(denied) {
            Some(place) => Err(Denied::Key(place)),
            None => Ok(()),
        }
    }

    /// The marks that ACL GETUSER tells.
    pub(crate) fn marks(&self) -> Vec<&'static str> {
        let mut marks = vec![if self.is_on { "on" } else { "off" }];
        if self.needs_no_password {
            marks.push("nopass");
        }
        match self.sanitize {
            Some(true) => marks.push("sanitize-payload"),
            Some(false) => marks.push("skip-sanitize-payload"),
            None => {}
        }
        marks
    }

    /// The passwords' hashes.
    pub(crate) fn passwords(&self) -> &[String] {
        &self.passwords
    }

    /// The rules about commands.
    pub(crate) fn describe_commands(&self) -> String {
        let mut text = if self.allows_rest { "+@all" } else { "-@all" }.to_owned();
        for rule in &self.commands {
            let _ = write!(text, " {rule}");
        }
        text
    }

    /// The rules about keys.
    pub(crate) fn describe_keys(&self) -> Vec<u8> {
        if self.allows_all_keys {
            return b"~*".to_vec();
        }
        let each = self.keys.iter().map(|key| {
            let sign: &[u8] = match (key.may_read, key.may_write) {
                (true, true) => b"~",
                (true, false) => b"%R~",
                _ => b"%W~",
            };
            [sign, &key.pattern].concat()
        });
        each.collect::<Vec<_>>().join(&b' ')
    }

    /// The rules about channels.
    pub(crate) fn describe_channels(&self) -> Vec<u8> {
        if self.allows_all_channels {
            return b"&*".to_vec();
        }
        let each = self.channels.iter().map(|pattern| [b"&", &pattern[..]].concat());
        each.collect::<Vec<_>>().join(&b' ')
    }

    /// All rules, as ACL LIST has them.
    pub(crate) fn describe(&self) -> String {
        let mut text = self.marks().join(" ");
        for password in &self.passwords {
            let _ = write!(text, " #{password}");
        }
        let mut push = |words: &[u8]| {
            if !words.is_empty() {
                let _ = write!(text, " {}", String::from_utf8_lossy(words));
            }
        };
        push(&self.describe_keys());
        if !self.allows_all_channels {
            push(b"resetchannels");
        }
        push(&self.describe_channels());
        push(self.describe_commands().as_bytes());
        text
    }
}

/// Rules with those in parentheses, which may have come as several words, as one each.
///
/// # Errors
///
/// A parenthesis that does not end, and why.
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

fn hold<Rule>(rules: &[Rule]) -> Result<(), String> {
    if rules.len() < MOST { Ok(()) } else { Err(format!("A user has at most {MOST} of these")) }
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
