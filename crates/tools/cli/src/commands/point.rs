//! `get`, `put` and `del`: one record at a time.

use std::io::Read;

use crate::arguments::{DelArguments, GetArguments, PoolArguments, PutArguments};
use crate::failure::Failure;
use crate::format::escape;
use crate::output::Output;
use crate::pool_access::{argument_bytes, open_or_create_map};

/// Prints the value of a key.
pub fn get(pool: &PoolArguments, arguments: &GetArguments) -> Result<(), Failure> {
    let key = argument_bytes("the key", &arguments.key)?;
    let name = arguments.map.checked_name()?;
    let pool = pool.open()?;
    let value = pool.open_map(name)?.get(&key)?;
    pool.close()?;
    let value = value.ok_or_else(|| not_there(&key, name))?;
    let mut output = Output::new();
    if arguments.raw {
        output.bytes(&value)?;
    } else {
        let mut line = Vec::new();
        escape::append(&value, &mut line);
        line.push(b'\n');
        output.bytes(&line)?;
    }
    output.flush()
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
    let keys = arguments.keys.iter().map(|key| argument_bytes("the key", key));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
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

fn not_there(key: &[u8], map: &str) -> Failure {
    Failure::NotFound(format!("the map {map:?} has no key \"{}\"", escape::escaped_text(key)))
}
