//! The options of a map: a table for each index, and the values with which a map was created.
//!
//! An index declares its options by [`options!`](crate::options). The resulting table
//! ([`OptionSpec`]) is the only place with names, defaults and ranges: parsing, checks, the words
//! of the map's header, messages and help follow from it. An index is opened with its own struct
//! ([`IndexOptions`]); layers that know no index pass [`OptionValues`].
//!
//! ```text
//! options of a map header, 4 words: the value of each option, in order of the table
//!
//! byte   0         4         8         ..    28         31
//! 0      value 0   value 1   value 2         value 7         u32 each; 0 behind the last
//! ```

use std::fmt;
use std::ops::RangeInclusive;

/// The most options of an index.
pub const MAX_OPTIONS: usize = 8;

/// An option of a map. Its value is stored with the map, which always opens as it was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionSpec {
    /// Its name; that of a size ends with its unit.
    pub name: &'static str,
    /// Its effect, in one line.
    pub what: &'static str,
    /// Its default.
    pub default: u32,
    /// Its allowed values.
    pub allowed: Allowed,
    /// Whether only experiments set it: the library and the command refuse other values than the
    /// default, and do not list it.
    pub is_experimental: bool,
}

/// The allowed values of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// A number in a range, both ends included.
    Number(RangeInclusive<u32>),
    /// One of these words, stored as its place in the list.
    OneOf(&'static [&'static str]),
}

impl fmt::Display for Allowed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(range) => write!(formatter, "{} to {}", range.start(), range.end()),
            Self::OneOf(words) => formatter.write_str(&words.join(" or ")),
        }
    }
}

/// An unknown option, or a value that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option} is {found}; allowed is {allowed}")]
pub struct BadOption {
    /// The option's name.
    pub option: String,
    /// The given value.
    pub found: String,
    /// The allowed values.
    pub allowed: String,
}

impl BadOption {
    /// An error about `option`, whose value is `found`.
    pub fn new(option: &str, found: impl fmt::Display, allowed: String) -> Self {
        Self { option: option.to_owned(), found: found.to_string(), allowed }
    }
}

impl OptionSpec {
    /// The value that `text` stands for.
    fn parse(&self, text: &str) -> Result<u32, BadOption> {
        let found = match &self.allowed {
            Allowed::Number(range) => text.parse().ok().filter(|value| range.contains(value)),
            Allowed::OneOf(words) => {
                words.iter().position(|word| *word == text).map(|place| place as u32)
            }
        };
        found.ok_or_else(|| self.refuse(text))
    }

    fn refuse(&self, found: impl fmt::Display) -> BadOption {
        BadOption::new(self.name, found, self.allowed.to_string())
    }

    fn allows(&self, value: u32) -> bool {
        match &self.allowed {
            Allowed::Number(range) => range.contains(&value),
            Allowed::OneOf(words) => (value as usize) < words.len(),
        }
    }

    /// A value as text for [`OptionValues::set`].
    pub fn text(&self, value: u32) -> String {
        match &self.allowed {
            Allowed::Number(_) => value.to_string(),
            Allowed::OneOf(words) => {
                words.get(value as usize).map_or_else(|| value.to_string(), |&word| word.to_owned())
            }
        }
    }
}

/// The values of all options of a map, each in its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionValues {
    table: &'static [OptionSpec],
    values: [u32; MAX_OPTIONS],
}

impl OptionValues {
    /// The defaults of `table`.
    pub fn new(table: &'static [OptionSpec]) -> Self {
        assert!(table.len() <= MAX_OPTIONS, "a map header has room for {MAX_OPTIONS} options");
        let mut values = [0; MAX_OPTIONS];
        table.iter().zip(&mut values).for_each(|(option, value)| *value = option.default);
        Self { table, values }
    }

    /// Whether they are values of this table.
    pub fn are_of(&self, table: &[OptionSpec]) -> bool {
        let names = |table: &[OptionSpec]| table.iter().map(|one| one.name).collect::<Vec<_>>();
        names(self.table) == names(table)
    }

    /// Reads the words of a map header.
    pub fn decode(table: &'static [OptionSpec], words: [u64; 4]) -> Result<Self, BadOption> {
        let mut values = Self::new(table);
        let halves = words.into_iter().flat_map(|word| [word as u32, (word >> 32) as u32]);
        for (place, value) in halves.enumerate() {
            match table.get(place) {
                Some(option) if option.allows(value) => values.values[place] = value,
                Some(option) => return Err(option.refuse(value)),
                None if value == 0 => {}
                None => {
                    return Err(BadOption {
                        option: format!("option {place}, which this version does not know,"),
                        found: value.to_string(),
                        allowed: "0".to_owned(),
                    });
                }
            }
        }
        Ok(values)
    }

