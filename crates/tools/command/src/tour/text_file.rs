//! A file of the user as the data set.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use indicatif::HumanCount;

use super::data_set::{Builder, DataSet};
use crate::failure::Failure;
use crate::format::Format;
use crate::format::lines::Lines;

const MAX_LINE_BYTES: usize = 256 << 20;

/// The key of a line of text: the numbers are padded, so that keys are in the order of lines.
pub fn line_key(path: &Path, number: u64) -> Vec<u8> {
    let mut key = path.as_os_str().as_bytes().to_vec();
    key.extend_from_slice(format!(":{number:08}").as_bytes());
    key
}

/// The records of `path`, in the format of its extension; without one, its lines.
pub fn collect(path: &Path) -> Result<(DataSet, Vec<String>), Failure> {
    let parse = Format::of_extension(path).and_then(Format::line_parser);
    let file = File::open(path).map_err(Failure::file("open", path))?;
    let mut lines = Lines::new(file, MAX_LINE_BYTES);
    let mut builder = Builder::default();
    loop {
        let number = lines.number() + 1;
        let refused = |reason: &dyn std::fmt::Display| {
            Failure::Input(format!("{}:{number}: {reason}", path.display()))
        };
        let Some(line) = lines.next_line().map_err(Failure::file("read", path))? else { break };
        let line = line.map_err(|error| refused(&error))?;
        let record = match parse {
            Some(parse) => parse(line).map_err(|error| refused(&error))?,
            None if line.trim_ascii().is_empty() => None,
            None => Some((line_key(path, number), line.to_vec())),
        };
        if let Some((key, value)) = record
            && !builder.add(&key, &value)
        {
            return Err(refused(&"a key or a value of 4 GiB and more"));
        }
    }
    let read = builder.len();
    let data = builder.finish();
    let kind = if parse.is_some() { "records" } else { "lines" };
    let mut told = vec![format!("{} {kind} of {}", HumanCount(read as u64), path.display())];
    if read > data.len() {
        let repeated = HumanCount((read - data.len()) as u64);
        told.push(format!("{repeated} of them have a key that comes again; the last one counts"));
    }
    Ok((data, told))
}
