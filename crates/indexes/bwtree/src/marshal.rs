//! The bytes of a captured state, for its write into the store (`captures.rs` has the protocol):
//! the whole page as an image, or a delta, which has the records that differ from an earlier state.
//!
//! A link says in its chain too whether the store has its state: the mark that a written page has
//! stays with the delta that is prepended to it ([`Link::next`]). So a page is written as a delta
//! if
//!
//! * its chain has such a link, and only changes of records are above it;
//! * the store takes one more part of it, and all parts then have at most 1.5 times the bytes of
//!   the page;
//! * it is a leaf, and not the root.
//!
//! The delta has the newest state of each key that a change above the link concerns, also of keys
//! that an earlier delta had.
//!
//! Why the page is then right: let `l` be the link, and `t` the last state that the store got
//! before this group. Either `t` is the state of `l`, or it was captured later than `l` was marked,
//! for a mark belongs to the last capture. Then `l` is in the chain of `t` too, since a chain that
//! has lost a link does not get it back. So `t` differs from `l` only in keys of changes above `l`,
//! and of all of these the delta has the newest state. Keys that are pictured in another way in `t`
//! are among them: the mark says that the store has each record of `l` as `l` has it. The picture
//! of `t` is later than that of `l`, and a version that may reach the store once may always do so
//! afterwards.
//!
//! Why not the root: it gets the chain of its last child, with the child's marks, when it loses a
//! level. A page that was merged into its neighbour is below a change of structure.

use pando_index::{Error, Result};
use pando_pmem::{Domain, mutant};
use pando_tree::context::Context;

use crate::build::each_record;
use crate::context::{Damaged, Pid, Value};
use crate::gather::Gathered;
use crate::image::{Image, MAX_IMAGE_BYTES};
use crate::image_delta::ImageDelta;
use crate::layout::{Kind, Link};
use crate::page::{Chain, Page};
use crate::pages::too_long;
use crate::stored::Stored;
use crate::tree::BwTree;

/// A write of a page into the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageWrite {
    /// The page consists of this image.
    Image(u32, Vec<u8>),
    /// The page goes on with this delta.
    Delta(u32, Vec<u8>),
    /// The page exists no longer.
    Free(u32),
}

impl PageWrite {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Image(_, bytes) | Self::Delta(_, bytes) => bytes.len(),
            Self::Free(_) => 0,
        }
    }
}

/// How the store gets a record of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pictured {
    /// As the page has it.
    AsItIs,
    /// Not at all.
    Absent,
    /// With this value.
    With(Vec<u8>),
}

/// Says how the store gets each record.
pub trait Picture {
    /// Called once, after the number of the capture was taken and before any page is looked at. So
    /// a later capture has a later picture: the picture is as of now.
    fn begin(&mut self) {}

    /// How the store gets the record with this key and value.
    fn of(&mut self, key: &[u8], value: &[u8]) -> Result<Pictured>;
}

impl<F: FnMut(&[u8], &[u8]) -> Result<Pictured>> Picture for F {
    fn of(&mut self, key: &[u8], value: &[u8]) -> Result<Pictured> {
        self(key, value)
    }
}

/// The records that a delta has: keys, and values as the page has them; no value if the record is
/// gone. With the greatest LSN of the changes.
type Changes<'op> = (Vec<(&'op [u8], Option<&'op [u8]>)>, u64);

impl<D: Domain> BwTree<D, Stored> {
    /// The write of the page with this number, in the state that `link` leads to; whether it has
    /// each record as the page has it. `None` if it has not, and the page may be left out.
    pub(crate) fn write_of(
        &self,
        context: Context<'_, D>,
        (number, link): (u32, Link),
        (picture, may_leave): (&mut dyn Picture, bool),
    ) -> Result<Option<(PageWrite, bool)>> {
        if let Some(stored_bytes) = self.pages()?.source()?.bytes_to_extend(number)
            && (number != 0 || mutant!("bw-root-written-as-delta"))
            && let Some(changes) = changes_of(context, link)?
        {
            let most_bytes = Page::of(context, link)?.base_bytes() as usize / 2 * 3;
            let delta = delta_of(changes, (picture, may_leave))?;
            match delta {
                Some((bytes, _)) if stored_bytes + bytes.len() > most_bytes => {}
                Some((bytes, is_same)) => {
                    return Ok(Some((PageWrite::Delta(number, bytes), is_same)));
                }
                None => return Ok(None),
            }
        }
        let image = self.image_of(context, link, (picture, may_leave))?;
        Ok(image.map(|(bytes, is_same)| (PageWrite::Image(number, bytes), is_same)))
    }