    /// The words of a map header.
    pub fn encode(&self) -> [u64; 4] {
        let pair = |word: usize| &self.values[2 * word..2 * word + 2];
        [0, 1, 2, 3].map(|word| u64::from(pair(word)[0]) | u64::from(pair(word)[1]) << 32)
    }

    /// The values of these numbers, in order of the table; an error if one is not allowed.
    fn of(table: &'static [OptionSpec], values: [u32; MAX_OPTIONS]) -> Result<Self, BadOption> {
        match table.iter().zip(values).find(|&(option, value)| !option.allows(value)) {
            Some((option, value)) => Err(option.refuse(value)),
            None => Ok(Self { table, values }),
        }
    }

    /// Sets the option `name` to the value `text`: a number, or one of its words.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), BadOption> {
        let Some(place) = self.table.iter().position(|option| option.name == name) else {
            let names: Vec<_> = self.table.iter().map(|option| option.name).collect();
            let allowed = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(BadOption {
                option: "the name of an option".to_owned(),
                found: name.to_owned(),
                allowed,
            });
        };
        self.values[place] = self.table[place].parse(text)?;
        Ok(())
    }

    /// The value of the option `name`, which must be in the index's table.
    pub fn value(&self, name: &str) -> u32 {
        let place = self.table.iter().position(|option| option.name == name);
        self.values[place.expect("an index asks for values of its own table only")]
    }

    /// Refuses an option that only experiments set, unless it has its default.
    pub fn check_product(&self) -> Result<(), BadOption> {
        let is_set = |(option, value): &(&OptionSpec, u32)| *value != option.default;
        match self.iter().filter(|(option, _)| option.is_experimental).find(is_set) {
            Some((option, value)) => Err(BadOption::new(
                option.name,
                option.text(value),
                format!("{}: other values are for experiments", option.text(option.default)),
            )),
            None => Ok(()),
        }
    }

    /// Each option with its value, in order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (&'static OptionSpec, u32)> + '_ {
        self.table.iter().zip(self.values)
    }
}

/// The options of an index as a struct, declared by [`options!`](crate::options).
pub trait IndexOptions: Copy + Default + PartialEq + fmt::Debug + Send + Sync + 'static {
    /// The table of options, in the order of the fields.
    const SPECS: &'static [OptionSpec];

    /// The options with these values, which must be of this table.
    fn of(values: &OptionValues) -> Self;

    /// The fields as numbers, zero behind the last.
    fn numbers(self) -> [u32; MAX_OPTIONS];

    /// Whether options that are each in range contradict each other.
    fn check(&self) -> Result<(), BadOption> {
        Ok(())
    }

    /// The defaults, changed by `words`: a name, and a number or one of its words.
    fn parse(words: &[(&str, &str)]) -> Result<Self, BadOption> {
        let mut values = OptionValues::new(Self::SPECS);
        words.iter().try_for_each(|(name, text)| values.set(name, text))?;
        Ok(Self::of(&values))
    }

    /// The values of these options; an error if one is out of its range, or if they contradict each
    /// other.
    fn values(self) -> Result<OptionValues, BadOption> {
        let values = OptionValues::of(Self::SPECS, self.numbers())?;
        self.check()?;
        Ok(values)
    }
}

/// No options.
impl IndexOptions for () {
    const SPECS: &'static [OptionSpec] = &[];

    fn of(_: &OptionValues) -> Self {}

    fn numbers(self) -> [u32; MAX_OPTIONS] {
        [0; MAX_OPTIONS]
    }
}

/// The type of an option: a number, or a choice whose number is its place in the list of words.
pub trait OptionType: Copy + PartialEq + 'static {
    /// The choices, in the order of the words.
    const CHOICES: &'static [Self] = &[];

    /// The value of an allowed number.
    fn of(number: u32) -> Self {
        Self::CHOICES[number as usize % Self::CHOICES.len()]
    }

    /// The number of the value.
    fn number(self) -> u32 {
        Self::CHOICES.iter().position(|&choice| choice == self).unwrap_or(0) as u32
    }
}

impl OptionType for u32 {
    fn of(number: u32) -> Self {
        number
    }

    fn number(self) -> u32 {
        self
    }
}

impl OptionType for bool {
    const CHOICES: &'static [Self] = &[false, true];
}

