//! The deduplication trace, made of real files.
//!
//! Files are read in order of their names, cut into content-defined chunks (FastCDC), and each
//! chunk is looked up by its 20-byte SHA-1; a chunk that is not known is inserted, with a value of
//! 44 bytes. The paper counts the same way: 27 million chunks of which 12 million are distinct
//! make 2.2 reads a write. The reads a write that come of other files are those of these files.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use fastcdc::v2020::StreamCDC;
use sha1::{Digest, Sha1};

use super::Trace;

/// Bytes of a SHA-1 key.
pub const KEY_BYTES: usize = 20;
/// Bytes of the paper's metadata string.
pub const VALUE_BYTES: usize = 44;

/// What is cut, and how.
#[derive(Clone, Debug)]
pub struct Source {
    /// Folders, read with all that is in them, and files.
    pub paths: Vec<PathBuf>,
    /// Stop after so many bytes.
    pub max_bytes: u64,
    /// Bytes of a chunk on average, from 256 to 4 MiB; the least is a quarter, the most eight
    /// times of it.
    pub chunk_bytes: u32,
}

impl Default for Source {
    /// What is on every Debian machine.
    fn default() -> Self {
        Self { paths: vec![PathBuf::from("/usr/lib")], max_bytes: 256 << 20, chunk_bytes: 4096 }
    }
}

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Files.
    pub files: u64,
    /// Files and folders that could not be read.
    pub unreadable: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Chunks.
    pub chunks: u64,
    /// Distinct chunks.
    pub unique: u64,
}

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The size of chunks is out of its range.
    #[error("chunks of {found} bytes; allowed is 256 to 4194304, on average")]
    ChunkBytes {
        /// What was asked for.
        found: u32,
    },
    /// No file has a byte in it.
    #[error("no file to cut into chunks was found in {paths}; {unreadable} could not be read")]
    Empty {
        /// Where it was looked for.
        paths: String,
        /// Files and folders that could not be read.
        unreadable: u64,
    },
}

/// Cuts the files of `source`; the trace, and what it is made of.
pub fn trace(source: &Source) -> Result<(Trace, Found), Error> {
    if !(256..=4 << 20).contains(&source.chunk_bytes) {
        return Err(Error::ChunkBytes { found: source.chunk_bytes });
    }
    let mut cutter = Cutter {
        source,
        trace: Trace::new("dedup", KEY_BYTES, VALUE_BYTES),
        known: HashMap::new(),
        found: Found::default(),
    };
    for path in &source.paths {
        cutter.visit(path);
    }
    let Cutter { trace, found, .. } = cutter;
    if found.chunks == 0 {
        let paths: Vec<_> = source.paths.iter().map(|path| path.display().to_string()).collect();
        return Err(Error::Empty { paths: paths.join(", "), unreadable: found.unreadable });
    }
    Ok((trace, found))
}

struct Cutter<'run> {
    source: &'run Source,
    trace: Trace,
    known: HashMap<[u8; KEY_BYTES], u32>,
    found: Found,
}

impl Cutter<'_> {
    fn is_full(&self) -> bool {
        self.found.bytes >= self.source.max_bytes
    }

    /// Reads a file, or a folder in order of names; links are not followed, so nothing is read
    /// twice and no circle is met.
    fn visit(&mut self, path: &Path) {
        if self.is_full() {
            return;
        }
        let Ok(metadata) = path.symlink_metadata() else {
            self.found.unreadable += 1;
            return;
        };
        if metadata.is_file() {
            match File::open(path) {
                Ok(file) => self.cut(file),
                Err(_) => self.found.unreadable += 1,
            }
        } else if metadata.is_dir() {
            let Ok(entries) = path.read_dir() else {
                self.found.unreadable += 1;
                return;
            };
            let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
            paths.sort();
            for path in paths {
                self.visit(&path);
            }
        }
    }

    fn cut(&mut self, file: File) {
        self.found.files += 1;
        let left = self.source.max_bytes - self.found.bytes;
        let average = self.source.chunk_bytes;
        let reader = BufReader::new(file).take(left);
        for chunk in StreamCDC::new(reader, average / 4, average, average * 8) {
            let Ok(chunk) = chunk else {
                self.found.unreadable += 1;
                return;
            };
            self.found.bytes += chunk.length as u64;
            self.meet(Sha1::digest(&chunk.data).into());
        }
    }

    /// Looks a chunk up and inserts it if it is new.
    fn meet(&mut self, hash: [u8; KEY_BYTES]) {
        self.found.chunks += 1;
        let (key, is_new) = match self.known.get(&hash) {
            Some(&key) => (key, false),
            None => {
                let Some(key) = self.trace.add_key(&hash) else { return };
                self.known.insert(hash, key);
                self.found.unique += 1;
                (key, true)
            }
        };
        self.trace.get(key);
        if is_new {
            self.trace.put(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traces::Action;

    fn source(path: &Path) -> Source {
        Source { paths: vec![path.to_path_buf()], max_bytes: 1 << 20, chunk_bytes: 256 }
    }

    #[test]
    fn the_second_of_two_equal_files_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let content: Vec<u8> =
            (0..20_000_u64).map(|at| (pando_bench::keys::key_of(at) >> 5) as u8).collect();
        std::fs::write(folder.path().join("a"), &content).unwrap();
        std::fs::create_dir(folder.path().join("b")).unwrap();
        std::fs::write(folder.path().join("b/c"), &content).unwrap();
        let (trace, found) = trace(&source(folder.path())).unwrap();
        assert_eq!((found.files, found.unreadable, found.bytes), (2, 0, 40_000));
        assert_eq!(found.chunks, 2 * found.unique);
        assert!(found.unique > 20, "{found:?}");
        assert_eq!(trace.steps().len() as u64, found.chunks + found.unique);
        assert_eq!(trace.reads_a_write(), 2.0);
        assert_eq!((trace.key_bytes(), trace.value_bytes()), (20, 44));
        let first = trace.steps()[0];
        assert_eq!((first.action, first.version()), (Action::Get, None));
        assert_eq!(trace.steps()[1].action, Action::Insert);
        assert!(trace.steps().last().unwrap().version().is_some(), "the last chunk is known");
    }

    #[test]
    fn nothing_to_cut_is_an_error_that_says_where() {
        let folder = tempfile::tempdir().unwrap();
        let error = trace(&source(folder.path())).unwrap_err();
        assert!(error.to_string().contains(&folder.path().display().to_string()), "{error}");
        let error = trace(&Source { chunk_bytes: 1, ..source(folder.path()) }).unwrap_err();
        assert!(error.to_string().contains("256 to 4194304"), "{error}");
    }

    #[test]
    fn it_stops_at_the_bytes_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), vec![7; 50_000]).unwrap();
        let source = Source { max_bytes: 10_000, ..source(folder.path()) };
        assert_eq!(trace(&source).unwrap().1.bytes, 10_000);
    }
}