    /// The page that `link` leads to, as an image; the rest as [`write_of`](Self::write_of).
    fn image_of(
        &self,
        context: Context<'_, D>,
        link: Link,
        (picture, may_leave): (&mut dyn Picture, bool),
    ) -> Result<Option<(Vec<u8>, bool)>> {
        let (pages, anchor) = (self.pages()?, self.anchor(context));
        let gathered = Gathered::new(context, link)?;
        let number_of = |pid: Pid| {
            let number = pages.number_of(context, anchor, pid);
            number.ok_or_else(|| Error::from(Damaged { off: pid }))
        };
        let items = gathered.items(false);
        let (mut records, mut children) = (Vec::new(), Vec::new());
        let (mut pictured, mut is_same) = (Vec::new(), true);
        if gathered.level > 0 {
            let mut pids = Vec::new();
            each_record(&items, |key, value| pids.push((key, value.child())));
            for (_, pid) in &pids {
                children.push(number_of(*pid)?.to_le_bytes());
            }
            let keys = pids.iter().map(|&(key, _)| key);
            records.extend(keys.zip(children.iter().map(<[u8; 4]>::as_slice)));
        } else {
            let mut is_whole = true;
            each_record(&items, |key, value| match value {
                Value::Inline(bytes) => records.push((key, bytes)),
                Value::Block(_) => is_whole = false,
            });
            if !is_whole {
                return Err(Damaged { off: link.off() }.into());
            }
            let values = records.iter().map(|&(key, value)| (key, Some(value)));
            let Some(found) = pictures_of(values, (picture, may_leave))? else { return Ok(None) };
            (pictured, is_same) = found;
        }
        if !is_same {
            let mut pictured = pictured.iter();
            records.retain_mut(|(_, value)| match pictured.next() {
                Some(Pictured::Absent) => false,
                Some(Pictured::With(other)) => {
                    *value = other;
                    true
                }
                _ => true,
            });
        }
        let right = match gathered.right {
            0 => 0,
            right => number_of(right)?,
        };
        let (level, low, high, lsn) = (gathered.level, gathered.low, gathered.high, gathered.lsn);
        let image = Image { lsn, level, low, high, right, records }.encode();
        match image.len() <= MAX_IMAGE_BYTES {
            true => Ok(Some((image, is_same))),
            false => Err(too_long(image.len() as u64)),
        }
    }
}

/// The changes above the newest link of the chain of a leaf of which the store has the state;
/// `None` if there is no such link, or a change above it is not one of a record.
fn changes_of<'op, D: Domain>(
    context: Context<'op, D>,
    link: Link,
) -> Result<Option<Changes<'op>>, Damaged> {
    if link == Link::EMPTY || link.is_inner() {
        return Ok(None);
    }
    let (mut chain, mut lsn) = (Chain::new(link), 0);
    let mut records: Vec<(&[u8], Option<&[u8]>)> = Vec::new();
    while let Some(delta) = chain.next(context)? {
        lsn = lsn.max(delta.lsn());
        let value = match delta.info.kind {
            Kind::Insert | Kind::Modify => match delta.value() {
                Value::Inline(bytes) => Some(bytes),
                Value::Block(_) => return Ok(None),
            },
            Kind::Delete => None,
            _ if mutant!("bw-delta-across-a-split") => continue,
            _ => return Ok(None),
        };
        // The newest one of a key is met first.
        if let Err(at) = records.binary_search_by(|(key, _)| (*key).cmp(delta.key())) {
            records.insert(at, (delta.key(), value));
        }
        if chain.link.is_written() {
            return Ok(Some((records, lsn)));
        }
    }
    Ok(None)
}

/// How the store gets each of the records, and whether that is as the page has it; `None` if it is
/// not, and the page may be left out. A record that is gone is gone in the store too.
fn pictures_of<'op>(
    records: impl Iterator<Item = (&'op [u8], Option<&'op [u8]>)>,
    (picture, may_leave): (&mut dyn Picture, bool),
) -> Result<Option<(Vec<Pictured>, bool)>> {
    let (mut pictured, mut is_same) = (Vec::new(), true);
    for (key, value) in records {
        pictured.push(value.map_or(Ok(Pictured::AsItIs), |value| picture.of(key, value))?);
        is_same &= pictured.last() == Some(&Pictured::AsItIs);
        if !is_same && may_leave {
            return Ok(None);
        }
    }
    Ok(Some((pictured, is_same)))
}

/// The bytes of a delta, and whether it has each record as the page has it; `None` if it has not,
/// and the page may be left out.
fn delta_of(
    (records, lsn): Changes<'_>,
    (picture, may_leave): (&mut dyn Picture, bool),
) -> Result<Option<(Vec<u8>, bool)>> {
    let found = pictures_of(records.iter().copied(), (picture, may_leave))?;
    let Some((pictured, is_same)) = found else { return Ok(None) };
    let records = records.into_iter().zip(&pictured);
    let records = records.map(|((key, value), pictured)| match pictured {
        Pictured::AsItIs => (key, value),
        Pictured::Absent => (key, None),
        Pictured::With(other) => (key, Some(other.as_slice())),
    });
    let delta = ImageDelta { lsn, records: records.collect() };
    Ok(Some((delta.encode(), is_same)))
}
