//! `get`, `put` and `del`: one record at a time.

use std::ffi::OsString;
use std::io::Read;

use crate::arguments::{DelArguments, GetArguments, PoolArguments, PutArguments};
use crate::failure::Failure;
use crate::format::{OutputFormat, escape};
use crate::output::Output;
use crate::pool_access::{argument_bytes, open_or_create_map};

/// Prints the values of keys. If some are absent, the others are printed all the same.
pub fn get(pool: &PoolArguments, arguments: &GetArguments) -> Result<(), Failure> {
    let keys = keys(&arguments.keys)?;
    if arguments.raw && keys.len() > 1 {
        return Err(Failure::Input(format!(
            "--raw is for one key, and there are {}; without it, each value has a line",
            keys.len()
        )));
    }
    let name = arguments.map.checked_name()?;
    let pool = pool.open()?;
    let lent: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let values = pool.open_map(name)?.get_many(&lent)?;
    pool.close()?;
    let mut output = Output::new();
    let (mut line, mut missing) = (Vec::new(), None);
    for (key, value) in keys.iter().zip(&values) {
        line.clear();
        match value {
            None => missing = missing.or(Some(key)),
            Some(value) if arguments.raw => line.extend_from_slice(value),
            Some(value) if keys.len() > 1 => OutputFormat::Tsv.append(key, value, &mut line),
            Some(value) => {
                escape::append(value, &mut line);
                line.push(b'\n');
            }
        }
        output.bytes(&line)?;
    }
    output.flush()?;
    missing.map_or(Ok(()), |key| Err(not_there(key, name)))
}

/// Writes a record.
pub fn put(pool: &PoolArguments, arguments: &PutArguments) -> Result<(), Failure> {
    let key = argument_bytes("the key", &arguments.key)?;
    let value = if arguments.value == "-" {
        let mut value = Vec::new();
        std::io::stdin()
            .lock()
            .read_to_end(&mut value)
            .map_err(Failure::system("cannot read standard input"))?;
        value
    } else {
        argument_bytes("the value", &arguments.value)?
    };
    let name = arguments.map.checked_name()?;
    let pool = pool.open_or_create(&arguments.create)?;
    let (map, _) = open_or_create_map(&pool, name, &arguments.create)?;
    if arguments.insert {
        match map.insert(&key, &value) {
            Err(pando::Error::KeyExists) => {
                let key = escape::escaped_text(&key);
                return Err(Failure::Input(format!(
                    "the key \"{key}\" is already there; leave out --insert to replace its value"
                )));
            }
            outcome => outcome?,
        }
    } else {
        map.upsert(&key, &value)?;
    }
    drop(map);
    if arguments.sync {
        pool.sync()?;
    }
    Ok(pool.close()?)
}

/// Deletes records. If some are absent, the others are deleted all the same.
pub fn del(pool: &PoolArguments, arguments: &DelArguments) -> Result<(), Failure> {
    let keys = keys(&arguments.keys)?;
    let name = arguments.map.checked_name()?;
    let pool = pool.open()?;
    let map = pool.open_map(name)?;
    let mut missing = None;
    for key in &keys {
        if !map.remove(key)? {
            missing = missing.or(Some(key));
        }
    }
    drop(map);
    if arguments.sync {
        pool.sync()?;
    }
    pool.close()?;
    missing.map_or(Ok(()), |key| Err(not_there(key, name)))
}

fn keys(arguments: &[OsString]) -> Result<Vec<Vec<u8>>, Failure> {
    arguments.iter().map(|key| argument_bytes("the key", key)).collect()
}

fn not_there(key: &[u8], map: &str) -> Failure {
    Failure::NotFound(format!("the map {map:?} has no key \"{}\"", escape::escaped_text(key)))
}
