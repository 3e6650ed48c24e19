//! A record that was read, and the errors of a line.

use super::escape;

/// A record that was read.
pub type Record = (Vec<u8>, Vec<u8>);

/// Why a line is not a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// There is no TAB between key and value.
    #[error("no TAB between key and value")]
    NoTab,
    /// The key's escapes are wrong.
    #[error("in the key: {0}; lines without escapes are --format raw-tsv")]
    KeyEscape(escape::EscapeError),
    /// The value's escapes are wrong.
    #[error("in the value: {0}; lines without escapes are --format raw-tsv")]
    ValueEscape(escape::EscapeError),
    /// The line is not JSON, or not such an object.
    #[error("not an object with key and value: {0}")]
    Json(String),
    /// The line is an array of JSON.
    #[error(
        "the line is an array, and a record is an object with key and value; write one object on each \
         line, for example by jq -c '.[]'"
    )]
    JsonArray,
    /// The object has a field twice or not at all.
    #[error("the object has {found}; it needs either {name} or {name}_hex")]
    OneOfTwo {
        /// The fields that were found.
        found: &'static str,
        /// `key` or `value`.
        name: &'static str,
    },
    /// The text is no hexadecimal number.
    #[error("{name} is not an even number of hexadecimal digits")]
    Hexadecimal {
        /// The field.
        name: &'static str,
    },
    /// The text begins with the byte order mark of UTF-16.
    #[error("the text is UTF-16, and records are bytes or UTF-8; convert it, for example by iconv")]
    Utf16,
    /// The key or the value is a number, an object or the like.
    #[error("the {name} is {found}, and a record holds bytes; write it as a string")]
    NotText {
        /// The field.
        name: &'static str,
        /// The type of the JSON value.
        found: &'static str,
    },
    /// A column is missing in the header of a CSV.
    #[error(
        "the header has no column {name:?}: it has {found}; name the columns by --key-column and \
         --value-column"
    )]
    NoColumn {
        /// The column.
        name: String,
        /// The columns that were found.
        found: String,
    },
    /// The header of a CSV has a column twice.
    #[error("the header has the column {name:?} twice; a column needs a name of its own")]
    ColumnTwice {
        /// The column.
        name: String,
    },
    /// The header of a CSV has columns that are neither key nor value.
    #[error(
        "the header has the columns {found}, and a record is a key and a value; to load two of \
         them, name them by --key-column and --value-column"
    )]
    MoreColumns {
        /// The columns that were found.
        found: String,
    },
    /// A record of a CSV has another number of fields than the header.
    #[error(
        "the record has {found} {}, and the header {columns}; a field with a comma is in quotes",
        if *.found == 1 { "field" } else { "fields" }
    )]
    FieldCount {
        /// The fields of the record.
        found: usize,
        /// The fields of the header.
        columns: usize,
    },
    /// The end of a CSV is inside a quoted field.
    #[error("the file ends inside a quoted field; it is incomplete, or a quote is not closed")]
    OpenQuote,
    /// A quote of a CSV is inside a field without quotes, or the field goes on behind it.
    #[error(
        "a quote is in the middle of a field; a field with quotes is in quotes as a whole, and each \
         quote in it is doubled"
    )]
    WrongQuote,
    /// A carriage return of a CSV is neither in quotes nor before a line feed.
    #[error(
        "a carriage return is in the middle of a line; a line ends with a line feed, also behind a \
         carriage return, and a field with a carriage return is in quotes"
    )]
    LoneReturn,
    /// The record of a CSV is too long.
    #[error("a record is longer than {max_bytes} bytes; raise --max-line-bytes")]
    RecordTooLong {
        /// The longest record that is read.
        max_bytes: usize,
    },
    /// The line is too long.
    #[error("a line of {found_bytes} bytes is longer than {max_bytes}; raise --max-line-bytes")]
    TooLong {
        /// The line's length.
        found_bytes: u64,
        /// The longest line that is read.
        max_bytes: usize,
    },
}
