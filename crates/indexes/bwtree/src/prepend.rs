//! New deltas: written and flushed before any other thread can see them.
//!
//! A delta stands in the delta space of its base, if there is room, or is a block. Room is claimed
//! by a swap of one word, which need not survive a crash ([`NewDelta::prepare`]).

use std::sync::atomic::Ordering;

use pando_index::Result;
use pando_pmem::{Domain, mutant};
use pando_tree::blocks::NewBlock;
use pando_tree::context::Context;

use crate::context::Damaged;
use crate::layout::{DELTA_ALIGN, DeltaInfo, KEY_AT, Kind, Link, MAX_DELTAS_END};
use crate::options::{Chaining, MAX_BLOCK_DELTAS};
use crate::page::{Chain, Delta, Page};
use crate::residence::Residence;
use crate::tree::BwTree;

/// A delta to be prepared.
#[derive(Clone, Copy, Debug)]
pub struct NewDelta<'op> {
    pub kind: Kind,
    pub key: &'op [u8],
    /// Its value, in up to four pieces.
    pub value: [&'op [u8]; 4],
    pub is_pointer: bool,
    pub is_endless: bool,
    pub position: u16,
}

impl<'op> NewDelta<'op> {
    /// A delta without a value.
    pub fn new(kind: Kind, key: &'op [u8]) -> Self {
        Self {
            kind,
            key,
            value: [&[]; 4],
            is_pointer: false,
            is_endless: false,
            position: crate::layout::NO_POSITION,
        }
    }

    pub fn info(&self, deltas: u8, is_own: bool) -> DeltaInfo {
        DeltaInfo {
            kind: self.kind,
            is_pointer: self.is_pointer,
            is_endless: self.is_endless,
            is_own,
            key_bytes: self.key.len() as u16,
            value_bytes: self.value.iter().map(|piece| piece.len() as u32).sum(),
            position: self.position,
            deltas,
        }
    }

    fn is_of_record(&self) -> bool {
        matches!(self.kind, Kind::Insert | Kind::Modify | Kind::Delete)
    }

    /// Bytes that it takes of a delta space.
    pub fn room(&self) -> u64 {
        self.info(0, false).room()
    }
}

/// A prepared delta, to which no word leads yet.
#[derive(Debug)]
pub enum Prepared<'op, D: Domain> {
    /// In the delta space of the base.
    Beside(Link),
    Block(Link, NewBlock<'op, D>),
}

impl<D: Domain> Prepared<'_, D> {
    pub fn link(&self) -> Link {
        match self {
            Self::Beside(link) | Self::Block(link, _) => *link,
        }
    }
}

