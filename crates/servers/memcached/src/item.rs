//! A value with the data of memcached about it, in the head of its key.
//!
//! The keys are those of Redis's database 0. A value that Redis wrote has flags 0. Its cas is a
//! hash of its content with the top bit set, so that `cas` works for it. A key with a collection
//! does not exist for memcached's clients; `set` replaces it, and no other command changes it.
//!
//! Memcached's marks are three bits of the stored cas. Clients never see them. They say that the
//! value is *stale*, that a client has *won* the right to renew it, and that its key arrived in
//! base64. In a cas, the number of starts of the server begins at bit 40, so it reaches the marks
//! after a million starts.
//!
//! The time of the last read is not kept, because then a read would be a write. Neither is whether
//! the value was ever read.

use pando_keyspace::failure::Result;
use pando_keyspace::layout::{Content, Head, Memcached};
use pando_keyspace::{Store, Transaction};
use xxhash_rust::xxh3::xxh3_64;

/// Set in the cas of a value that Redis wrote.
const FROM_REDIS: u64 = 1 << 63;
/// The overhead of a record in memcached, in bytes, in addition to key and value. Memcached's limit
/// includes it.
const ITEM_BYTES: usize = 48 + 8 + 1 + 2;
/// The database of memcached's clients.
pub(crate) const DATABASE: u8 = 0;

/// The marks of a value, as bits of the stored cas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(u64);

impl Marks {
    /// It should be renewed.
    pub(crate) const STALE: Self = Self(1 << 62);
    /// A client was told to renew it.
    pub(crate) const WON: Self = Self(1 << 61);
    /// Its key arrived in base64.
    pub(crate) const BINARY_KEY: Self = Self(1 << 60);
    const ALL: u64 = Self::STALE.0 | Self::WON.0 | Self::BINARY_KEY.0;

    pub(crate) fn has(self, mark: Self) -> bool {
        self.0 & mark.0 != 0
    }

    /// Sets `mark`.
    pub(crate) fn with(self, mark: Self) -> Self {
        Self(self.0 | mark.0)
    }

    /// Clears `mark`.
    pub(crate) fn without(self, mark: Self) -> Self {
        Self(self.0 & !mark.0)
    }
}

/// The properties of a value, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct About {
    /// The client's flags.
    pub flags: u32,
    /// A number that changes with each write.
    pub cas: u64,
    /// The marks.
    pub marks: Marks,
    /// The expiry time, in milliseconds of the store's clock.
    pub expires_at: Option<u64>,
}

impl About {
    /// The properties of a value that a command creates by itself.
    pub(crate) fn fresh(store: &Store) -> Self {
        Self { flags: 0, cas: new_cas(store), marks: Marks::default(), expires_at: None }
    }

    /// The properties of a string, from its head.
    #[inline]
    fn of(head: &Head<'_>, bytes: &[u8]) -> Self {
        let expires_at = head.expires_at;
        match head.memcached {
            Some(Memcached { flags, cas }) => {
                let marks = Marks(cas & Marks::ALL);
                Self { flags, cas: cas & !Marks::ALL, marks, expires_at }
            }
            None => {
                let cas = (xxh3_64(bytes) | FROM_REDIS) & !Marks::ALL;
                Self { flags: 0, cas, marks: Marks::default(), expires_at }
            }
        }
    }
}

/// The content of a key.
#[derive(Debug)]
pub(crate) enum Found {
    /// The key does not exist.
    Nothing,
    /// A collection, which memcached cannot show.
    Collection,
    /// A value.
    Item(About, Vec<u8>),
}

/// The content of a key, lent.
#[derive(Debug)]
pub(crate) enum Lent<'value> {
    /// The key does not exist.
    Nothing,
    /// A collection, which memcached cannot show.
    Collection,
    /// A value.
    Item(About, &'value [u8]),
}

impl<'value> Lent<'value> {
    /// The value, if there is one.
    #[inline]
    pub(crate) fn item(self) -> Option<(About, &'value [u8])> {
        match self {
            Self::Item(about, bytes) => Some((about, bytes)),
            Self::Nothing | Self::Collection => None,
        }
    }
}

