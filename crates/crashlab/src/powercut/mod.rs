//! In the making.

use crate::failure::Failure;

/// Options of the verb.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs the verb.
pub fn run(_args: &Args) -> Result<(), Failure> {
    Err(Failure::Trouble("this verb is not there yet".into()))
}
