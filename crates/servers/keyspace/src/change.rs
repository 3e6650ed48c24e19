//! Changes of one string by a command that changes nothing else.
//!
//! Most writing commands are of this kind. They read the old string only to compute the new one, or
//! to keep its expiry. So the read and the write are one operation of the index
//! ([`Map::modify`](pando::Map::modify)), executed at once and not kept until the commit. That
//! operation is the commit point.
//!
//! This is correct only where one record changes: a string, or no key, becomes a string with the
//! same expiry, outside MULTI. All other changes take the long path, a read and a write that is
//! kept until the commit: of expired keys and collections, of an expiry, and of strings that are or
//! become long (in pieces).

use crate::failure::{Failure, Result};
use crate::layout::{Content, Head, hash_of, head_key_of_hash};
use crate::stripes::stripe_of;
use crate::transaction::{Transaction, has_expired};

/// The new value of a string.
#[derive(Debug)]
pub struct Next<'value> {
    encoded: &'value mut Vec<u8>,
    /// The expiry of the new head, once there is one.
    expires_at: Option<Option<u64>>,
    /// Whether the new string is too long for a head.
    is_long: bool,
    /// A longer string is stored in pieces.
    long_above_bytes: usize,
}

impl<'value> Next<'value> {
    fn new(encoded: &'value mut Vec<u8>, long_above_bytes: usize) -> Self {
        encoded.clear();
        Self { encoded, expires_at: None, is_long: false, long_above_bytes }
    }

    /// Sets the new head. Without this call the old value stays.
    #[inline]
    pub fn put(&mut self, head: &Head<'_>) {
        self.encoded.clear();
        head.encode_into(self.encoded);
        self.expires_at = Some(head.expires_at);
        self.is_long =
            matches!(head.content, Content::String(bytes) if bytes.len() > self.long_above_bytes);
    }
}

