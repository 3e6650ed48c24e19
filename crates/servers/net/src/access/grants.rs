//! The commands, by number, and the keys, by pattern, that one user may use.

use crate::glob;

/// The uses of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its contents are shown.
    pub reads: bool,
    /// It is changed.
    pub writes: bool,
}

/// A pattern of keys, and their allowed uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPattern {
    /// The pattern, for [`glob::matches`].
    pub pattern: Vec<u8>,
    /// The allowed uses of matching keys.
    pub access: Access,
}

/// The commands and keys that one user may use. By default there are none.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    /// Whether all commands are allowed, without a later exception.
    has_all_commands: bool,
    /// For each number, whether the command may run with all arguments.
    commands: Vec<bool>,
    /// Commands that may only run with certain first arguments, each with one of these.
    first_arguments: Vec<(usize, String)>,
    has_all_keys: bool,
    keys: Vec<KeyPattern>,
}

impl Grants {
    /// Whether everything is allowed.
    pub fn is_unrestricted(&self) -> bool {
        self.has_all_commands && self.has_all_keys
    }

    /// Allows all of `count` commands, or none.
    pub fn set_all_commands(&mut self, is_allowed: bool, count: usize) {
        self.has_all_commands = is_allowed;
        self.commands = vec![is_allowed; count];
        self.first_arguments.clear();
    }

    /// Allows or forbids a command. Returns whether this removes first arguments that were allowed
    /// for it.
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

    /// Allows a command with a first argument, in any case. Returns whether that allows more than
    /// before.
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

    /// Whether a command may run with this first argument.
    pub fn may_run(&self, number: usize, first_argument: Option<&[u8]>) -> bool {
        let is_granted = |first: &[u8]| {
            self.first_arguments.iter().any(|(known, argument)| {
                *known == number && argument.as_bytes().eq_ignore_ascii_case(first)
            })
        };
        self.has_command(number) || first_argument.is_some_and(is_granted)
    }

    /// Whether all keys are allowed.
    pub fn has_all_keys(&self) -> bool {
        self.has_all_keys
    }

    /// The patterns of allowed keys, unless all are allowed.
    pub fn keys(&self) -> &[KeyPattern] {
        &self.keys
    }

    /// Allows all keys, or none.
    pub fn set_all_keys(&mut self, is_allowed: bool) {
        self.has_all_keys = is_allowed;
        self.keys.clear();
    }

    /// Allows the keys that match a pattern, in addition to the allowed ones.
    pub fn add_keys(&mut self, pattern: &[u8], access: Access) {
        match self.keys.iter_mut().find(|known| known.pattern == pattern) {
            Some(KeyPattern { access: known, .. }) => {
                known.reads |= access.reads;
                known.writes |= access.writes;
            }
            None => self.keys.push(KeyPattern { pattern: pattern.to_vec(), access }),
        }
    }

    /// Whether this use of a key is allowed.
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
