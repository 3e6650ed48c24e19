//! A command that can be run, and what it works with.

use std::ops::Deref;

use pando_keyspace::Transaction;
use pando_keyspace::failure::Result;

use crate::resp::reply::Reply;
use crate::server::Server;
use crate::session::Session;
use crate::spec::{Arguments, Flags, Keys, Spec, flags};

/// What a command works with.
pub(crate) struct Context<'run, 'store> {
    /// The server.
    pub server: &'run Server,
    /// The client that asks.
    pub session: &'run mut Session,
    /// The store, with the command's keys locked as its flags say.
    pub transaction: &'run mut Transaction<'store>,
    /// Where the reply goes.
    pub reply: &'run mut Reply,
    /// The space of the client's database.
    pub space: u8,
}

/// Does what a command says.
pub(crate) type Run = fn(&mut Context<'_, '_>, &Arguments<'_>) -> Result<()>;

/// A command.
pub(crate) struct Command {
    /// Its description.
    pub spec: Spec,
    /// Its subcommands, if it has any; then `run` is for none of them.
    pub subcommands: &'static [Command],
    /// Does it.
    pub run: Run,
}

impl Deref for Command {
    type Target = Spec;

    fn deref(&self) -> &Spec {
        &self.spec
    }
}

impl Command {
    /// A command without keys and subcommands.
    pub(crate) const fn brief(
        name: &'static str,
        arity: i32,
        flags: Flags,
        (group, since): (&'static str, &'static str),
        summary: &'static str,
        run: Run,
    ) -> Self {
        Self::new(name, arity, run).flags(flags).about(group, since, summary)
    }

    /// A command of that name and [arity](Spec::arity); what follows adds the rest.
    pub(crate) const fn new(name: &'static str, arity: i32, run: Run) -> Self {
        let spec = Spec {
            name,
            arity,
            flags: flags::NONE,
            keys: Keys::None,
            group: "",
            since: "",
            summary: "",
            has_subcommands: false,
            help: &[],
        };
        Self { spec, subcommands: &[], run }
    }

    /// Its properties.
    pub(crate) const fn flags(mut self, flags: Flags) -> Self {
        self.spec.flags = flags;
        self
    }

    /// Which arguments are keys.
    pub(crate) const fn keys(mut self, keys: Keys) -> Self {
        self.spec.keys = keys;
        self
    }

    /// Its group, since when it is there, and what it does.
    pub(crate) const fn about(
        mut self,
        group: &'static str,
        since: &'static str,
        summary: &'static str,
    ) -> Self {
        (self.spec.group, self.spec.since, self.spec.summary) = (group, since, summary);
        self
    }

    /// The lines of its HELP.
    pub(crate) const fn help(mut self, lines: &'static [&'static str]) -> Self {
        self.spec.help = lines;
        self
    }

    /// Its subcommands.
    pub(crate) const fn subcommands(mut self, subcommands: &'static [Command]) -> Self {
        self.subcommands = subcommands;
        self.spec.has_subcommands = true;
        self
    }
}
