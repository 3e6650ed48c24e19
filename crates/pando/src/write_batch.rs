//! Batches: writes of several keys that take place as one commit.

use sha2::{Digest, Sha256};

use crate::{Error, Isolation, Map, Pool, Transaction};

/// Writes of several keys, in one or several transactional maps of a pool, that take place at one
/// instant ([`Pool::write`]), and conditions on keys. A condition looks at the state before the
/// batch. Of several writes of a key the last one counts. A batch has the limits of a
/// [`Transaction`], and holds handles of its maps.
///
/// ```
/// use pando::{Error, MapOptions, Pool, PoolOptions, WriteBatch};
///
/// let pool = Pool::volatile(&PoolOptions::new())?;
/// let trees = pool.map_with("trees", &MapOptions::new().transactional(true))?;
/// let batch = WriteBatch::new().require(&trees, b"ash", None).put(&trees, b"ash", b"1");
/// pool.write(&batch)?;
/// assert_eq!(trees.get(b"ash")?, Some(b"1".to_vec()));
/// // It is there now.
/// assert!(matches!(pool.write(&batch), Err(Error::ConditionFailed { .. })));
/// # Ok::<(), pando::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a batch does nothing until it is written"]
pub struct WriteBatch {
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
struct Step {
    kind: Kind,
    map: Map,
    key: Vec<u8>,
    value: Option<Vec<u8>>,
}

/// The numbers are part of digests, and so of receipts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The key must have the value, or none.
    Require = 0,
    /// The key gets the value, or is removed.
    Write = 1,
}

/// The name of the map with the receipts of all sessions. Batches may not use it.
pub const SESSIONS_MAP: &str = "pando.sessions";

/// A condition of a batch that does not hold: the name of the map, and the key.
pub(crate) struct Failed<'batch> {
    pub map: &'batch str,
    pub key: &'batch [u8],
}

impl WriteBatch {
    /// A batch without writes.
    pub fn new() -> Self {
        Self::default()
    }

    fn with(mut self, kind: Kind, map: &Map, key: &[u8], value: Option<&[u8]>) -> Self {
        let (map, key, value) = (map.clone(), key.to_vec(), value.map(<[u8]>::to_vec));
        self.steps.push(Step { kind, map, key, value });
        self
    }

    /// Gives `key` this value.
    pub fn put(self, map: &Map, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.with(Kind::Write, map, key.as_ref(), Some(value.as_ref()))
    }

    /// Removes `key`, if it is present.
    pub fn remove(self, map: &Map, key: impl AsRef<[u8]>) -> Self {
        self.with(Kind::Write, map, key.as_ref(), None)
    }

    /// Makes the batch take place only if `key` has this value; with `None`, if it is absent.
    pub fn require(self, map: &Map, key: impl AsRef<[u8]>, value: Option<&[u8]>) -> Self {
        self.with(Kind::Require, map, key.as_ref(), value)
    }

    /// How many writes and conditions it has.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// SHA-256 of its maps' names, keys and values, in their order. Two batches that do the same in
    /// another order have different digests. Maps count by their names: after a rename of a map,
    /// the same batch has another digest.
    pub fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for Step { kind, map, key, value } in &self.steps {
            digest.update([*kind as u8, u8::from(value.is_some())]);
            for bytes in [map.name().as_bytes(), key, value.as_deref().unwrap_or_default()] {
                digest.update((bytes.len() as u64).to_le_bytes());
                digest.update(bytes);
            }
        }
        digest.finalize().into()
    }

    /// Puts the writes into a transaction, if its conditions hold there; else the first that does
    /// not.
    pub(crate) fn put_into(
        &self,
        transaction: &mut Transaction<'_>,
    ) -> Result<Option<Failed<'_>>, Error> {
        if self.steps.iter().any(|step| step.map.name() == SESSIONS_MAP) {
            return Err(Error::Option {
                option: "the map of a batch".to_owned(),
                found: SESSIONS_MAP.to_owned(),
                allowed: "any other map: this one has the receipts".to_owned(),
            });
        }
        for Step { kind, map, key, value } in &self.steps {
            if *kind == Kind::Require && transaction.get(map, key)? != *value {
                return Ok(Some(Failed { map: map.name(), key }));
            }
        }
        for Step { kind, map, key, value } in &self.steps {
            match (kind, value) {
                (Kind::Require, _) => {}
                (Kind::Write, Some(value)) => transaction.put(map, key, value)?,
                (Kind::Write, None) => transaction.remove(map, key)?,
            }
        }
        Ok(None)
    }
}

impl Pool {
    /// Writes a batch as one commit; returns its LSN ([`Transaction::commit`]), or 0 if it is
    /// empty. It runs again after a conflict, up to 1,024 times. It returns when
    /// [`PoolOptions::acknowledge`](crate::PoolOptions::acknowledge) says.
    ///
    /// # Errors
    ///
    /// [`Error::ConditionFailed`]; [`Error::Option`] for the map `pando.sessions`; otherwise as
    /// [`Pool::begin`], [`Transaction::put`] and [`Transaction::commit`]. Nothing has taken place,
    /// except with [`Error::AppliedNotDurable`].
    pub fn write(&self, batch: &WriteBatch) -> Result<u64, Error> {
        self.transaction_with_lsn(Isolation::Serializable, |transaction| {
            match batch.put_into(transaction)? {
                None => Ok(()),
                Some(Failed { map, key }) => {
                    Err(Error::ConditionFailed { map: map.to_owned(), key: key.to_vec() })
                }
            }
        })
        .map(|committed| committed.lsn)
    }
}