impl Transaction<'_> {
    /// Puts a string at `key` in place of its value, for a command that changes nothing else.
    #[inline]
    pub fn put_string(&mut self, space: u8, key: &[u8], head: &Head<'_>) -> Result<()> {
        let most_bytes = self.store().long_above_bytes;
        if matches!(head.content, Content::String(bytes) if bytes.len() > most_bytes) {
            return self.put_head(space, key, head);
        }
        self.change_string(space, key, |_, next| {
            next.put(head);
            Ok(())
        })
    }

    /// Lends the head of a key, or `None`, to `change`, which may put a new head; for a command
    /// that changes nothing else. `change` may be called more than once.
    #[inline]
    pub fn change_string<Answer>(
        &mut self,
        space: u8,
        key: &[u8],
        mut change: impl FnMut(Option<Head<'_>>, &mut Next<'_>) -> Result<Answer>,
    ) -> Result<Answer> {
        if let Some(answer) = self.change_at_once(space, key, &mut change)? {
            return Ok(answer);
        }
        let mut encoded = Vec::new();
        let mut next = Next::new(&mut encoded, self.store().long_above_bytes);
        let answer = self.head(space, key, |head| change(head, &mut next))??;
        if next.expires_at.is_some() {
            let head = Head::decode(&encoded).ok_or(Failure::Damaged)?;
            self.put_head(space, key, &head)?;
        }
        Ok(answer)
    }

    /// Does what `change_string` does by one operation of the index; `None` if that is not
    /// possible, and then nothing has changed.
    #[inline]
    fn change_at_once<Answer>(
        &mut self,
        space: u8,
        key: &[u8],
        change: &mut impl FnMut(Option<Head<'_>>, &mut Next<'_>) -> Result<Answer>,
    ) -> Result<Option<Answer>> {
        if !self.is_single() {
            return Ok(None);
        }
        let store = self.store();
        #[cfg(test)]
        store.refusals.step()?;
        let now_ms = self.now_ms();
        let hash = hash_of(key);
        let full = head_key_of_hash(space, hash, key);
        let mut made = Ok(None);
        let mut value_bytes = 0;
        let upserted = store.map.modify(&full, |found, encoded| {
            let mut next = Next::new(encoded, self.store().long_above_bytes);
            made = Head::decode_found(found).and_then(|former| {
                let is_other = |head: &Head<'_>| matches!(head.content, Content::Collection(..));
                if former.is_some_and(|head| is_other(&head) || has_expired(&head, now_ms)) {
                    return Ok(None);
                }
                let answer = change(former, &mut next)?;
                let expires_at = former.and_then(|head| head.expires_at);
                let has_pieces = former.is_some_and(|head| head.content.id().is_some());
                let is_one_record = !has_pieces && !next.is_long;
                let stays = next.expires_at.is_none_or(|at| at == expires_at && is_one_record);
                Ok(stays.then_some(answer))
            });
            let is_put = next.expires_at.is_some() && matches!(made, Ok(Some(_)));
            value_bytes = encoded.len();
            is_put
        })?;
        if let Some(upserted) = upserted {
            store.memory.note_write(full.len(), Some(value_bytes));
            store.memory.note_use(hash, now_ms);
            if let Some(stripe) = self.held().stripe_mut(stripe_of(hash)) {
                stripe.touch(space, key);
            }
            if upserted == pando::Upserted::Inserted {
                store.stripes.heads(stripe_of(hash)).note(space, hash, 1);
            }
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Kind;
    use crate::store::Store;
    use crate::stripes::Access;
    use crate::tests::{get, put_hash, records, refuse, set, volatile};
    use crate::transaction::Transaction;

    fn with<Answer>(store: &Store, work: impl FnOnce(&mut Transaction<'_>) -> Answer) -> Answer {
        let held =
            store.lock([Store::stripe_of_key(b"key")].into_iter().collect(), Access::Exclusive);
        let mut transaction = store.begin(held.expect("locks"), store.clock().now_ms());
        let answer = work(&mut transaction);
        transaction.commit().expect("commits");
        answer
    }

    fn append(transaction: &mut Transaction<'_>, more: &[u8]) -> Result<Option<Kind>> {
        transaction.change_string(0, b"key", |head, next| {
            let former = match head.map(|head| head.content) {
                Some(Content::String(bytes)) => bytes,
                _ => &[],
            };
            let expires_at = head.and_then(|head| head.expires_at);
            let whole = [former, more].concat();
            next.put(&Head { expires_at, ..Head::string(&whole) });
            Ok(head.map(|head| head.kind()))
        })
    }

    #[test]
    fn a_string_or_nothing_is_changed_at_once_and_all_else_the_long_way() {
        let store = volatile();
        let before = records(&store);
        assert_eq!(store.count(0).expect("counts"), 0);
        let at_once = |is_at_once: bool, more: &[u8]| {
            with(&store, |transaction| {
                let kind = append(transaction, more).expect("changes");
                assert_eq!(transaction.is_single(), is_at_once, "{more:?}");
                kind
            })
        };
        assert_eq!(at_once(true, b"a"), None);
        assert_eq!((records(&store), store.count(0).expect("counts")), (before + 1, 1));
        assert_eq!(at_once(true, b"b"), Some(Kind::String));
        assert_eq!(get(&store, 0, b"key").as_deref(), Some(&b"ab"[..]));
        // A string keeps its expiry.
        let later = store.clock().now_ms() + 1_000_000;
        set(&store, 0, b"key", b"timed", Some(later));
        assert_eq!(at_once(true, b"!"), Some(Kind::String));
        let kept = with(&store, |transaction| {
            transaction.head(0, b"key", |head| head.and_then(|head| head.expires_at))
        });
        assert_eq!(kept.expect("reads"), Some(later));
        // An expired string: its expiry entry must be removed with it.
        set(&store, 0, b"key", b"gone", Some(store.clock().now_ms()));
        assert_eq!(at_once(false, b"new"), None);
        assert_eq!(get(&store, 0, b"key").as_deref(), Some(&b"new"[..]));
        put_hash(&store, b"key", 3);
        assert_eq!(at_once(false, b"instead"), Some(Kind::Hash));
        assert_eq!(get(&store, 0, b"key").as_deref(), Some(&b"instead"[..]));
        assert_eq!(store.count(0).expect("counts"), 1);
    }

    #[test]
    fn what_is_one_of_several_commands_waits_for_the_commit() {
        let store = volatile();
        with(&store, |transaction| {
            transaction.gather_commands();
            append(transaction, b"a").expect("changes");
            append(transaction, b"b").expect("changes");
            assert_eq!(store.map.get(crate::layout::head_key(0, b"key")).ok(), Some(None));
        });
        assert_eq!(get(&store, 0, b"key").as_deref(), Some(&b"ab"[..]));
    }

    #[test]
    fn a_change_that_fails_or_is_refused_changes_nothing() {
        let store = volatile();
        set(&store, 0, b"key", b"1", None);
        let said = with(&store, |transaction| {
            transaction.change_string(0, b"key", |_, next| {
                next.put(&Head::string(b"2"));
                Err::<(), _>(crate::failure::WRONG_TYPE)
            })
        });
        assert!(said.is_err());
        with(&store, |transaction| {
            transaction.change_string(0, b"key", |_, _| Ok(())).expect("it stays")
        });
        refuse(&store, 0, 1);
        assert!(with(&store, |transaction| append(transaction, b"2")).is_err());
        assert_eq!(get(&store, 0, b"key").as_deref(), Some(&b"1"[..]));
    }
}
