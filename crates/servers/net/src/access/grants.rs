//! The commands, by their numbers, and the keys, by patterns, that one user may use.

use crate::glob;

/// What is done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// What it holds is shown.
    pub reads: bool,
    /// It changes.
    pub writes: bool,
}

/// Keys that may be used, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPattern {
    /// The pattern, as [`glob::matches`] reads it.
    pub pattern: Vec<u8>,
    /// What may be done with a key that matches.
    pub access: Access,
}

/// The commands and keys that one user may use; by default none.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    /// Whether all commands are allowed, and no rule has excepted one since.
    has_all_commands: bool,
    /// Whether the command of each number may run with any arguments.
    commands: Vec<bool>,
    /// Commands that may not run with any arguments, and a first argument with which they may.
    first_arguments: Vec<(usize, String)>,
    has_all_keys: bool,
    keys: Vec<KeyPattern>,
}

impl Grants {
    /// Whether nothing is refused.
    pub fn is_unrestricted(&self) -> bool {
        self.has_all_commands && self.has_all_keys
    }

    /// Allows all of `count` commands, or none.
    pub fn set_all_commands(&mut self, is_allowed: bool, count: usize) {
        self.has_all_commands = is_allowed;
        self.commands = vec![is_allowed; count];
        self.first_arguments.clear();
    }

    /// Allows a command, or not; whether first arguments were allowed for it, which no longer
    /// counts.
    pub fn set_command(&mut self, number: usize, is_allowed: bool) -> bool {
        self.has_all_commands = false;
        if self.commands.len() <= number {
            self.commands.resize(number + 1, false);
        }
        self.commands[number] = is_allowed;
        let before = self.first_arguments.len();
        self.first_arguments.retain(|(known, _)| *known != number);
        self.first_arguments.len() < before
    }

    /// Allows a command with a first argument, in any case; whether that allows more than before.
    pub fn add_first_argument(&mut self, number: usize, argument: &str) -> bool {
        let entry = (number, argument.to_owned());
        let is_new = !self.has_command(number) && !self.first_arguments.contains(&entry);
        if is_new {
            self.first_arguments.push(entry);
        }
        is_new
    }

    fn has_command(&self, number: usize) -> bool {
        self.commands.get(number).is_some_and(|is_allowed| *is_allowed)
    }

    /// Whether a command may run with that first argument.
    pub fn may_run(&self, number: usize, first_argument: Option<&[u8]>) -> bool {
        let is_granted = |first: &[u8]| {
            self.first_arguments.iter().any(|(known, argument)| {
                *known == number && argument.as_bytes().eq_ignore_ascii_case(first)
            })
        };
        self.has_command(number) || first_argument.is_some_and(is_granted)
    }

    /// Whether all keys may be used.
    pub fn has_all_keys(&self) -> bool {
        self.has_all_keys
    }

    /// The patterns of the keys that may be used, unless all may.
    pub fn keys(&self) -> &[KeyPattern] {
        &self.keys
    }

    /// Allows all keys, or none.
    pub fn set_all_keys(&mut self, is_allowed: bool) {
        self.has_all_keys = is_allowed;
        self.keys.clear();
    }

    /// Allows keys that match a pattern, besides those that are allowed already.
    pub fn add_keys(&mut self, pattern: &[u8], access: Access) {
        match self.keys.iter_mut().find(|known| known.pattern == pattern) {
            Some(KeyPattern { access: known, .. }) => {
                known.reads |= access.reads;
                known.writes |= access.writes;
            }
            None => self.keys.push(KeyPattern { pattern: pattern.to_vec(), access }),
        }
    }

    /// Whether a key may be used in that way.
    pub fn may_use(&self, key: &[u8], access: Access) -> bool {
        let is_granted = |granted: &KeyPattern| {
            (granted.access.reads || !access.reads)
                && (granted.access.writes || !access.writes)
                && glob::matches(&granted.pattern, key, false)
        };
        self.has_all_keys || self.keys.iter().any(is_granted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_from_all_commands_is_a_restriction() {
        let mut grants = Grants::default();
        grants.set_all_keys(true);
        grants.set_all_commands(true, 3);
        assert!(grants.is_unrestricted() && grants.may_run(2, None));
        assert!(!grants.set_command(1, false));
        assert!(!grants.is_unrestricted() && !grants.may_run(1, None) && grants.may_run(2, None));
        assert!(grants.add_first_argument(1, "a") && !grants.add_first_argument(2, "a"));
        assert!(grants.may_run(1, Some(b"A")) && !grants.may_run(1, Some(b"b")));
        assert!(grants.set_command(1, true) && grants.may_run(1, None));
    }

    #[test]
    fn keys_are_granted_by_pattern_and_access() {
        let (reads, writes) =
            (Access { reads: true, writes: false }, Access { reads: false, writes: true });
        let mut grants = Grants::default();
        grants.add_keys(b"a*", reads);
        assert!(grants.may_use(b"a1", reads) && !grants.may_use(b"a1", writes));
        assert!(!grants.may_use(b"b", reads));
        grants.add_keys(b"a*", writes);
        assert_eq!(grants.keys().len(), 1);
        assert!(grants.may_use(b"a1", Access { reads: true, writes: true }));
    }
}
