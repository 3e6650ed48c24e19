//! Commands that are containers of subcommands, and what HELP of one answers: Redis's form, for the
//! subcommands that there are.

use pando_keyspace::failure::Result;

use crate::commands::command::{Command, Context};
use crate::spec::{Arguments, flags};

/// A command that does nothing without a subcommand, with the lines of its HELP.
pub(super) const fn container(
    name: &'static str,
    about: (&'static str, &'static str),
    summary: &'static str,
    help: &'static [&'static str],
    subcommands: &'static [Command],
) -> Command {
    let command = Command::brief(name, -2, flags::NONE, about, summary, reply_help);
    command.help(help).subcommands(subcommands)
}

/// The subcommand HELP.
pub(super) const fn help(about: (&'static str, &'static str)) -> Command {
    let summary = "Returns helpful text about the different subcommands.";
    Command::brief("help", 2, flags::ANYTIME, about, summary, reply_help)
}

/// Replies the help of the command that the first argument names.
pub(super) fn reply_help(context: &mut Context<'_, '_>, arguments: &Arguments<'_>) -> Result<()> {
    let command = context.server.catalog.find(arguments[0]);
    let lines = command.map_or(&[][..], |command| command.help);
    context.reply.array(lines.len() + 3);
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
