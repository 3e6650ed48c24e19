//! Compressed files of records.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::mem::ManuallyDrop;
use std::path::Path;

use clap::ValueEnum;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

const BUFFER_BYTES: usize = 128 << 10;
/// The first bytes of data in gzip, and in Zstandard.
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compression {
    /// Not compressed
    None,
    /// gzip, as .gz
    #[value(alias = "gz")]
    Gzip,
    /// Zstandard, as .zst
    #[value(alias = "zst")]
    Zstd,
}

impl Compression {
    /// The compression for a file's extension, if it is that of one.
    pub fn of_extension(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "gz" => Some(Self::Gzip),
            "zst" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The compression of data that begin with `begin`: each of these formats has its first bytes.
    pub fn of_first_bytes(begin: &[u8]) -> Self {
        match begin {
            _ if begin.starts_with(GZIP) => Self::Gzip,
            _ if begin.starts_with(ZSTD) => Self::Zstd,
            _ => Self::None,
        }
    }

    /// The bytes of `reader`, decompressed. An incomplete file is an error at its end.
    pub fn reader(self, reader: Box<dyn Read>) -> io::Result<Box<dyn Read>> {
        Ok(match self {
            Self::None => reader,
            Self::Gzip => {
                let mut reader = BufReader::with_capacity(BUFFER_BYTES, reader);
                let begin = reader.fill_buf()?;
                if !begin.is_empty() && !GZIP.starts_with(&begin[..begin.len().min(GZIP.len())]) {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "it is not in the format of gzip; if it is not compressed, add --compression \
                         none",
                    ));
                }
                Box::new(MultiGzDecoder::new(reader))
            }
            Self::Zstd => Box::new(zstd::Decoder::new(reader)?),
        })
    }
}

/// A writer that compresses what it gets. Only [`finish`](Self::finish) writes the end: what an
/// error has cut short is not complete.
pub enum Compressed<W: Write> {
    /// Not compressed.
    None(W),
    /// gzip. The drop of an encoder would write the end, so that there is none.
    Gzip(ManuallyDrop<GzEncoder<W>>),
    /// Zstandard.
    Zstd(zstd::Encoder<'static, W>),
}

impl<W: Write> Compressed<W> {
    /// A writer into `writer`.
    pub fn new(writer: W, compression: Compression) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Self::None(writer),
            Compression::Gzip => {
                let encoder = GzEncoder::new(writer, flate2::Compression::default());
                Self::Gzip(ManuallyDrop::new(encoder))
            }
            Compression::Zstd => {
                let mut encoder = zstd::Encoder::new(writer, zstd::DEFAULT_COMPRESSION_LEVEL)?;
                encoder.include_checksum(true)?;
                Self::Zstd(encoder)
            }
        })
    }

    /// Writes the end of the compressed data, and flushes.
    pub fn finish(self) -> io::Result<()> {
        match self {
            Self::None(writer) => Ok(writer),
            Self::Gzip(encoder) => ManuallyDrop::into_inner(encoder).finish(),
            Self::Zstd(encoder) => encoder.finish(),
        }?
        .flush()
    }
}

impl<W: Write> Write for Compressed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::None(writer) => writer.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::None(writer) => writer.flush(),
            Self::Gzip(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(compression: Compression, text: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = Compressed::new(&mut file, compression).unwrap();
        writer.write_all(text).unwrap();
        writer.finish().unwrap();
        file
    }

    fn read(compression: Compression, file: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        compression.reader(Box::new(io::Cursor::new(file)))?.read_to_end(&mut text)?;
        Ok(text)
    }

    #[test]
    fn what_is_written_is_read_back_also_in_parts() {
        let text = b"aspen\tPopulus\n".repeat(1_000);
        for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
            let file = written(compression, &text);
            assert_eq!(read(compression, file.clone()).unwrap(), text);
            let twice = [file.clone(), file].concat();
            assert_eq!(read(compression, twice).unwrap(), text.repeat(2));
        }
    }

    #[test]
    fn an_incomplete_file_is_an_error() {
        let text = b"aspen\tPopulus\n".repeat(1_000);
        for compression in [Compression::Gzip, Compression::Zstd] {
            let file = written(compression, &text);
            for bytes in [0, 1, file.len() / 2, file.len() - 1] {
                read(compression, file[..bytes].to_vec()).unwrap_err();
            }
            let error = read(compression, b"aspen\tPopulus\n".to_vec()).unwrap_err();
            assert_eq!(
                compression == Compression::Gzip,
                error.to_string().contains("--compression")
            );
        }
    }

    #[test]
    fn what_is_dropped_without_its_end_is_incomplete() {
        for text in [&b"aspen\tPopulus\n".repeat(100_000)[..], b"aspen\tPopulus\n"] {
            for compression in [Compression::Gzip, Compression::Zstd] {
                let mut file = Vec::new();
                let mut writer = Compressed::new(&mut file, compression).unwrap();
                writer.write_all(text).unwrap();
                writer.flush().unwrap();
                drop(writer);
                read(compression, file).unwrap_err();
            }
        }
    }
}
