//! `pando-crashlab`: parses, calls, prints. What it tries and how stands in the library.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use pando_crashlab::{kill, powercut};

/// Proves by trial that no crash, kill or power cut loses what was acknowledged, and that no
/// schedule of threads breaks an index.
#[derive(Debug, Parser)]
#[command(name = "pando-crashlab", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Kills real processes at random instants and checks what they leave.
    Kill(kill::Args),
    /// Cuts the power of a virtual machine with persistent memory and checks what it leaves.
    Powercut(powercut::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Kill(args) => kill::run(&args),
        Verb::Powercut(args) => powercut::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("pando-crashlab: {failure}");
            ExitCode::FAILURE
        }
    }
}
