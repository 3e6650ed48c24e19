//! A command that can be run, and what it works with.

use std::ops::Deref;

use pando_keyspace::Transaction;
use pando_keyspace::failure::Result;

use crate::resp::reply::Reply;
use crate::server::Server;
use crate::session::Session;
use crate::spec::{Arguments, Flags, Keys, Spec};

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
    /// A command of that name and [arity](Spec::arity), of a group of `COMMAND DOCS` and since a
    /// version.
    pub(crate) const fn new(
        name: &'static str,
        arity: i32,
        flags: Flags,
        keys: Keys,
        (group, since): (&'static str, &'static str),
        summary: &'static str,
        run: Run,
    ) -> Self {
        let has_subcommands = false;
        let spec =
            Spec { name, arity, flags, keys, group, since, summary, has_subcommands, help: "" };
        Self { spec, subcommands: &[], run }
    }

    /// Adds the lines of its HELP.
    pub(crate) const fn help(mut self, lines: &'static str) -> Self {
        self.spec.help = lines;
        self
    }

    /// Adds its subcommands.
    pub(crate) const fn subcommands(mut self, subcommands: &'static [Command]) -> Self {
        self.subcommands = subcommands;
        self.spec.has_subcommands = true;
        self
    }
}

/// A table of commands. What the commands of a section share is above them, in brackets: the group,
/// [`flags`](crate::spec::flags), [`keys`](crate::spec::keys). A row has the name, the arity, the
/// version, the function and the summary; then the lines of its HELP and its subcommands, if any.
macro_rules! commands {
    ($([$group:literal: $flags:tt, $keys:ident] $(
        $name:literal, $arity:literal, $since:literal, $run:expr, $summary:literal
        $(, $help:expr $(, $subcommands:expr)?)?;
    )+)+) => {
        &[$($($crate::commands::command::Command::new(
            $name,
            $arity,
            commands!(@flags $flags),
            $crate::spec::keys::$keys,
            ($group, $since),
            $summary,
            $run,
        )$(.help($help)$(.subcommands($subcommands))?)?,)+)+]
    };
    (@flags ($($flag:ident)|+)) => {
        $crate::spec::Flags::all_of(&[$($crate::spec::flags::$flag),+])
    };
}
pub(crate) use commands;

/// Replies the help of the command that the first argument names, in Redis's form.
pub(crate) fn reply_help(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let command = context.server.catalog.find(arguments[0]);
    let lines = command.map_or("", |command| command.help).lines();
    context.reply.array(lines.clone().count() + 3);
    let name = String::from_utf8_lossy(arguments[0]).to_uppercase();
    let first = format!("{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    context.reply.simple(&first);
    for line in lines {
        context.reply.simple(line);
    }
    context.reply.simple("HELP");
    context.reply.simple("    Prints this help.");
    Ok(())
}
