//! The systems that a command names.

use crate::apart::{self, Limits};
use crate::error::Error;
use crate::operation_mix::OperationMix;
use crate::plan::NamedSystem;
use crate::record::Shape;
use crate::systems::entry::BuildOptions;
use crate::systems::{self, SystemName};

/// The systems of these names, with space for `records` records; each in a process of its own if
/// there are `limits`.
pub fn named_systems(
    names: &[SystemName],
    records: u64,
    shape: Shape,
    options: &BuildOptions,
    limits: Option<&Limits>,
) -> Vec<NamedSystem> {
    let options = options.clone().for_records(records, shape);
    let system = |&name: &SystemName| NamedSystem {
        name: name.to_string(),
        build: match limits {
            None => systems::builder(name, shape, &options),
            Some(limits) => apart::builder(name, (records, shape), &options, limits),
        },
    };
    names.iter().map(system).collect()
}

/// Refuses operations and records that a system does not support, before the load.
pub fn check_limits(
    names: &[SystemName],
    shape: Shape,
    mixes: &[OperationMix],
) -> Result<(), Error> {
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
