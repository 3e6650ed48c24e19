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

use std::collections::HashMap;

use pando_index::{Error, Result};
use pando_pmem::{Domain, mutant};
use pando_tree::context::Context;

use crate::build::each_record;
use crate::changes::{Changes, changes_of, changes_of_partial};
use crate::context::{Damaged, Pid, Value};
use crate::gather::Gathered;
use crate::image::{Image, MAX_IMAGE_BYTES};
use crate::image_delta::ImageDelta;
use crate::layout::Link;
use crate::page::Page;
use crate::pages::{PageError, too_long};
use crate::stored::{Stored, is_partial};
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
    /// As the store has it now: the record was written blindly, and may not reach the store yet.
    AsStored,
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

/// What becomes of a captured page.
#[derive(Debug)]
pub(crate) enum Marshalled {
    /// It is written; whether with each record as the page has it.
    Write(PageWrite, bool),
    /// It is left out, because it has a record in another way.
    Other,
    /// It is a partial page, whose parts in the store must be read first.
    Unread,
}

/// The parts of a page in the store, which were read before a capture, and their version.
pub(crate) type ReadAhead = (u64, Vec<Vec<u8>>);

impl<D: Domain> BwTree<D, Stored> {
    /// What becomes of the page with this number, in the state that `link` leads to. `may_leave`:
    /// it may be left out. `read` has its parts in the store, if they were read.
    pub(crate) fn marshal(
        &self,
        context: Context<'_, D>,
        (number, link): (u32, Link),
        (picture, may_leave): (&mut dyn Picture, bool),
        read: Option<&ReadAhead>,
    ) -> Result<Marshalled> {
        if is_partial(context, link) {
            return self.marshal_partial(context, (number, link), (picture, may_leave), read);
        }
        let stored = self.pages()?.source()?.stored(number).filter(|stored| stored.takes_delta);
        if let Some(stored) = stored
            && (number != 0 || mutant!("bw-root-written-as-delta"))
            && let Some(changes) = changes_of(context, link)?
        {
            let most_bytes = Page::of(context, link)?.base_bytes() as usize / 2 * 3;
            let delta = delta_of(changes, (picture, may_leave))?;
            match delta {
                Some((bytes, _)) if stored.bytes + bytes.len() > most_bytes => {}
                Some((bytes, is_same)) => {
                    return Ok(Marshalled::Write(PageWrite::Delta(number, bytes), is_same));
                }
                None => return Ok(Marshalled::Other),
            }
        }
        let image = self.image_of(context, link, (picture, may_leave))?;
        Ok(image.map_or(Marshalled::Other, |(bytes, is_same)| {
            Marshalled::Write(PageWrite::Image(number, bytes), is_same)
        }))
    }

    /// The same, of a partial page (`blind.rs`).
    fn marshal_partial(
        &self,
        context: Context<'_, D>,
        (number, link): (u32, Link),
        (picture, may_leave): (&mut dyn Picture, bool),
        read: Option<&ReadAhead>,
    ) -> Result<Marshalled> {
        let stored = self.pages()?.source()?.stored(number);
        if stored.is_some_and(|stored| stored.takes_delta)
            && let Some(changes) = changes_of(context, link)?
        {
            let delta = delta_of(changes, (picture, may_leave))?;
            // It has nothing that the store may have now.
            let delta = delta.filter(|(bytes, is_same)| *is_same || !ImageDelta::is_empty(bytes));
            return Ok(delta.map_or(Marshalled::Other, |(bytes, is_same)| {
                Marshalled::Write(PageWrite::Delta(number, bytes), is_same)
            }));
        }
        let Some((version, parts)) = read else { return Ok(Marshalled::Unread) };
        let is_same = stored.is_some_and(|stored| stored.version == *version);
        if !is_same && !mutant!("bw-joined-with-another-version") {
            return Ok(Marshalled::Unread);
        }
        let Changes { records } = changes_of_partial(context, link)?;
        let found = pictures_of(records.iter().copied(), (picture, may_leave))?;
        let Some((pictured, is_same)) = found else { return Ok(Marshalled::Other) };
        let delta = ImageDelta { records: as_pictured(&records, &pictured) };
        let page = Image::of_parts(parts).and_then(|image| image.changed(&delta));
        let bytes = page.map_err(|what| PageError::damaged(number, what))?.encode();
        match bytes.len() <= MAX_IMAGE_BYTES {
            true => Ok(Marshalled::Write(PageWrite::Image(number, bytes), is_same)),
            false => Err(too_long(bytes.len() as u64)),
        }
    }

