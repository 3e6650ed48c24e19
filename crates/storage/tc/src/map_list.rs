//! The list of a pool's maps: the payload of a record of the log, and part of an image.
//!
//! ```text
//! byte      0        8        16       24       28       32 ..
//!           magic    version  max size maps     zero     the maps
//!
//! map       0        8        16 ..             48       52       56 ..
//!           number   kind     options, 4 words  name     zero     name
//! ```
//!
//! * A record of the log has it after each change of the catalog, and before the first write to a
//!   new map. So a list replaces all earlier ones. No commit begins with its magic number: there
//!   the first word says why the commit has failed, and in a log none has.
//! * `version` is the catalog's version; `max size` the limit of the pool's size in bytes, with
//!   which a lost pool is created again.
//! * `number` is zero for a map that is not transactional.

use crate::rest::Rest;

const MAGIC: [u8; 8] = *b"PANDOml1";

/// A map in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedMap {
    /// Its name.
    pub name: String,
    /// The number of its index.
    pub kind: u64,
    /// The options of the index, in its encoding.
    pub options: [u64; 4],
    /// The number of a transactional map; zero of another one.
    pub number: u64,
}

/// The maps of a pool at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapList {
    /// The version of the catalog.
    pub version: u64,
    /// The limit of the pool's size, in bytes.
    pub max_bytes: u64,
    /// The maps, in any order.
    pub maps: Vec<ListedMap>,
}

impl MapList {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&self.max_bytes.to_le_bytes());
        // A pool has at most 1,024 maps.
        bytes.extend_from_slice(&(self.maps.len() as u64).to_le_bytes());
        for ListedMap { name, kind, options, number } in &self.maps {
            for word in [*number, *kind].iter().chain(options) {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
            bytes.extend_from_slice(&(name.len() as u64).to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes
    }

    /// Whether a payload of a record is a list, and no commit.
    pub(crate) fn is_one(payload: &[u8]) -> bool {
        payload.starts_with(&MAGIC)
    }

    /// The list with these bytes; `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Rest(bytes.strip_prefix(&MAGIC)?);
        let [version, max_bytes] = [rest.number()?, rest.number()?];
        let [maps, _] = rest.numbers()?;
        let mut list = Self { version, max_bytes, maps: Vec::new() };
        for _ in 0..maps {
            let [number, kind] = [rest.number()?, rest.number()?];
            let mut options = [0; 4];
            for word in &mut options {
                *word = rest.number()?;
            }
            let [name, _] = rest.numbers()?;
            let name = std::str::from_utf8(rest.take(name as usize)?).ok()?.to_owned();
            list.maps.push(ListedMap { name, kind, options, number });
        }
        rest.0.is_empty().then_some(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Commit, push_redo};

    #[test]
    fn it_goes_to_the_disk_as_it_is() {
        let mut redo = Vec::new();
        push_redo(&example().encode(), &mut redo);
        assert_eq!(MapList::decode(&redo), Some(example()));
    }

    fn example() -> MapList {
        let map = |name: &str, number| ListedMap {
            name: name.to_owned(),
            kind: 3,
            options: [1, 2, 0, 4],
            number,
        };
        MapList { version: 9, max_bytes: 1 << 30, maps: vec![map("oak", 7), map("", 0)] }
    }

    #[test]
    fn golden_bytes_of_a_list() {
        let options = b"\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0";
        let expected = [
            &b"PANDOml1\x09\0\0\0\0\0\0\0\0\0\0\x40\0\0\0\0\x02\0\0\0\0\0\0\0"[..],
            b"\x07\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0",
            options,
            b"\x03\0\0\0\0\0\0\0oak",
            b"\0\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0",
            options,
            b"\0\0\0\0\0\0\0\0",
        ];
        assert_eq!(example().encode(), expected.concat());
        assert_eq!(MapList::decode(&example().encode()), Some(example()));
    }

    #[test]
    fn a_list_that_is_cut_or_longer_is_none() {
        let bytes = example().encode();
        for len in 0..bytes.len() {
            assert_eq!(MapList::decode(&bytes[..len]), None, "{len} bytes");
        }
        assert_eq!(MapList::decode(&[&bytes[..], &[0]].concat()), None);
        assert!(MapList::is_one(&bytes) && !MapList::is_one(&Commit::default().encode()));
    }
}
