//! Figure 8: what the size of keys, and the free space of leaves, do to throughput.

use indicatif::ProgressBar;
use pando_bztree::Options;

use super::{
    Grid, PAGES_OF_1_KIB, READ_HEAVY, READ_ONLY, build_with, conditions, plan, system, throughput,
};
use crate::error::Error;
use crate::experiment::Settings;
use crate::outcome::{Measured, Outcome, Published};
use pando_bench::compare;
use pando_bench::key_sampler::KeyChoice;
use pando_bench::plan::{NamedSystem, Plan};
use pando_bench::record::Shape;
use pando_bench::spread::Spread;

const KEY_BYTES: [usize; 5] = [8, 16, 32, 64, 128];
const FREE_BYTES: [u32; 5] = [512, 256, 128, 64, 32];
const MIXES: [pando_bench::operation_mix::OperationMix; 2] = [READ_ONLY, READ_HEAVY];

fn grid(shape: Shape) -> Grid<'static> {
    Grid { systems: &["bztree"], mixes: &MIXES, keys: KeyChoice::Uniform, shape, records: 200_000 }
}

/// The plan at the most threads alone: the paper's figure has no others.
fn at_most_threads(shape: Shape, settings: &Settings) -> Plan {
    let plan = plan(&grid(shape), settings);
    let most = plan.threads.iter().copied().max().unwrap_or(1);
    Plan { threads: vec![most], ..plan }
}

/// Figure 8: key sizes from 8 to 128 bytes, then free space from 512 to 32 bytes.
pub fn figure_8(settings: &Settings, progress: &ProgressBar) -> Result<Outcome, Error> {
    let mut outcome = Outcome::default();
    key_sizes(&mut outcome, settings, progress)?;
    progress.reset();
    free_space(&mut outcome, settings, progress)?;
    Ok(outcome)
}

/// Trees of different keys cannot run side by side, so the sizes take turns, each loaded anew in
/// each round.
fn key_sizes(
    outcome: &mut Outcome,
    settings: &Settings,
    progress: &ProgressBar,
) -> Result<(), Error> {
    let rounds = settings.rounds.unwrap_or(3);
    // By size, then mix: the throughput of each round.
    let mut found = vec![vec![Vec::new(); MIXES.len()]; KEY_BYTES.len()];
    for round in 0..rounds {
        for turn in 0..KEY_BYTES.len() {
            let size = (round + turn) % KEY_BYTES.len();
            let shape = Shape { key_bytes: KEY_BYTES[size], ..Shape::EIGHT };
            let plan = Plan { rounds: 1, ..at_most_threads(shape, settings) };
            let system = system("bztree", &plan, &build_with(settings, PAGES_OF_1_KIB))?;
            progress.reset();
            for row in compare::run(&plan, &[system], progress)? {
                if let Some(mix) = MIXES.iter().position(|mix| mix.name == row.operation_mix) {
                    found[size][mix].push(row.ops_per_second);
                }
            }
        }
    }
    outcome.conditions = conditions(&Plan { rounds, ..at_most_threads(Shape::EIGHT, settings) });
    for (mix, drop) in MIXES.iter().zip([("39", "8 to 128 bytes"), ("46", "8 to 128 bytes")]) {
        let at = MIXES.iter().position(|other| other.name == mix.name).unwrap_or(0);
        for (size, bytes) in KEY_BYTES.iter().enumerate() {
            let spread = Spread::of(&found[size][at]);
            let mega = Spread {
                median: spread.median / 1e6,
                min: spread.min / 1e6,
                max: spread.max / 1e6,
            };
            outcome.push(
                format!("{}, keys of {bytes} bytes", mix.name),
                "M ops/s",
                None,
                Some(Measured::new(mega, "")),
            );
        }
        let last = KEY_BYTES.len() - 1;
        let drops: Vec<_> = found[0][at]
            .iter()
            .zip(&found[last][at])
            .map(|(short, long)| (1.0 - long / short.max(1e-9)) * 100.0)
            .collect();
        let ours = Measured::new(Spread::of(&drops), "8 to 128 bytes");
        outcome.push(
            format!("{}, drop with long keys", mix.name),
            "%",
            Some(Published::text(drop.0, drop.1)),
            Some(ours),
        );
    }
    Ok(())
}

fn free_space(
    outcome: &mut Outcome,
    settings: &Settings,
    progress: &ProgressBar,
) -> Result<(), Error> {
    let plan = at_most_threads(Shape::EIGHT, settings);
    let system = |&free_bytes: &u32| {
        let options = Options { free_bytes, ..PAGES_OF_1_KIB };
        let system = system("bztree", &plan, &build_with(settings, options))?;
        Ok(NamedSystem { name: format!("{free_bytes} bytes"), ..system })
    };
    let systems = FREE_BYTES.iter().map(system).collect::<Result<Vec<_>, Error>>()?;
    let rows = compare::run(&plan, &systems, progress)?;
    for mix in &MIXES {
        let of_mix = || rows.iter().filter(|row| row.operation_mix == mix.name);
        for row in of_mix() {
            outcome.push(
                format!("{}, free space of {}", mix.name, row.system),
                "M ops/s",
                None,
                Some(throughput(row)),
            );
        }
        let smallest = systems.last().map_or("", |system| system.name.as_str());
        if let Some(row) = of_mix().find(|row| row.system == smallest) {
            let gain = |ratio: f64| (ratio - 1.0) * 100.0;
            let spread = Spread {
                median: gain(row.ratio_to_first),
                min: gain(row.ratio_min),
                max: gain(row.ratio_max),
            };
            let paper =
                (mix.name == READ_ONLY.name).then(|| Published::text("45", "512 to 32 bytes"));
            outcome.push(
                format!("{}, gain with little free space", mix.name),
                "%",
                paper,
                Some(Measured::new(spread, "512 to 32 bytes")),
            );
        }
        if mix.name == READ_HEAVY.name {
            let best =
                of_mix().max_by(|left, right| left.ops_per_second.total_cmp(&right.ops_per_second));
            let bytes =
                best.and_then(|row| row.system.split(' ').next()?.parse().ok()).unwrap_or(0.0);
            let paper = Some(Published::text("128", ""));
            outcome.push(
                format!("{}, best free space", mix.name),
                "bytes",
                paper,
                Some(Measured::exact(bytes, "")),
            );
        }
    }
    Ok(())
}