/// Declares the options of an index: a struct that is [`IndexOptions`](crate::maps::IndexOptions).
///
/// Each line has a name, a type ([`OptionType`](crate::maps::OptionType)), the allowed values (a
/// range of numbers, or words), the default (a number, or the place of a word) and a line of help,
/// which becomes the documentation of the field. `experimental` behind that marks an option that
/// only experiments set. A function checks for options that contradict each other.
///
/// ```
/// use pando_tree::maps::{BadOption, IndexOptions};
///
/// pando_tree::options! {
///     /// The shape of a tree.
///     pub struct Options checked by check {
///         leaf_bytes: u32 [256..=65_536] = 2048, "a larger leaf is split";
///         even: bool ["off", "on"] = 1, "records are spread evenly";
///     }
/// }
///
/// fn check(_: &Options) -> Result<(), BadOption> {
///     Ok(())
/// }
///
/// assert_eq!(Options::default(), Options { leaf_bytes: 2048, even: true });
/// assert!(Options { leaf_bytes: 1, even: true }.values().is_err());
/// ```
#[macro_export]
macro_rules! options {
    (
        $(#[$attribute:meta])*
        pub struct $options:ident $(checked by $check:ident)? {
            $($name:ident: $type:ty [$($allowed:tt)+] = $default:expr, $what:literal
                $(, $experimental:ident)?;)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $options {
            $(#[doc = $what] pub $name: $type,)+
        }

        impl Default for $options {
            fn default() -> Self {
                Self { $($name: $crate::maps::OptionType::of($default)),+ }
            }
        }

        impl $crate::maps::IndexOptions for $options {
            const SPECS: &'static [$crate::maps::OptionSpec] = &[
                $($crate::maps::OptionSpec {
                    name: stringify!($name),
                    what: $what,
                    default: $default,
                    allowed: $crate::options!(@allowed $($allowed)+),
                    is_experimental: $crate::options!(@is_experimental $($experimental)?),
                }),+
            ];

            fn of(values: &$crate::maps::OptionValues) -> Self {
                Self { $($name: $crate::maps::OptionType::of(values.value(stringify!($name)))),+ }
            }

            fn numbers(self) -> [u32; $crate::maps::MAX_OPTIONS] {
                let mut numbers = [0; $crate::maps::MAX_OPTIONS];
                let own = [$($crate::maps::OptionType::number(self.$name)),+];
                numbers[..own.len()].copy_from_slice(&own);
                numbers
            }

            $(fn check(&self) -> Result<(), $crate::maps::BadOption> {
                $check(self)
            })?
        }
    };
    (@allowed $($word:literal),+) => { $crate::maps::Allowed::OneOf(&[$($word),+]) };
    (@is_experimental experimental) => { true };
    (@is_experimental) => { false };
    (@allowed $range:expr) => { $crate::maps::Allowed::Number($range) };
}

#[cfg(test)]
mod tests {
    use super::*;

    static TABLE: [OptionSpec; 3] = [
        OptionSpec {
            name: "leaf_bytes",
            what: "",
            default: 2048,
            allowed: Allowed::Number(256..=65_536),
            is_experimental: false,
        },
        OptionSpec {
            name: "mode",
            what: "",
            default: 0,
            allowed: Allowed::OneOf(&["plain", "odd"]),
            is_experimental: true,
        },
        OptionSpec {
            name: "spare_bytes",
            what: "",
            default: 7,
            allowed: Allowed::Number(0..=9),
            is_experimental: false,
        },
    ];

    #[test]
    fn golden_values() {
        let mut values = OptionValues::new(&TABLE);
        values.set("mode", "odd").unwrap();
        assert_eq!(values.encode(), [1 << 32 | 2048, 7, 0, 0]);
        assert_eq!(OptionValues::decode(&TABLE, values.encode()), Ok(values));
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        let mut values = OptionValues::new(&TABLE);
        let refused = |result: Result<(), BadOption>| result.unwrap_err().to_string();
        assert_eq!(
            refused(values.set("leaf_bytes", "1")),
            "leaf_bytes is 1; allowed is 256 to 65536"
        );
        assert_eq!(refused(values.set("mode", "even")), "mode is even; allowed is plain or odd");
        assert!(refused(values.set("leaf", "1")).ends_with("leaf_bytes, mode, spare_bytes"));
        assert_eq!(values, OptionValues::new(&TABLE));
    }

    #[test]
    fn a_product_keeps_the_defaults_of_what_experiments_set() {
        let mut values = OptionValues::new(&TABLE);
        values.set("spare_bytes", "1").unwrap();
        assert_eq!(values.check_product(), Ok(()));
        values.set("mode", "odd").unwrap();
        let refused = values.check_product().unwrap_err().to_string();
        assert_eq!(refused, "mode is odd; allowed is plain: other values are for experiments");
    }

    #[test]
    fn damaged_words_are_refused() {
        let intact = OptionValues::new(&TABLE).encode();
        for (word, bits) in [(0, 1), (0, 2 << 32), (1, 1 << 10), (1, 1 << 32), (3, 1)] {
            let mut words = intact;
            words[word] ^= bits;
            let changed = OptionValues::decode(&TABLE, words);
            assert!(changed.is_err() || (word, bits) == (0, 1), "{word}, {bits}");
        }
    }
}