impl NewDelta<'_> {
    /// Prepares the delta, to be prepended to `next`, which is not [`Link::EMPTY`]. Returns `None`
    /// if the chain has its greatest length, or there is no room.
    #[inline(always)]
    pub fn prepare<'op, D: Domain>(
        &self,
        context: Context<'op, D>,
        next: Link,
        chaining: Chaining,
    ) -> Result<Option<Prepared<'op, D>>> {
        let before = Delta::of(context, next)?.map_or(0, |delta| delta.info.deltas);
        // Inner pages change rarely, and every search reads them.
        let max_deltas = match next.is_inner() {
            true => chaining.max_deltas.div_ceil(4),
            false => chaining.max_deltas,
        };
        if u32::from(before) >= max_deltas {
            return Ok(None);
        }
        if !chaining.is_beside {
            let info = self.info(before.saturating_add(1), true);
            return self.prepare_block(context, next, info).map(Some);
        }
        let info = self.info(before.saturating_add(1), false);
        let base = match Page::of(context, next) {
            // A partial page takes changes of records.
            Err(unread)
                if chaining.may_be_partial
                    && self.is_of_record()
                    && unread.unread_pid().is_some() =>
            {
                Page::any_of(context, next)?
            }
            base => base?,
        };
        if base.deltas_at() + info.room() > MAX_DELTAS_END {
            return self.prepare_large(context, next, before);
        }
        let Some(off) = claim(context, &base, next, info.room())? else {
            // A base without deltas, whose room other threads have claimed and not used yet. If
            // this caused a consolidation, two threads could consolidate it in turn for ever.
            return if next.is_base() {
                self.prepare_large(context, next, before)
            } else {
                Ok(None)
            };
        };
        let pool = context.pool();
        // Relaxed: the delta is published by a later release.
        pool.word(off).store(info.encode(), Ordering::Relaxed);
        pool.word(off + 8).store(next.next().0, Ordering::Relaxed);
        let key_off = off + KEY_AT;
        if self.key.is_empty() {
            pool.word(key_off).store(0, Ordering::Relaxed);
        }
        pool.store_bytes(key_off, self.key);
        let value_off = off + info.value_at();
        match self.value {
            [only, [], [], []] => pool.store_bytes(value_off, only),
            pieces => pool.store_bytes(value_off, &pieces.concat()),
        }
        if !mutant!("bw-delta-not-flushed") {
            pool.flush(off, info.bytes());
        }
        Ok(Some(Prepared::Beside(Link::beside(base.off, off, next.is_inner()))))
    }

    /// Prepares a delta that has no room beside its base. A change of a record is better
    /// consolidated; a change of structure gets a block.
    #[cold]
    fn prepare_large<'op, D: Domain>(
        &self,
        context: Context<'op, D>,
        next: Link,
        before: u8,
    ) -> Result<Option<Prepared<'op, D>>> {
        if self.is_of_record() || u32::from(before) >= MAX_BLOCK_DELTAS {
            return Ok(None);
        }
        self.prepare_block(context, next, self.info(before + 1, true)).map(Some)
    }

    fn prepare_block<'op, D: Domain>(
        &self,
        context: Context<'op, D>,
        next: Link,
        info: DeltaInfo,
    ) -> Result<Prepared<'op, D>> {
        let mut block = context.reserve(info.bytes())?;
        block.zero(0, info.bytes());
        block.write_u64(0, info.encode());
        block.write_u64(8, next.next().0);
        block.write(KEY_AT, self.key);
        let mut at = info.value_at();
        for piece in self.value {
            block.write(at, piece);
            at += piece.len() as u64;
        }
        if !mutant!("bw-block-not-flushed") {
            block.flush(0, info.bytes());
        }
        Ok(Prepared::Block(Link::block(block.off(), next.is_inner()), block))
    }
}

impl<D: Domain, S: Residence> BwTree<D, S> {
    pub(crate) fn chaining(&self) -> Chaining {
        Chaining { may_be_partial: S::MAY_BE_ABSENT, ..self.options.chaining() }
    }
}

/// Whether a delta that takes `bytes` has room beside the base of the chain `link`. Other threads
/// may claim the room meanwhile.
pub(crate) fn has_room<D: Domain>(
    context: Context<'_, D>,
    base: &Page<'_, D>,
    link: Link,
    (bytes, chaining): (u64, Chaining),
) -> Result<bool, Damaged> {
    let before = Delta::of(context, link)?.map_or(0, |delta| u32::from(delta.info.deltas));
    let (_, at) = unclaimed(context, base, link)?;
    Ok(before < chaining.max_deltas
        && base.deltas_at() + bytes <= MAX_DELTAS_END
        && at + bytes <= base.end())
}

/// Writes the deltas into the delta space of a new leaf, to which `link` leads; the link to the
/// newest. `None` if they have no room there.
pub(crate) fn beside<'op, D: Domain>(
    context: Context<'op, D>,
    mut block: NewBlock<'op, D>,
    mut link: Link,
    deltas: &[NewDelta<'_>],
) -> Result<Option<(NewBlock<'op, D>, Link)>> {
    let base = Page::any_of(context, link)?;
    let room: u64 = deltas.iter().map(NewDelta::room).sum();
    let (first, end) = (base.deltas_at(), base.end());
    if first + room > end.min(MAX_DELTAS_END) {
        return Ok(None);
    }
    let mut at = first;
    for (count, delta) in deltas.iter().enumerate() {
        let info = delta.info(count as u8 + 1, false);
        block.zero(at, info.bytes());
        block.write_u64(at, info.encode());
        block.write_u64(at + 8, link.next().0);
        block.write(at + KEY_AT, delta.key);
        block.write(at + info.value_at(), delta.value[0]);
        link = Link::beside(block.off(), block.off() + at, false);
        at += info.room();
    }
    let generation = u64::from(context.pool().generation());
    block.write_u64(first - 8, generation << 32 | at);
    block.flush(first - 8, at - (first - 8));
    Ok(Some((block, link)))
}

