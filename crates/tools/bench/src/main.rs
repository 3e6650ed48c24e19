//! `pando-bench`: the benchmarks alone, without the other commands of `pando`.

use std::process::ExitCode;

use clap::Parser;

use pando_bench::args::BenchArgs;
use pando_bench::commands;

/// Interleaved benchmarks of Pando's indexes beside the maps that a user would otherwise pick.
#[derive(Debug, Parser)]
#[command(name = "pando-bench", version)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

fn main() -> ExitCode {
    commands::exit_code("pando-bench", commands::run(&Cli::parse().bench, &[]))
}
