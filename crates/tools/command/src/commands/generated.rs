//! `completions` and `man`: what is generated from the command line's description.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::arguments::{Arguments, CompletionsArguments, ManArguments};
use crate::failure::Failure;
use crate::output::Output;

/// Prints the completions of a shell.
pub fn completions(arguments: &CompletionsArguments) -> Result<(), Failure> {
    // Into memory first: the library panics if the reader closes the output.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "pando", &mut script);
    print(&script)
}

/// Writes the man pages.
pub fn man(arguments: &ManArguments) -> Result<(), Failure> {
    let mut command = Arguments::command();
    command.build();
    match &arguments.directory {
        None => print(&page(command)?),
        Some(directory) => {
            if !directory.is_dir() {
                fs::create_dir(directory).map_err(Failure::file("create", directory))?;
            }
            write_pages(command, directory)
        }
    }
}

/// Writes the page of a command, and those of the commands below it.
fn write_pages(command: clap::Command, directory: &Path) -> Result<(), Failure> {
    for below in command.get_subcommands() {
        if !below.is_hide_set() && below.get_name() != "help" {
            write_pages(below.clone(), directory)?;
        }
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let path = directory.join(format!("{name}.1"));
    fs::write(&path, page(command)?).map_err(Failure::file("write", &path))
}

fn page(command: clap::Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    let version = format!("pando {}", env!("CARGO_PKG_VERSION"));
    let rendered = Man::new(command).source(version).manual("Pando").render(&mut page);
    rendered.map_err(Failure::system("cannot write a man page"))?;
    Ok(page)
}

fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut output = Output::new();
    output.bytes(bytes)?;
    output.flush()
}
