//! What the command line sets off. `pando-bench` and `pando bench` are both thin wrappers of
//! [`run`].
//!
//! | file | what |
//! | --- | --- |
//! | [`comparison`] | a comparison of sides, and the replay of a file |
//! | [`single`] | costs, recovery, space: figures of a run without rounds |

pub mod comparison;
pub mod single;

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{AgreeArgs, BenchArgs, ChildArgs, Command, SidesArgs};
use crate::compare::Entrant;
use crate::error::Error;
use crate::mix::Mix;
use crate::record::Shape;
use crate::sides::{self, BuildOptions, SideName};
use crate::{agree, profile, recovery, servers};

/// Why a command ended before its end.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs what `args` ask for. `prefix` is what stands before the arguments of this command when
/// the program runs itself again: `["bench"]` for `pando bench`.
pub fn run(args: &BenchArgs, prefix: &[&str]) -> Result<(), Failure> {
    match &args.command {
        None => comparison::compare_sides(&args.run),
        Some(Command::Costs(args)) => single::count_costs(args),
        Some(Command::Recovery(args)) => single::time_recovery(args, prefix),
        Some(Command::Space(args)) => single::measure_space(args),
        Some(Command::RecoveryChild(args)) => be_child(args),
        Some(Command::Servers(args)) => servers::command::servers(args, prefix, &progress()),
        Some(Command::Profile(args)) => profile::command::profile(args, prefix),
        Some(Command::ProfileChild(args)) => profile::command::be_child(args),
        Some(Command::Agree(args)) => agree_on(args),
        Some(Command::Sides(args)) => {
            list(args);
            Ok(())
        }
    }
}

/// A bar on standard error with time spent and time left; it is not drawn where no person looks.
pub fn progress() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let shape = "{bar:30} {percent:>3} % {elapsed_precise} (about {eta} left) {msg}";
    if let Ok(style) = ProgressStyle::with_template(shape) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// The sides by name, with room for `records` records.
fn entrants(
    names: &[SideName],
    records: u64,
    shape: Shape,
    options: &BuildOptions,
) -> Vec<Entrant> {
    let options = options.clone().for_records(records, shape);
    let entrant = |&name: &SideName| Entrant {
        name: name.to_string(),
        build: sides::builder(name, shape, &options),
    };
    names.iter().map(entrant).collect()
}

/// Refuses what a side cannot do, before anything is loaded.
fn check_limits(names: &[SideName], shape: Shape, mixes: &[Mix]) -> Result<(), Error> {
    for name in names {
        let entry = name.entry();
        (entry.limits)(shape).map_err(|what| Error::Usage(format!("{name}: {what}")))?;
        let downwards = mixes.iter().find(|mix| mix.is_descending());
        if let Some(mix) = downwards.filter(|_| !entry.can_descend) {
            return Err(Error::Usage(format!("{name} does not scan downwards, as {mix} does")));
        }
    }
    Ok(())
}

fn agree_on(args: &AgreeArgs) -> Result<(), Failure> {
    let found = agree::agreement(&agree::read(&args.first)?, &agree::read(&args.second)?)?;
    print!("{}", found.text());
    Ok(())
}

fn list(args: &SidesArgs) {
    let by_durability: BTreeMap<_, Vec<_>> =
        sides::SIDES.iter().fold(BTreeMap::new(), |mut by, entry| {
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
    println!("mixes:");
    for mix in Mix::ALL {
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
