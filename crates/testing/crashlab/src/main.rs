//! `pando-crashlab`: parses, calls, prints. The library does the work.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use pando_crashlab::{explore, kill, mutate, powercut, schedule, totals};

/// Tests that no crash, kill or power cut loses an acknowledged write, and that no schedule of
/// threads breaks an index.
#[derive(Debug, Parser)]
#[command(name = "pando-crashlab", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Checks every crash of many runs.
    Explore(explore::Args),
    /// Tries many schedules of threads, with a few crashes of each.
    Schedule(schedule::Args),
    /// Removes write-backs, fences and checks, and tests that a trial notices.
    Mutate(mutate::Args),
    /// Kills real processes at random instants and checks their pools.
    Kill(kill::Args),
    /// Cuts the power of a virtual machine with persistent memory and checks its pool.
    Powercut(powercut::Args),
    /// Prints the totals of the latest long runs, which are in `docs/runs/`.
    Totals,
    /// The process that `kill` and `powercut` kill.
    #[command(hide = true)]
    Child(kill::child::Args),
    /// The server, with its clients, whose power `powercut` cuts.
    #[command(hide = true)]
    Served(powercut::ServedArgs),
}

fn main() -> ExitCode {
    let done = match Cli::parse().verb {
        Verb::Explore(args) => explore::run(&args),
        Verb::Schedule(args) => schedule::run(&args),
        Verb::Mutate(args) => mutate::run(&args),
        Verb::Kill(args) => kill::run(&args),
        Verb::Powercut(args) => powercut::run(&args),
        Verb::Totals => totals::run(),
        Verb::Child(args) => kill::child::run(&args),
        Verb::Served(args) => powercut::run_served(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("pando-crashlab: {failure}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_switch_is_read() {
        for words in [
            "explore --minutes 0.1 --images 3 --cuts 5 --index pmwcas --scenario swap --domain adr --seed 1 --jobs 1",
            "schedule --replay 7",
            "mutate --only mutants --mutant dirty-read",
            "kill --count 1 --seed 2 --writers 3 --dir /tmp",
            "powercut --cycles 1 --persistence mem-ctrl --seed 2 --keep",
            "powercut --cycles 1 --server everysec",
        ] {
            let words = ["pando-crashlab"].into_iter().chain(words.split(' '));
            if let Err(refused) = Cli::try_parse_from(words) {
                panic!("{refused}");
            }
        }
    }
}