    /// Reads the parts of those pages that are partial, and of which the store takes no more
    /// deltas. Pages whose parts cannot be read are moved to `failed`, with their errors.
    pub(crate) fn read_ahead(
        &self,
        wanted: &[u32],
        failed: &mut Vec<(u32, Error)>,
    ) -> Result<HashMap<u32, ReadAhead>> {
        let pages = self.pages()?;
        let source = pages.source()?;
        let mut read = HashMap::new();
        for &number in wanted {
            let Some(stored) = source.stored(number).filter(|stored| !stored.takes_delta) else {
                continue;
            };
            {
                let guard = self.pin()?;
                let context = self.context(&guard);
                let pid = pages.pid_of(context, self.anchor(context), number);
                if !pid.is_some_and(|pid| is_partial(context, Link::at(context, pid))) {
                    continue;
                }
            }
            match source.read(number) {
                Ok(Some(parts)) => drop(read.insert(number, (stored.version, parts))),
                Ok(None) => {}
                Err(error) => failed.push((number, Error::Storage(error))),
            }
        }
        Ok(read)
    }

    /// The page that `link` leads to, as an image; the rest as [`marshal`](Self::marshal).
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
            number.ok_or_else(|| Error::from(Damaged::at(pid)))
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
                return Err(Damaged::at(link.off()).into());
            }
            let values = records.iter().map(|&(key, value)| (key, Some(value)));
            let Some(found) = pictures_of(values, (picture, may_leave))? else { return Ok(None) };
            (pictured, is_same) = found;
        }
        let mut is_late = false;
        if !is_same {
            let mut pictured = pictured.iter();
            records.retain_mut(|(_, value)| match pictured.next() {
                Some(Pictured::Absent) => false,
                // The store's value was kept when the page was loaded, and is forgotten now.
                Some(Pictured::AsStored) => {
                    is_late = true;
                    false
                }
                Some(Pictured::With(other)) => {
                    *value = other;
                    true
                }
                _ => true,
            });
        }
        if is_late {
            return Err(Error::storage(PageError::CapturedTooLate));
        }
        let right = match gathered.right {
            0 => 0,
            right => number_of(right)?,
        };
        let (level, low, high) = (gathered.level, gathered.low, gathered.high);
        let image = Image { level, low, high, right, records }.encode();
        match image.len() <= MAX_IMAGE_BYTES {
            true => Ok(Some((image, is_same))),
            false => Err(too_long(image.len() as u64)),
        }
    }
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
    Changes { records }: Changes<'_>,
    (picture, may_leave): (&mut dyn Picture, bool),
) -> Result<Option<(Vec<u8>, bool)>> {
    let found = pictures_of(records.iter().copied(), (picture, may_leave))?;
    let Some((pictured, is_same)) = found else { return Ok(None) };
    let delta = ImageDelta { records: as_pictured(&records, &pictured) };
    Ok(Some((delta.encode(), is_same)))
}

/// The records as they are pictured, without those that the store has already.
fn as_pictured<'all>(
    records: &[(&'all [u8], Option<&'all [u8]>)],
    pictured: &'all [Pictured],
) -> Vec<(&'all [u8], Option<&'all [u8]>)> {
    let pictured = records.iter().zip(pictured).filter_map(|(&(key, value), pictured)| {
        Some(match pictured {
            Pictured::AsItIs => (key, value),
            Pictured::Absent => (key, None),
            Pictured::With(other) => (key, Some(other.as_slice())),
            Pictured::AsStored => return None,
        })
    });
    pictured.collect()
}
