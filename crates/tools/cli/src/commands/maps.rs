//! `drop` and `indexes`: maps as wholes, and what they can be.

use super::stat::json;
use crate::arguments::{DropArguments, IndexesArguments, PoolArguments};
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

/// Prints the indexes.
pub fn indexes(arguments: &IndexesArguments) -> Result<(), Failure> {
    let indexes = pando::indexes();
    let mut output = Output::new();
    if arguments.json {
        output.line(json(&indexes)?)?;
        return output.flush();
    }
    for (place, index) in indexes.iter().enumerate() {
        let default = if place == 0 { " (the default)" } else { "" };
        output.line(format_args!("{}{default}: {}", index.name, index.what))?;
        for option in &index.options {
            let (name, value) = (option.name, &option.default);
            output.line(format_args!("  --set {name}={value}  {}", option.what))?;
            output.line(format_args!("      allowed is {}", option.allowed))?;
        }
    }
    output.flush()
}
