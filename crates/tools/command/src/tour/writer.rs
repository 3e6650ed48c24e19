//! The process that the tour kills: it inserts the data set and acknowledges each record.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

use crate::arguments::{PoolArguments, TourWriterArguments};
use crate::failure::Failure;
use crate::random;
use crate::tour::data_set::{DataSet, MAP};
use crate::workers;

/// Bytes of an acknowledgement: the record's index, little-endian. A pipe takes so few bytes in one
/// piece (at most `PIPE_BUF`), so writers need not coordinate.
pub const ACKNOWLEDGEMENT_BYTES: usize = 8;

/// Inserts all records; after each insert has returned, writes its index to standard output.
pub fn run(pool: &PoolArguments, arguments: &TourWriterArguments) -> Result<(), Failure> {
    let data = DataSet::read_from(&arguments.data)?;
    let order = random::order(data.len(), arguments.seed);
    let pool = pool.open()?;
    let map = pool.open_map(MAP)?;
    // Unbuffered: an acknowledgement must be in the pipe, not in this process.
    let pipe = io::stdout()
        .as_fd()
        .try_clone_to_owned()
        .map(File::from)
        .map_err(Failure::system("cannot use standard output"))?;
    workers::each(order.len(), arguments.writers, |number| {
        let index = order[number];
        let (key, value) = data.record(index);
        map.insert(key, value)?;
        let acknowledgement: [u8; ACKNOWLEDGEMENT_BYTES] = (index as u64).to_le_bytes();
        (&pipe).write_all(&acknowledgement).map_err(|error| match error.kind() {
            // The tour has ended.
            ErrorKind::BrokenPipe => Failure::BrokenPipe,
            _ => Failure::system("cannot acknowledge")(error),
        })
    })?;
    drop(map);
    Ok(pool.close()?)
}
