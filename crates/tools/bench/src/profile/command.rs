//! The command `profile`: where BzTree's time goes.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::child;
use super::perf::run;
use super::shares::{Error, Plan, markdown};
use crate::arg_values::count;
use crate::systems::entry::BuildError;

/// Arguments of `profile`.
#[derive(Args, Debug)]
pub struct ProfileArgs {
    /// Records that are loaded before the profile starts
    #[arg(long, value_parser = count, default_value = "1M")]
    pub records: u64,
    /// Number of threads
    #[arg(long, default_value = "1")]
    pub threads: usize,
    /// Percentages of gets, one column for each; the other operations are upserts
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(0..=100), default_value = "100,90,50")]
    pub read_percent: Vec<u64>,
    /// Persistence domain of the pool
    #[arg(long, default_value = "process", value_parser = ["process", "adr"])]
    pub profile_domain: String,
    /// Seconds of sampling for each column
    #[arg(long, default_value = "5")]
    pub seconds: f64,
    /// Seed of the operations
    #[arg(long, default_value = "1")]
    pub seed: u64,
    /// Write the rows to this file, one JSON object per line
    #[arg(long)]
    pub json: Option<PathBuf>,
}

/// Arguments of the process that is profiled.
#[derive(Args, Debug)]
pub struct ProfileChildArgs {
    /// The domain
    #[arg(long, value_parser = ["process", "adr"])]
    pub profile_domain: String,
    /// Records filled first
    #[arg(long)]
    pub records: u64,
    /// Number of threads
    #[arg(long)]
    pub threads: usize,
    /// Percent of gets
    #[arg(long)]
    pub read_percent: u64,
    /// Seed of the operations
    #[arg(long)]
    pub seed: u64,
}

/// Does the part of the process that is profiled.
pub fn be_child(args: &ProfileChildArgs) -> Result<(), BuildError> {
    child::run(&args.profile_domain, args.records, args.threads, args.read_percent, args.seed)
}

/// Profiles each mix and prints the table.
pub fn profile(args: &ProfileArgs, prefix: &[&str]) -> Result<(), BuildError> {
    let mut profiles = Vec::new();
    for &read_percent in &args.read_percent {
        eprintln!(
            "fill {} records, then {} s of {read_percent} % gets",
            args.records, args.seconds
        );
        let plan = Plan {
            records: args.records,
            threads: args.threads,
            read_percent,
            domain: args.profile_domain.clone(),
            time: Duration::from_secs_f64(args.seconds.clamp(0.1, 600.0)),
            executable: executable()?,
            prefix: prefix.iter().map(|&word| word.to_owned()).collect(),
            seed: args.seed,
        };
        profiles.push((format!("{read_percent} % gets"), run(&plan)?));
    }
    let columns: Vec<_> = profiles.iter().map(|(name, profile)| (name.as_str(), profile)).collect();
    print!("{}", markdown(&columns));
    println!();
    for (name, profile) in &profiles {
        let unnamed: Vec<_> =
            profile.unnamed.iter().map(|(name, samples)| format!("{name} {samples}")).collect();
        println!(
            "{name}: {} samples in the tree, {} in the loop that calls it; other: {}",
            profile.samples,
            profile.driver_samples,
            unnamed.join(", ")
        );
    }
    if let Some(path) = &args.json {
        let mut lines = String::new();
        for (mix, profile) in &profiles {
            for share in &profile.shares {
                let row = serde_json::json!({
                    "operation_mix": mix,
                    "domain": args.profile_domain,
                    "records": args.records,
                    "threads": args.threads,
                    "component": share.component.name(),
                    "samples": share.samples,
                    "percent": share.percent,
                    "samples_in_the_tree": profile.samples,
                });
                lines += &format!("{row}\n");
            }
        }
        crate::report::write(path, &lines)?;
    }
    Ok(())
}

/// This program, by its own name: `perf` tells files by it.
fn executable() -> Result<PathBuf, Error> {
    let what = |error: std::io::Error| Error::Child { what: format!("cannot be found: {error}") };
    std::env::current_exe().and_then(|path| path.canonicalize()).map_err(what)
}
