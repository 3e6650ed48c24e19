//! `drop` and `kinds`: maps as wholes, and what they can be.

use super::stat::json;
use crate::arguments::{DropArguments, KindsArguments, PoolArguments};
use crate::failure::Failure;
use crate::output::Output;

/// Drops a map.
pub fn drop(pool: &PoolArguments, arguments: &DropArguments) -> Result<(), Failure> {
    let name = arguments.force.check(arguments.name.as_deref().unwrap_or_default())?;
    let pool = pool.open()?;
    match arguments.slot.slot {
        Some(slot) => pool.drop_slot(slot, &arguments.slot.options())?,
        None => pool.drop_map(name)?,
    }
    Ok(pool.close()?)
}

/// Prints the kinds.
pub fn kinds(arguments: &KindsArguments) -> Result<(), Failure> {
    let kinds = pando::kinds();
    let mut output = Output::new();
    if arguments.json {
        output.line(json(&kinds)?)?;
        return output.flush();
    }
    for (place, kind) in kinds.iter().enumerate() {
        let default = if place == 0 { " (the default)" } else { "" };
        output.line(format_args!("{}{default}: {}", kind.name, kind.what))?;
        for setting in &kind.settings {
            let (name, value) = (setting.name, &setting.default);
            output.line(format_args!("  --set {name}={value}  {}", setting.what))?;
            output.line(format_args!("      allowed is {}", setting.allowed))?;
        }
    }
    output.flush()
}
