//! The program of the benchmarks, which runs itself for a process of its own.

use std::path::PathBuf;

/// This program, which runs itself.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its file.
    pub executable: PathBuf,
    /// The arguments before its own: `bench` for `pando bench`.
    pub prefix: Vec<String>,
}

impl Program {
    /// This program.
    ///
    /// # Errors
    ///
    /// The system does not tell where this program is.
    pub fn this(prefix: &[&str]) -> std::io::Result<Self> {
        let prefix = prefix.iter().map(|&word| word.to_owned()).collect();
        Ok(Self { executable: std::env::current_exe()?, prefix })
    }
}
