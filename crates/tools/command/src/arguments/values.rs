//! Values that the options of several commands take.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use pando::DomainChoice;

use crate::quantity::number;

/// A number of writing threads.
pub fn writers() -> impl TypedValueParser<Value = u16> {
    number(1..=1024)
}

/// The name of a persistence domain.
pub fn domain() -> impl TypedValueParser<Value = DomainChoice> {
    let help = |choice| match choice {
        DomainChoice::Auto => "the strongest guarantee that the medium has",
        DomainChoice::Process => "a write that has returned survives kill -9",
        _ => {
            "on persistent memory, a write that has returned survives a power cut: each cache line \
             is written back and fenced"
        }
    };
    let value = |choice: DomainChoice| PossibleValue::new(choice.name()).help(help(choice));
    PossibleValuesParser::new(DomainChoice::ALL.map(value)).try_map(|name| name.parse())
}

/// The name of an index.
pub fn index() -> PossibleValuesParser {
    PossibleValuesParser::new(pando::indexes().iter().map(|index| index.name))
}

/// An option of an index.
pub fn index_option(text: &str) -> Result<(String, String), &'static str> {
    name_and_value(text).ok_or("expected NAME=VALUE, such as leaf_bytes=4096")
}

/// A config parameter of a server.
pub fn config_parameter(text: &str) -> Result<(String, String), &'static str> {
    name_and_value(text).ok_or("expected NAME=VALUE, such as maxclients=100")
}

fn name_and_value(text: &str) -> Option<(String, String)> {
    text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
}