/// Lends the content of a key.
#[inline]
pub(crate) fn look<Answer>(
    transaction: &Transaction<'_>,
    key: &[u8],
    look: impl FnOnce(Lent<'_>) -> Answer,
) -> Result<Answer> {
    let space = transaction.space(DATABASE);
    let found = transaction.head(space, key, |head| match head {
        None => Ok(look(Lent::Nothing)),
        Some(head) => match head.content {
            Content::String(bytes) => Ok(look(Lent::Item(About::of(&head, bytes), bytes))),
            Content::Long(long) => {
                let Head { expires_at, memcached, .. } = head;
                let head = Head { expires_at, memcached, content: Content::Long(long) };
                Err((look, head, long))
            }
            Content::Collection(..) => Ok(look(Lent::Collection)),
        },
    })?;
    match found {
        Ok(answer) => Ok(answer),
        Err((look, head, long)) => {
            let bytes = transaction.gather(long)?;
            Ok(look(Lent::Item(About::of(&head, &bytes), &bytes)))
        }
    }
}

/// Copies the content of a key.
pub(crate) fn find(transaction: &Transaction<'_>, key: &[u8]) -> Result<Found> {
    look(transaction, key, |lent| match lent {
        Lent::Nothing => Found::Nothing,
        Lent::Collection => Found::Collection,
        Lent::Item(about, bytes) => Found::Item(about, bytes.to_vec()),
    })
}

/// Puts a value, for a command that puts nothing else. If the value has already expired, the key is
/// removed.
pub(crate) fn put(
    transaction: &mut Transaction<'_>,
    key: &[u8],
    about: &About,
    bytes: &[u8],
) -> Result<()> {
    let space = transaction.space(DATABASE);
    if about.expires_at.is_some_and(|at_ms| at_ms <= transaction.now_ms()) {
        transaction.remove_head(space, key)?;
        return Ok(());
    }
    let cas = about.cas & !Marks::ALL | about.marks.0;
    // A value that only Redis has written remains without data of memcached; its cas follows from
    // its content.
    let is_redis = about.cas & FROM_REDIS != 0 && about.marks == Marks::default();
    let head = Head {
        expires_at: about.expires_at,
        memcached: (!is_redis).then_some(Memcached { flags: about.flags, cas }),
        content: Content::String(bytes),
    };
    if head.expires_at.is_some() {
        return transaction.put_head(space, key, &head);
    }
    transaction.put_string(space, key, &head)
}

/// A cas that no value has had.
pub(crate) fn new_cas(store: &Store) -> u64 {
    store.new_cas() & !(Marks::ALL | FROM_REDIS)
}

/// The length of a value by memcached's rules, with its key and overhead.
pub(crate) fn item_bytes(key: &[u8], flags: u32, value_bytes: usize) -> usize {
    let flags_bytes = if flags == 0 { 0 } else { 4 };
    value_bytes.saturating_add(ITEM_BYTES + key.len() + flags_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_redis_has_a_cas_that_follows_from_its_content() {
        let of = |bytes| About::of(&Head::string(bytes), bytes);
        assert_eq!((of(b"oak").flags, of(b"oak").cas >> 63), (0, 1));
        assert_eq!(of(b"oak").cas, of(b"oak").cas);
        assert_ne!(of(b"elm").cas, of(b"oak").cas);
    }

    #[test]
    fn marks_are_not_seen_in_the_cas() {
        let kept = Memcached { flags: 9, cas: Marks::STALE.0 | Marks::BINARY_KEY.0 | 77 };
        let head = Head { memcached: Some(kept), ..Head::string(b"") };
        let about = About::of(&head, b"");
        assert_eq!((about.cas, about.flags), (77, 9));
        assert!(about.marks.has(Marks::STALE) && !about.marks.has(Marks::WON));
        assert!(!about.marks.without(Marks::STALE).has(Marks::STALE));
    }

    #[test]
    fn sizes_are_memcacheds() {
        assert_eq!(item_bytes(b"big", 0, 1_048_514), 1 << 20);
        assert_eq!(item_bytes(b"big", 1, 1_048_510), 1 << 20);
        assert_eq!(item_bytes(b"a", 0, 1), 61);
    }
}
