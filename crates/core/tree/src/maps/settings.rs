//! What a user may set of a map: a table of each index, and the values that a map was created with.
//!
//! The table is the only place that knows names, defaults and ranges: checking, the words of the
//! map's header, messages and help follow from it.
//!
//! ```text
//! options of a map header, 4 words: the value of each setting, in order of the table
//!
//! byte   0         4         8         ..    28         31
//! 0      value 0   value 1   value 2         value 7         u32 each; 0 behind the last
//! ```

use std::fmt;
use std::ops::RangeInclusive;

/// How many settings a kind of index can have.
pub const MAX_SETTINGS: usize = 8;

/// Something that a user may set of a map; kept with the map, so that it opens as it was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its name; one of a size ends with its unit.
    pub name: &'static str,
    /// What it does, in a line.
    pub what: &'static str,
    /// Its value if it is not set.
    pub default: u32,
    /// What it may be.
    pub allowed: Allowed,
}

/// What a setting may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// A number in a range, both ends included.
    Number(RangeInclusive<u32>),
    /// One of these words, kept as its place in the list.
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

/// A setting that there is not, or a value that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting} is {found}; allowed is {allowed}")]
pub struct BadSetting {
    /// The setting's name.
    pub setting: String,
    /// What was given.
    pub found: String,
    /// What is allowed.
    pub allowed: String,
}

impl Setting {
    /// The value that `text` stands for.
    fn parse(&self, text: &str) -> Result<u32, BadSetting> {
        let found = match &self.allowed {
            Allowed::Number(range) => text.parse().ok().filter(|value| range.contains(value)),
            Allowed::OneOf(words) => {
                words.iter().position(|word| *word == text).map(|place| place as u32)
            }
        };
        found.ok_or_else(|| self.refuse(text))
    }

    fn refuse(&self, found: impl fmt::Display) -> BadSetting {
        BadSetting {
            setting: self.name.to_owned(),
            found: found.to_string(),
            allowed: self.allowed.to_string(),
        }
    }

    fn allows(&self, value: u32) -> bool {
        match &self.allowed {
            Allowed::Number(range) => range.contains(&value),
            Allowed::OneOf(words) => (value as usize) < words.len(),
        }
    }

    /// A value as text, as [`Settings::set`] takes it.
    pub fn text(&self, value: u32) -> String {
        match &self.allowed {
            Allowed::Number(_) => value.to_string(),
            Allowed::OneOf(words) => {
                words.get(value as usize).map_or_else(|| value.to_string(), |&word| word.to_owned())
            }
        }
    }
}

/// The values of all settings of a map, each in its range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    table: &'static [Setting],
    values: [u32; MAX_SETTINGS],
}

impl Settings {
    /// The defaults of `table`.
    pub fn new(table: &'static [Setting]) -> Self {
        assert!(table.len() <= MAX_SETTINGS, "a map header has room for {MAX_SETTINGS} settings");
        let mut values = [0; MAX_SETTINGS];
        table.iter().zip(&mut values).for_each(|(setting, value)| *value = setting.default);
        Self { table, values }
    }

    /// Whether they are of a kind of map that has this table.
    pub fn are_of(&self, table: &[Setting]) -> bool {
        let names = |table: &[Setting]| table.iter().map(|one| one.name).collect::<Vec<_>>();
        names(self.table) == names(table)
    }

    /// Reads the words of a map header.
    pub fn decode(table: &'static [Setting], words: [u64; 4]) -> Result<Self, BadSetting> {
        let mut settings = Self::new(table);
        let halves = words.into_iter().flat_map(|word| [word as u32, (word >> 32) as u32]);
        for (place, value) in halves.enumerate() {
            match table.get(place) {
                Some(setting) if setting.allows(value) => settings.values[place] = value,
                Some(setting) => return Err(setting.refuse(value)),
                None if value == 0 => {}
                None => {
                    return Err(BadSetting {
                        setting: format!("setting {place}, which this version does not know,"),
                        found: value.to_string(),
                        allowed: "0".to_owned(),
                    });
                }
            }
        }
        Ok(settings)
    }

    /// The words of a map header.
    pub fn encode(&self) -> [u64; 4] {
        let pair = |word: usize| &self.values[2 * word..2 * word + 2];
        [0, 1, 2, 3].map(|word| u64::from(pair(word)[0]) | u64::from(pair(word)[1]) << 32)
    }

    /// Sets the setting `name` to what `text` stands for: a number, or one of its words.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), BadSetting> {
        let Some(place) = self.table.iter().position(|setting| setting.name == name) else {
            let names: Vec<_> = self.table.iter().map(|setting| setting.name).collect();
            let allowed = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(BadSetting {
                setting: "the name of a setting".to_owned(),
                found: name.to_owned(),
                allowed,
            });
        };
        self.values[place] = self.table[place].parse(text)?;
        Ok(())
    }

    /// The value of the setting `name`, which the index's own table has.
    pub fn value(&self, name: &str) -> u32 {
        let place = self.table.iter().position(|setting| setting.name == name);
        self.values[place.expect("an index asks for settings of its own table only")]
    }

    /// Each setting with its value, in order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Setting, u32)> + '_ {
        self.table.iter().zip(self.values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static TABLE: [Setting; 3] = [
        Setting {
            name: "leaf_bytes",
            what: "",
            default: 2048,
            allowed: Allowed::Number(256..=65_536),
        },
        Setting { name: "mode", what: "", default: 0, allowed: Allowed::OneOf(&["plain", "odd"]) },
        Setting { name: "spare_bytes", what: "", default: 7, allowed: Allowed::Number(0..=9) },
    ];

    #[test]
    fn golden_settings() {
        let mut settings = Settings::new(&TABLE);
        settings.set("mode", "odd").unwrap();
        assert_eq!(settings.encode(), [1 << 32 | 2048, 7, 0, 0]);
        assert_eq!(Settings::decode(&TABLE, settings.encode()), Ok(settings));
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        let mut settings = Settings::new(&TABLE);
        let refused = |result: Result<(), BadSetting>| result.unwrap_err().to_string();
        assert_eq!(
            refused(settings.set("leaf_bytes", "1")),
            "leaf_bytes is 1; allowed is 256 to 65536"
        );
        assert_eq!(refused(settings.set("mode", "even")), "mode is even; allowed is plain or odd");
        assert!(refused(settings.set("leaf", "1")).ends_with("leaf_bytes, mode, spare_bytes"));
        assert_eq!(settings, Settings::new(&TABLE));
    }

    #[test]
    fn damaged_words_are_refused() {
        let sound = Settings::new(&TABLE).encode();
        for (word, bits) in [(0, 1), (0, 2 << 32), (1, 1 << 10), (1, 1 << 32), (3, 1)] {
            let mut words = sound;
            words[word] ^= bits;
            let changed = Settings::decode(&TABLE, words);
            assert!(changed.is_err() || (word, bits) == (0, 1), "{word}, {bits}");
        }
    }
}
