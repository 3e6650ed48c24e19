//! The functions of the commands. `pando-bench` and `pando bench` call [`run`].
//!
//! | file | content |
//! | --- | --- |
//! | [`comparison`] | a comparison of systems, and the replay of a file |
//! | [`single`] | costs, recovery, space, transactions, processes: figures that are no comparison |

pub mod comparison;
mod named;
pub mod single;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::process::ExitCode;

use crate::args::{AgreeArgs, BenchArgs, ChildArgs, Command, SystemsArgs};
use crate::error::{Error, Failure};
use crate::operation_mix::OperationMix;
use crate::progress::progress;
use crate::systems;
use crate::{agree, apart, documents, processes, profile, recovery, servers};

/// Runs the command of `args`. `prefix` is the arguments before those of this command when the
/// program runs itself again: `["bench"]` for `pando bench`.
pub fn run(args: &BenchArgs, prefix: &[&str]) -> Result<(), Failure> {
    match &args.command {
        None => comparison::compare_systems(&args.run, prefix),
        Some(Command::Costs(args)) => single::count_costs(args),
        Some(Command::Recovery(args)) => single::time_recovery(args, prefix),
        Some(Command::Space(args)) => single::measure_space(args),
        Some(Command::Transactions(args)) => single::measure_transactions(args),
        Some(Command::Processes(args)) => single::measure_processes(args, prefix),
        Some(Command::ProcessesChild(args)) => processes::be_child(args),
        Some(Command::RecoveryChild(args)) => be_child(args),
        Some(Command::SystemChild(args)) => apart::be_system(args),
        Some(Command::Servers(args)) => servers::command::servers(args, prefix, &progress()),
        Some(Command::Profile(args)) => profile::command::profile(args, prefix),
        Some(Command::ProfileChild(args)) => profile::command::be_child(args),
        Some(Command::Agree(args)) => agree_on(args),
        Some(Command::Systems(args)) => {
            list(args);
            Ok(())
        }
        Some(Command::Figures(args)) => documents::command::run(args, prefix),
    }
}

/// The exit code of `program`, which prints the error if there is one.
pub fn exit_code(program: &str, ended: Result<(), impl Display>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn agree_on(args: &AgreeArgs) -> Result<(), Failure> {
    let found = agree::agreement(&agree::read(&args.first)?, &agree::read(&args.second)?)?;
    print!("{}", found.text());
    Ok(())
}

fn list(args: &SystemsArgs) {
    let by_durability: BTreeMap<_, Vec<_>> =
        systems::SYSTEMS.iter().fold(BTreeMap::new(), |mut by, entry| {
            by.entry(entry.durability as u8).or_insert_with(Vec::new).push(entry);
            by
        });
    for entries in by_durability.values() {
        println!("a write survives {}:", entries[0].durability);
        for entry in entries {
            println!("  {:<22} {}", entry.name, entry.what);
            if args.settings {
                println!("  {:<22} {}", "", entry.settings);
            }
        }
    }
    println!("operation mixes:");
    for mix in OperationMix::ALL {
        println!("  {:<22} {}", mix.name, mix.what);
    }
}

fn be_child(args: &ChildArgs) -> Result<(), Failure> {
    let options = recovery::build_options(args.records);
    match args.part.as_str() {
        "fill" => {
            recovery::fill_and_write(args.ours, &args.file, args.records, args.seed, &options)
        }
        "open" => recovery::open_and_write(args.ours, &args.file, args.records, args.seed),
        other => Err(Error::Child { what: format!("has no part {other:?}") }.into()),
    }
}
