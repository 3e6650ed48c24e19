//! The `pando` command as a library; other crates use the formats of records ([`mod@format`]).
//!
//! It only parses, calls the `pando` library and prints. All its input and output is escaped in one
//! way, its exit codes are in `failure.rs`, and the tour is in `tour/`; `bench` is in
//! `pando-bench`, `paper` in `pando-papers`.

mod arguments;
mod commands;
mod commits;
mod failure;
pub mod format;
mod interrupt;
mod output;
mod pool_access;
mod progress;
mod quantity;
mod random;
mod tour;
mod workers;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};
use failure::Failure;

/// Runs the command with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::BrokenPipe) {
                // If standard error is closed, no message is possible.
                let _ = writeln!(std::io::stderr(), "pando: {failure}");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    let pool = &arguments.pool;
    match &arguments.command {
        Command::Load(load) => commands::load::run(pool, load),
        Command::Get(get) => commands::point::get(pool, get),
        Command::Put(put) => commands::point::put(pool, put),
        Command::Del(del) => commands::point::del(pool, del),
        Command::Scan(scan) => commands::scan::scan(pool, scan),
        Command::Dump(dump) => commands::scan::dump(pool, dump),
        Command::Drop(drop) => commands::maps::drop(pool, drop),
        Command::Maps(command) => commands::maps::run(pool, command),
        Command::Completions(arguments) => {
            pool.refuse_for("completions")?;
            commands::generated::completions(arguments)
        }
        Command::Man(arguments) => {
            pool.refuse_for("man")?;
            commands::generated::man(arguments)
        }
        Command::Indexes(indexes) => {
            pool.refuse_for("indexes")?;
            commands::maps::indexes(indexes)
        }
        Command::Stat(stat) => commands::stat::run(pool, stat),
        Command::Check(check) => commands::check::run(pool, check),
        Command::Compact(compact) => commands::compact::run(pool, compact),
        Command::Evict(evict) => commands::evict::run(pool, evict),
        Command::Backup(backup) => commands::log::backup(pool, backup),
        Command::Restore(restore) => commands::log::restore(pool, restore),
        Command::Log(command) => commands::log::run(pool, command),
        Command::Upgrade(upgrade) => commands::upgrade::run(pool, upgrade),
        Command::Serve(serve) => commands::serve::run(pool, serve),
        Command::Top(top) => {
            pool.refuse_for("top")?;
            commands::top::run(top)
        }
        Command::Tour(tour) => tour::run(pool, tour),
        #[cfg(feature = "bench")]
        Command::Bench(bench) => {
            pool.refuse_for("bench")?;
            pando_bench::commands::run(bench, &["bench"]).map_err(Failure::Bench)
        }
        #[cfg(not(feature = "bench"))]
        Command::Bench(_) => Err(Failure::Input(
            "the benchmark is not in this build; build it with `cargo build --release`".to_owned(),
        )),
        #[cfg(feature = "papers")]
        Command::Paper(papers) => {
            pool.refuse_for("paper")?;
            pando_papers::command::run(papers, &["paper"]).map_err(Failure::Bench)
        }
        #[cfg(not(feature = "papers"))]
        Command::Paper(_) => Err(Failure::Input(
            "the papers' experiments are not in this build; \
             build it with `cargo build --release --features papers`"
                .to_owned(),
        )),
        Command::TourWriter(writer) => tour::writer::run(pool, writer),
    }
}
