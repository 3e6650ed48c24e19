//! `get`, `put` and `del`: one record at a time.

use std::ffi::OsString;
use std::io::Read;

use crate::arguments::PoolArguments;
use crate::arguments::records::{DelArguments, GetArguments, PutArguments};
use crate::failure::Failure;
use crate::format::{OutputFormat, escape};
use crate::output::Output;
use crate::pool_access::{argument_bytes, open_or_create_map, report_new_map};

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
    let pool = pool.open_to_read()?;
    let lent: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let values = pool.open_map(name)?.get_many(&lent)?;
    pool.close()?;
    let mut output = Output::new();
    let (mut line, mut missing) = (Vec::new(), Vec::new());
    for (key, value) in keys.iter().zip(&values) {
        line.clear();
        match value {
            None => missing.push(key),
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
    all_there(&missing, name)
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
    if arguments.sync {
        pool.refuse_sync_of_new(name, &arguments.create)?;
    }
    let arguments_of_pool = pool;
    let pool = pool.open_or_create(&arguments.create)?;
    if arguments.sync {
        arguments_of_pool.refuse_sync_without_log(&pool, name, Some(&arguments.create))?;
    }
    let (map, is_new) = open_or_create_map(&pool, name, &arguments.create)?;
    if is_new {
        report_new_map(name, &arguments.create);
    }
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
    let arguments_of_pool = pool;
    let pool = pool.open()?;
    if arguments.sync {
        arguments_of_pool.refuse_sync_without_log(&pool, name, None)?;
    }
    let map = pool.open_map(name)?;
    let mut missing = Vec::new();
    for key in &keys {
        if !map.remove(key)? {
            missing.push(key);
        }
    }
    drop(map);
    if arguments.sync {
        pool.sync()?;
    }
    pool.close()?;
    all_there(&missing, name)
}

fn keys(arguments: &[OsString]) -> Result<Vec<Vec<u8>>, Failure> {
    arguments.iter().map(|key| argument_bytes("the key", key)).collect()
}

/// Most keys that an error lists.
const LISTED_KEYS: usize = 10;

fn all_there(missing: &[&Vec<u8>], map: &str) -> Result<(), Failure> {
    if missing.is_empty() {
        return Ok(());
    }
    let listed = missing.iter().take(LISTED_KEYS);
    let listed: Vec<_> = listed.map(|key| format!("\"{}\"", escape::escaped_text(key))).collect();
    let more = match missing.len().saturating_sub(LISTED_KEYS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let keys = if missing.len() == 1 { "key" } else { "keys" };
    let listed = listed.join(", ");
    Err(Failure::NotFound(format!("the map {map:?} has no {keys} {listed}{more}")))
}
