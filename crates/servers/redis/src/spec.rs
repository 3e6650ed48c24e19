//! The description of a command: the facts that are known before it runs.

use crate::decimal;

/// Properties of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u32);

impl Flags {
    /// Whether all of `flags` are set.
    #[inline]
    pub(crate) const fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// The union of `list`.
    pub(crate) const fn all_of(list: &[Flags]) -> Flags {
        let (mut all, mut at) = (0, 0);
        while at < list.len() {
            all |= list[at].0;
            at += 1;
        }
        Flags(all)
    }
}

/// The properties of commands.
pub(crate) mod flags {
    pub(crate) use super::Flags;

    /// None.
    pub(crate) const NONE: Flags = Flags(0);
    /// It reads its keys.
    pub(crate) const READ: Flags = Flags(1);
    /// It writes its keys.
    pub(crate) const WRITE: Flags = Flags(1 << 1);
    /// It may need more memory, so it is refused at the memory limit.
    pub(crate) const DENYOOM: Flags = Flags(1 << 2);
    /// Its time does not depend on the size of the data.
    pub(crate) const FAST: Flags = Flags(1 << 3);
    /// Only for administrators.
    pub(crate) const ADMIN: Flags = Flags(1 << 4);
    /// Allowed before the client has authenticated.
    pub(crate) const NO_AUTH: Flags = Flags(1 << 5);
    /// Not allowed between MULTI and EXEC.
    pub(crate) const NO_MULTI: Flags = Flags(1 << 6);
    /// It may write any key, so it locks all stripes.
    pub(crate) const WHOLE: Flags = Flags(1 << 7);
    /// Executed at once between MULTI and EXEC instead of being queued.
    pub(crate) const NOT_QUEUED: Flags = Flags(1 << 8);
    /// Dangerous: the ACL category.
    pub(crate) const DANGEROUS: Flags = Flags(1 << 9);
    /// It shows only the existence, type, size or last use of its keys, and nothing of their
    /// contents.
    pub(crate) const ONLY_ABOUT: Flags = Flags(1 << 10);
    /// It changes its keys and shows nothing of their contents.
    pub(crate) const ONLY_CHANGES: Flags = Flags(1 << 11);
    /// Allowed in each state of the server; COMMAND replies `loading` and `stale`.
    pub(crate) const ANYTIME: Flags = Flags(1 << 16);
    /// Not allowed in scripts, which do not exist here. Only COMMAND uses it.
    pub(crate) const NO_SCRIPT: Flags = Flags(1 << 17);
    /// Allowed while a script is busy. Only COMMAND uses it.
    pub(crate) const ALLOW_BUSY: Flags = Flags(1 << 18);
    /// Not in the slow log, because the commands that it runs are there.
    pub(crate) const SKIP_SLOWLOG: Flags = Flags(1 << 19);
    /// Not allowed while a replica loads data. Only COMMAND uses it.
    pub(crate) const NO_ASYNC_LOADING: Flags = Flags(1 << 20);
    /// Not in the ACL category of its group.
    pub(crate) const NO_GROUP: Flags = Flags(1 << 21);
}

/// The arguments that are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// None.
    None,
    /// From the first to the last, in steps. The command's name has index 0. A negative last counts
    /// from the end.
    Range(i32, i32, i32),
    /// A number of keys at the first index, then the keys; and a key at the second index, if it is
    /// not zero.
    Numbered(usize, usize),
}

impl Keys {
    /// The indexes of the keys.
    pub(crate) fn places(self, arguments: &Arguments<'_>) -> impl Iterator<Item = usize> {
        let count = arguments.len();
        let (first, end, step, extra) = match self {
            Self::None => (0, 0, 1, 0),
            Self::Range(first, last, step) => {
                let last = if last < 0 { count as i32 + last } else { last.min(count as i32 - 1) };
                (first as usize, (last + 1).max(0) as usize, step as usize, 0)
            }
            Self::Numbered(at, extra) => {
                let numbered = arguments.get(at).and_then(|number| decimal::parse_i64(number));
                let keys = usize::try_from(numbered.unwrap_or(0)).unwrap_or(0);
                (at + 1, at.saturating_add(1).saturating_add(keys).min(count), 1, extra)
            }
        };
        let extra = (extra > 0 && extra < count).then_some(extra);
        extra.into_iter().chain((first..end.max(first)).step_by(step))
    }
}

/// The common forms of keys.
pub(crate) mod keys {
    use super::Keys;

    /// None.
    pub(crate) const NONE: Keys = Keys::None;
    /// The first argument.
    pub(crate) const ONE: Keys = Keys::Range(1, 1, 1);
    /// The first two arguments.
    pub(crate) const TWO: Keys = Keys::Range(1, 2, 1);
    /// All arguments.
    pub(crate) const ALL: Keys = Keys::Range(1, -1, 1);
    /// Every second argument, from the first on.
    pub(crate) const PAIRS: Keys = Keys::Range(1, -1, 2);
    /// The second argument: the first of a subcommand.
    pub(crate) const SECOND: Keys = Keys::Range(2, 2, 1);
    /// All arguments after the first.
    pub(crate) const FROM_SECOND: Keys = Keys::Range(2, -1, 1);
    /// A number, then that number of keys.
    pub(crate) const NUMBERED: Keys = Keys::Numbered(1, 0);
    /// A key, a number, then that number of keys.
    pub(crate) const STORED_NUMBERED: Keys = Keys::Numbered(2, 1);
}

/// The words of a command, with its name and the name of its subcommand.
pub(crate) type Arguments<'request> = [&'request [u8]];

/// The description of a command.
pub(crate) struct Spec {
    /// Its name, in lower case.
    pub name: &'static str,
    /// The number of arguments, with the name; negative: the least number.
    pub arity: i32,
    pub flags: Flags,
    /// The arguments that are keys.
    pub keys: Keys,
    /// The group in `COMMAND DOCS`: string, generic, connection, ...
    pub group: &'static str,
    /// The first version of Redis, or of Pando, that has it.
    pub since: &'static str,
    /// A summary in one line.
    pub summary: &'static str,
    /// Whether it has subcommands. Then it cannot be executed without one.
    pub has_subcommands: bool,
    /// The lines of its HELP, if it has one.
    pub help: &'static str,
}

impl Spec {
    /// Whether this number of arguments is allowed.
    #[inline]
    pub(crate) fn takes(&self, arguments: usize) -> bool {
        let arity = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { arguments >= arity } else { arguments == arity }
    }
}
