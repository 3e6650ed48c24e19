//! The input of `load`: a file or standard input, decompressed, and its format.

use std::cell::Cell;
use std::fs::File;
use std::io::{BufRead, Read};
use std::path::Path;
use std::rc::Rc;

use crate::arguments::records::LoadArguments;
use crate::failure::Failure;
use crate::format::Format;
use crate::format::compression::Compression;
use crate::format::csv::Columns;

/// The input of a load.
pub struct Input {
    /// Its bytes, decompressed.
    pub reader: Box<dyn Read>,
    /// Its name in messages.
    pub name: String,
    /// Its size, if that is known.
    pub total_bytes: Option<u64>,
    /// The bytes of it that were read.
    pub position: Rc<Cell<u64>>,
}

impl Input {
    /// Opens the file, or standard input.
    pub fn open(arguments: &LoadArguments) -> Result<Self, Failure> {
        let path = &arguments.file;
        let mut compression = arguments.compression.or_else(|| Compression::of_extension(path));
        let (file, name, total_bytes): (Box<dyn Read>, _, _) = if path == Path::new("-") {
            let (mut input, name) = (std::io::stdin().lock(), "standard input");
            if compression.is_none() {
                let begin = input.fill_buf().map_err(reading_failed(name))?;
                compression = Some(Compression::of_first_bytes(begin));
            }
            (Box::new(input), name.to_owned(), None)
        } else {
            let file = File::open(path).map_err(Failure::file("open", path))?;
            let metadata = file.metadata().map_err(Failure::file("look at", path))?;
            if metadata.is_dir() {
                return Err(Failure::Input(format!("{} is a folder; name a file", path.display())));
            }
            let total_bytes = metadata.is_file().then_some(metadata.len());
            (Box::new(file), path.display().to_string(), total_bytes)
        };
        let position = Rc::new(Cell::new(0));
        let counting = Counting { reader: file, bytes: position.clone() };
        let compression = compression.unwrap_or(Compression::None);
        let reader = compression.reader(Box::new(counting)).map_err(reading_failed(&name))?;
        Ok(Self { reader, name, total_bytes, position })
    }
}

/// The failure of a read of the input with this name.
pub fn reading_failed(name: &str) -> impl FnOnce(std::io::Error) -> Failure {
    Failure::system(format!("cannot read {name}"))
}

/// A reader that counts the bytes that were read.
struct Counting<R> {
    reader: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.bytes.set(self.bytes.get() + read as u64);
        Ok(read)
    }
}

/// The format that is named, or that of the name of the file.
pub fn format_of(arguments: &LoadArguments) -> Result<Format, Failure> {
    let is_standard_input = arguments.file == Path::new("-");
    arguments
        .format
        .or(is_standard_input.then_some(Format::Tsv))
        .or_else(|| Format::of_extension(&arguments.file))
        .ok_or_else(|| {
            Failure::Input(format!(
                "the name of {} does not tell its format; known are .tsv, .csv, .json, .jsonl and \
                 .ndjson, each also with .gz or .zst: name the format by --format",
                arguments.file.display()
            ))
        })
}

/// The columns of a CSV with the key and the value.
pub fn columns(arguments: &LoadArguments, format: Format) -> Result<Columns, Failure> {
    let (key, value) = (&arguments.key_column, &arguments.value_column);
    if format != Format::Csv && (key.is_some() || value.is_some()) {
        return Err(Failure::Input(
            "--key-column and --value-column are for CSV; leave them out, or add --format csv"
                .to_owned(),
        ));
    }
    let default = Columns::default();
    Ok(Columns {
        key: key.clone().unwrap_or(default.key),
        value: value.clone().unwrap_or(default.value),
    })
}
