//! `pando-papers`: the experiments alone, without the other commands of `pando`.

use std::process::ExitCode;

use clap::Parser;

use pando_bench::commands::exit_code;
use pando_papers::command::{self, PapersArgs};

/// The papers' experiments by name, beside what the papers say; without a name, the list.
#[derive(Debug, Parser)]
#[command(name = "pando-papers", version)]
struct Cli {
    #[command(flatten)]
    papers: PapersArgs,
}

fn main() -> ExitCode {
    exit_code("pando-papers", command::run(&Cli::parse().papers, &[]))
}
