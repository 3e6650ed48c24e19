//! A command with its function, and the data that the function works with.

use std::ops::Deref;

use pando_keyspace::Transaction;
use pando_keyspace::failure::Result;

use crate::resp::reply::Reply;
use crate::server::Server;
use crate::session::Session;
use crate::spec::{Arguments, Flags, Keys, Spec};

/// The data that a command works with.
pub(crate) struct Context<'run, 'store> {
    pub server: &'run Server,
    /// The client that sent the command.
    pub session: &'run mut Session,
    /// A transaction of the store. The command's keys are locked as its flags require.
    pub transaction: &'run mut Transaction<'store>,
    /// The buffer for the reply.
    pub reply: &'run mut Reply,
    /// The space of the client's database.
    pub space: u8,
}

/// The function that executes a command.
pub(crate) type Run = fn(&mut Context<'_, '_>, &Arguments<'_>) -> Result<()>;

/// A command.
pub(crate) struct Command {
    pub spec: Spec,
    /// The subcommands. If there are any, only they are executed, and `run` refuses.
    pub subcommands: &'static [Command],
    pub run: Run,
}

impl Deref for Command {
    type Target = Spec;

    fn deref(&self) -> &Spec {
        &self.spec
    }
}

impl Command {
    /// A command with this name and [arity](Spec::arity), in a group of `COMMAND DOCS`.
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

/// A table of commands. A section begins with the properties that its commands share, in brackets:
/// the group, [`flags`](crate::spec::flags), [`keys`](crate::spec::keys). A row has the name, the
/// arity, the version, the function and the summary, then the lines of its HELP and its
/// subcommands, if any.
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

/// Replies the help of the command in the first argument, in Redis's form.
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
