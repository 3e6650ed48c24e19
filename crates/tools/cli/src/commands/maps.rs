//! `drop` and `indexes`: operations on whole maps, and the indexes that a map can have.

use pando::IndexInfo;

use crate::arguments::{DropArguments, IndexesArguments, PoolArguments};
use crate::failure::Failure;
use crate::output::{self, Output};

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
    output::report(pando::indexes().as_slice(), arguments.json, print)
}

fn print(indexes: &[IndexInfo], output: &mut Output) -> Result<(), Failure> {
    for (place, index) in indexes.iter().enumerate() {
        let default = if place == 0 { " (the default)" } else { "" };
        output.line(format_args!("{}{default}: {}", index.name, index.what))?;
        for option in &index.options {
            let (name, value) = (option.name, &option.default);
            output.line(format_args!("  --set {name}={value}  {}", option.what))?;
            output.line(format_args!("      allowed is {}", option.allowed))?;
        }
    }
    Ok(())
}
