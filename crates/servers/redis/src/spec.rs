//! The description of a command: what is known of it before it runs.

use crate::decimal;

/// Properties of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u32);

impl Flags {
    /// Whether it has all of `flags`.
    #[inline]
    pub(crate) const fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// All of `list`.
    pub(crate) const fn all_of(list: &[Flags]) -> Flags {
        let (mut all, mut at) = (0, 0);
        while at < list.len() {
            all |= list[at].0;
            at += 1;
        }
        Flags(all)
    }
}

/// The properties that there are.
pub(crate) mod flags {
    pub(crate) use super::Flags;

    /// None.
    pub(crate) const NONE: Flags = Flags(0);
    /// Reads its keys.
    pub(crate) const READ: Flags = Flags(1);
    /// Writes its keys.
    pub(crate) const WRITE: Flags = Flags(1 << 1);
    /// May need more memory: refused when there is none.
    pub(crate) const DENYOOM: Flags = Flags(1 << 2);
    /// Takes a time that does not depend on the data.
    pub(crate) const FAST: Flags = Flags(1 << 3);
    /// Not for everyone.
    pub(crate) const ADMIN: Flags = Flags(1 << 4);
    /// Before a client has said who it is.
    pub(crate) const NO_AUTH: Flags = Flags(1 << 5);
    /// Not between MULTI and EXEC.
    pub(crate) const NO_MULTI: Flags = Flags(1 << 6);
    /// Writes whatever there is: locks everything.
    pub(crate) const WHOLE: Flags = Flags(1 << 7);
    /// Run at once, not queued, between MULTI and EXEC.
    pub(crate) const NOT_QUEUED: Flags = Flags(1 << 8);
    /// Dangerous, as ACL categories have it.
    pub(crate) const DANGEROUS: Flags = Flags(1 << 9);
    /// Shows of its keys whether they exist, their kind, their size or when they were used, and
    /// nothing of what they hold.
    pub(crate) const ONLY_ABOUT: Flags = Flags(1 << 10);
    /// Changes its keys and shows nothing of what they hold.
    pub(crate) const ONLY_CHANGES: Flags = Flags(1 << 11);
    /// Whatever state the server is in; COMMAND says `loading` and `stale`.
    pub(crate) const ANYTIME: Flags = Flags(1 << 16);
    /// Not in scripts, which we have none of; only COMMAND says so.
    pub(crate) const NO_SCRIPT: Flags = Flags(1 << 17);
    /// While a script is busy; only COMMAND says so.
    pub(crate) const ALLOW_BUSY: Flags = Flags(1 << 18);
    /// Not in the slow log: what it runs is there itself.
    pub(crate) const SKIP_SLOWLOG: Flags = Flags(1 << 19);
    /// Not while a copy is loaded beside the data; only COMMAND says so.
    pub(crate) const NO_ASYNC_LOADING: Flags = Flags(1 << 20);
    /// Not one of the ACL category of its group.
    pub(crate) const NO_GROUP: Flags = Flags(1 << 21);
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// None.
    None,
    /// From the first to the last, counted from the command's name, in steps; a negative last
    /// counts from the end.
    Range(i32, i32, i32),
    /// As many as the argument at the place says, behind it; and the argument at the other place,
    /// if it is not zero.
    Numbered(usize, usize),
}

impl Keys {
    /// The places of the keys.
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

/// The ways in which commands have keys.
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
    /// Every other argument, from the first on.
    pub(crate) const PAIRS: Keys = Keys::Range(1, -1, 2);
    /// The second argument: a subcommand's first.
    pub(crate) const SECOND: Keys = Keys::Range(2, 2, 1);
    /// All arguments behind the first.
    pub(crate) const FROM_SECOND: Keys = Keys::Range(2, -1, 1);
    /// As many as the first argument says.
    pub(crate) const NUMBERED: Keys = Keys::Numbered(1, 0);
    /// The first argument, and as many as the second says.
    pub(crate) const STORED_NUMBERED: Keys = Keys::Numbered(2, 1);
}

/// A command's words: its name first, a subcommand's name second.
pub(crate) type Arguments<'request> = [&'request [u8]];

/// The description of a command.
pub(crate) struct Spec {
    /// Its name, in lower case.
    pub name: &'static str,
    /// How many arguments it takes, its name included; negative: so many at least.
    pub arity: i32,
    /// Its properties.
    pub flags: Flags,
    /// Which arguments are keys.
    pub keys: Keys,
    /// What it belongs to, as `COMMAND DOCS` says it: string, generic, connection, ...
    pub group: &'static str,
    /// Since which version of Redis, or of Pando, it is there.
    pub since: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// Whether it has subcommands; then it is none by itself.
    pub has_subcommands: bool,
    /// The lines of its HELP, if it has one.
    pub help: &'static str,
}

impl Spec {
    /// Whether so many arguments are right.
    #[inline]
    pub(crate) fn takes(&self, arguments: usize) -> bool {
        let arity = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { arguments >= arity } else { arguments == arity }
    }
}