/// Claims `bytes` of the page's delta space for the calling thread; returns where they begin.
///
/// The claim is not durable. A claim of another generation is void: the first free byte is then the
/// one behind the deltas of the chain `link`, to which no thread has added anything in this
/// generation.
#[inline(always)]
fn claim<D: Domain>(
    context: Context<'_, D>,
    page: &Page<'_, D>,
    link: Link,
    bytes: u64,
) -> Result<Option<u64>, Damaged> {
    let word = context.pool().word(page.off + page.deltas_at() - 8);
    loop {
        let (found, at) = unclaimed(context, page, link)?;
        if at + bytes > page.end() {
            return Ok(None);
        }
        let claimed = u64::from(context.pool().generation()) << 32 | (at + bytes);
        if word.compare_exchange(found, claimed).is_ok() {
            return Ok(Some(page.off + at));
        }
    }
}

/// The word of the page's claims, and where the room begins that no thread has claimed.
#[inline(always)]
fn unclaimed<D: Domain>(
    context: Context<'_, D>,
    page: &Page<'_, D>,
    link: Link,
) -> Result<(u64, u64), Damaged> {
    let first = page.deltas_at();
    let found = context.pool().word(page.off + first - 8).load(Ordering::Acquire);
    let is_of_now = (found >> 32) as u32 == context.pool().generation();
    let at = if mutant!("bw-claim-of-another-life") || is_of_now {
        found & 0xFFFF_FFFF
    } else {
        first_unused(context, page, link)?
    };
    match at >= first && at.is_multiple_of(DELTA_ALIGN) {
        true => Ok((found, at)),
        false => Err(Damaged::at(page.off)),
    }
}

#[cold]
fn first_unused<D: Domain>(
    context: Context<'_, D>,
    page: &Page<'_, D>,
    link: Link,
) -> Result<u64, Damaged> {
    let mut unused = page.deltas_at();
    let mut chain = Chain::new(link);
    while let Some(delta) = chain.next(context)? {
        if !delta.info.is_own {
            let end = delta.off.wrapping_sub(page.off).wrapping_add(delta.info.room());
            unused = unused.max(end);
        }
    }
    Ok(unused)
}

#[cfg(test)]
mod tests {
    use pando_index::RangeIndex;
    use pando_pmem::Process;
    use pando_tree::testing::Fixture;

    use super::*;
    use crate::tree::BwTree;
    use crate::{BwTrees, Options};

    fn tree() -> BwTree<Process> {
        let options = Options { delta_bytes: 64, ..Options::default() };
        Fixture::<Process, BwTrees>::anonymous(options).index
    }

    /// A base without deltas whose delta space is used up, as it is while other threads have
    /// claimed it and not used it yet. A delta of structure becomes a block; one of a record is
    /// consolidated.
    #[test]
    fn a_delta_of_structure_is_a_block_where_others_have_claimed_all_room() {
        let tree = tree();
        tree.insert(b"key", b"value").expect("inserts");
        let guard = tree.pin().expect("pins");
        let context = tree.context(&guard);
        let link = tree.root(context).expect("a root").link;
        assert!(link.is_base());
        let record = NewDelta::new(Kind::Delete, b"key");
        let split =
            NewDelta { value: [&[7; 8], &[], &[], &[]], ..NewDelta::new(Kind::Split, b"m") };
        let prepare =
            |delta| NewDelta::prepare(delta, context, link, tree.chaining()).expect("room");
        let mut beside = 0;
        while let Some(prepared) = prepare(&record) {
            assert!(matches!(prepared, Prepared::Beside(_)));
            beside += 1;
        }
        assert!((1..=8).contains(&beside), "{beside}");
        let Some(Prepared::Block(block_link, block)) = prepare(&split) else {
            panic!("no block for a delta of structure");
        };
        assert_eq!((block_link.off(), block_link.base_off()), (block.off(), None));
        let delta =
            Delta::of(context, block_link).expect("a delta that can be read").expect("a delta");
        assert_eq!((delta.info.kind, delta.next(), delta.key()), (Kind::Split, link, &b"m"[..]));
        assert!(delta.info.is_own && delta.info.deltas == 1);
        assert_eq!(delta.value_bytes(), [7; 8]);
        // Claimed and unused room is lost to the base, and nothing else.
        drop(block);
        assert!(tree.remove(b"key").expect("removes"));
        assert!(tree.is_empty().expect("reads"));
    }
}
