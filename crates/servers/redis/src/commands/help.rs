//! What HELP of a command with subcommands answers: Redis's form, for the subcommands that there
//! are.

use crate::commands::command::Context;

/// Writes the lines of a help: the first names the command, the last is about HELP itself.
pub(super) fn reply(context: &mut Context<'_, '_>, command: &str, lines: &[&str]) {
    context.reply.array(lines.len() + 3);
    let first = format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    context.reply.simple(&first);
    for line in lines {
        context.reply.simple(line);
    }
    context.reply.simple("HELP");
    context.reply.simple("    Prints this help.");
}
