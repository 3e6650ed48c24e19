//! An array of words in a pool, and one operation on some of them.

use pando_pmem::{CreateOptions, Domain, Pool, Word, layout};
use pando_pmwcas::{Algorithm, MAX_WORDS, Pmwcas, Policy};
use tempfile::TempDir;

use pando_bench::rng::Rng;
use pando_bench::systems::{BuildError, BuildOptions};

/// Bytes of a word.
const WORD_BYTES: u64 = 8;
/// Room beside the array: what a pool keeps for itself, and the last chunk.
const SPARE_BYTES: u64 = 64 << 20;

/// How an operation changes its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// One PMwCAS of so many words, from 1 to 8.
    Pmwcas(usize),
    /// The persistent single-word CAS of the paper's section 3: no descriptor.
    SingleCas,
}

impl Method {
    /// The most words of an operation here; a descriptor takes a few more.
    pub const MAX_WORDS: usize = 8;

    /// Words that an operation changes.
    pub fn words(self) -> usize {
        match self {
            Self::Pmwcas(words) => words,
            Self::SingleCas => 1,
        }
    }
}

const _: () = assert!(Method::MAX_WORDS <= MAX_WORDS);

impl std::fmt::Display for Method {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pmwcas(words) => write!(formatter, "{words}"),
            Self::SingleCas => formatter.write_str("cas"),
        }
    }
}

impl std::str::FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(words) if (1..=Self::MAX_WORDS).contains(&words) => Ok(Self::Pmwcas(words)),
            _ if text == "cas" => Ok(Self::SingleCas),
            _ => Err(format!(
                "expected a number of words from 1 to {}, or cas for the single-word persistent CAS",
                Self::MAX_WORDS
            )),
        }
    }
}

/// Words in a pool, all changed by PMwCAS only.
pub struct Array<D: Domain> {
    // Dropped first: the pool is closed before its folder is removed.
    pmwcas: Pmwcas<D>,
    first_off: u64,
    words: u64,
    _folder: TempDir,
}

impl<D: Domain> Array<D> {
    /// An array of `words` words, all zero, in a new pool file: all domains are to lie on
    /// pages of one kind.
    pub fn new(
        words: u64,
        algorithm: Algorithm,
        options: &BuildOptions,
    ) -> Result<Self, BuildError> {
        let folder = tempfile::tempdir_in(&options.pool_dir)?;
        let bytes = words * WORD_BYTES;
        let create = CreateOptions { max_bytes: bytes + SPARE_BYTES, ..CreateOptions::default() };
        let pool = Pool::create(&folder.path().join("array.pando"), &create)?;
        let pmwcas = Pmwcas::open(pool)?.with_algorithm(algorithm);
        let first_off = {
            let guard = pmwcas.pool().pin()?;
            let mut block = guard.reserve(bytes)?;
            block.zero(0, bytes);
            block.flush(0, bytes);
            D::fence();
            // The first slot of the catalog, which is empty.
            let owner = layout::CATALOG_OFF;
            let mut operation = pmwcas.allocate(&guard)?;
            let entry = operation.reserve_entry(owner, 0, Policy::FreeNewOnFailure)?;
            let off = operation.activate(entry, block);
            if !operation.execute() {
                return Err("the new pool's empty place was taken".into());
            }
            off
        };
        Ok(Self { pmwcas, first_off, words, _folder: folder })
    }

    /// The number of words.
    pub fn len(&self) -> u64 {
        self.words
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words == 0
    }

    fn word_off(&self, index: u64) -> u64 {
        self.first_off + index * WORD_BYTES
    }

    /// One operation on random words; whether it succeeded.
    #[inline]
    pub fn change(&self, method: Method, rng: &mut Rng) -> Result<bool, BuildError> {
        let guard = self.pmwcas.pool().pin()?;
        let mut picked = [0; Method::MAX_WORDS];
        let picked = &mut picked[..method.words()];
        for at in 0..picked.len() {
            picked[at] = loop {
                let off = self.word_off(rng.below(self.words));
                if !picked[..at].contains(&off) {
                    break off;
                }
            };
        }
        if method == Method::SingleCas {
            let old = self.pmwcas.read(&guard, picked[0]);
            return Ok(self.pmwcas.compare_exchange(&guard, picked[0], old, old + 1).is_ok());
        }
        let mut old = [0; Method::MAX_WORDS];
        let old = &mut old[..method.words()];
        for (old, &off) in old.iter_mut().zip(picked.iter()) {
            *old = self.pmwcas.read(&guard, off);
        }
        let mut operation = self.pmwcas.allocate(&guard)?;
        for (&off, &old) in picked.iter().zip(old.iter()) {
            operation.add_word(off, old, old + 1)?;
        }
        Ok(operation.execute())
    }

    /// The sum of all words, while no thread changes them.
    pub fn sum(&self) -> Result<u64, BuildError> {
        let guard = self.pmwcas.pool().pin()?;
        Ok((0..self.words).map(|index| self.pmwcas.read(&guard, self.word_off(index))).sum())
    }

    /// Word `index` itself, for a test that makes a fault.
    pub fn word(&self, index: u64) -> Word<'_, D> {
        self.pmwcas.pool().word(self.word_off(index))
    }
}
