//! Loads: pages that come from the store into the pool (`stored.rs` has the states of a page, and
//! the table of steps).
//!
//! An operation that comes to an absent page ends with an error that names the page, drops its
//! guard, loads the page and begins again. So no guard is held while a thread waits for the store.
//!
//! An absent page: the loaded state is the newest. While the word is absent with this stamp, no
//! other state of the page is written. Each eviction has another stamp, so a load that was
//! overtaken by a load, a change and an eviction fails. A partial page: see "Loads" in `blind.rs`.

use pando_index::{Error, Result};
use pando_pmem::{Domain, ReserveAccess, mutant};
use pando_tree::blocks::{Blocks, NewBlock};
use pando_tree::context::Context;
use pando_tree::room::{Attempts, Tries, with_room};

use crate::build::NewPage;
use crate::changes::changes_of_partial;
use crate::context::{At, Damaged, Pid, Value};
use crate::gather::{Gathered, Item};
use crate::image::Image;
use crate::image_delta::ImageDelta;
use crate::layout::{Kind, Link};
use crate::multi_word::{add_block, add_freed};
use crate::pages::PageError;
use crate::prepend::{NewDelta, beside};
use crate::residence::Residence;
use crate::stored::{Stored, is_partial};
use crate::tree::BwTree;

impl<D: Domain> BwTree<D, Stored> {
    /// Loads the page, if it is absent or partial.
    pub(crate) fn load(&self, pid: Pid, attempts_of_operation: &mut Attempts) -> Result<()> {
        let pages = self.pages()?;
        let (link, number) = {
            let guard = self.pin()?;
            let context = self.context(&guard);
            let link = Link::at(context, pid);
            if !link.is_absent() && !is_partial(context, link) {
                return Ok(());
            }
            (link, pages.number_of(context, self.anchor(context), pid))
        };
        let number = number.ok_or(Damaged::at(pid))?;
        let source = pages.source()?;
        let version = source.stored(number).map(|stored| stored.version);
        let image = source.read(number).map_err(Error::Storage)?;
        let Some(image) = image else {
            let guard = self.pin()?;
            // If the word has changed, the page was loaded, and perhaps removed.
            return match Link::at(self.context(&guard), pid) == link {
                true => Err(Error::storage(PageError::NotThere { page: number })),
                false => Ok(()),
            };
        };
        let image = Image::of_parts(&image).map_err(|what| PageError::damaged(number, what))?;
        let mut attempts = 0;
        loop {
            let done = with_room(
                &self.catalog,
                Tries::Few,
                || Stored::give_back(self, attempts_of_operation),
                || {
                    let guard = self.pin()?;
                    let access = match pages.access_of.get().map(|access_of| access_of()) {
                        None | Some(ReserveAccess::Undo | ReserveAccess::Without) => {
                            ReserveAccess::Without
                        }
                        Some(ReserveAccess::With) => ReserveAccess::With,
                        // The page may be changed next, and then it must stay.
                        Some(_) => ReserveAccess::Revocable,
                    };
                    let install = || {
                        let context = self.context(&guard);
                        if link.is_absent() {
                            return self.install(context, number, At { pid, link }, &image);
                        }
                        let version_now = || source.stored(number).map(|stored| stored.version);
                        let early = mutant!("bw-version-before-word").then(version_now);
                        // The word before the version: see "Loads" in `blind.rs`.
                        let at = At::now(context, pid);
                        let now = early.unwrap_or_else(version_now);
                        let is_same = now == version || mutant!("bw-partial-of-another-version");
                        match is_same && !at.link.is_absent() && is_partial(context, at.link) {
                            true => self.install_below(context, number, at, &image),
                            false => Ok(()),
                        }
                    };
                    attempts += 1;
                    guard.with_reserve_access(access, || {
                        pages.reserve_fitting(&guard, attempts, install)
                    })
                },
            );
            match done {
                Err(error) => self.after_refusal(error, attempts_of_operation)?,
                done => return done,
            }
        }
    }

    /// Puts the page `at`, which is absent, into the pool.
    fn install(
        &self,
        context: Context<'_, D>,
        number: u32,
        at: At,
        image: &Image<'_>,
    ) -> Result<()> {
        let block = self.build_loaded(context, number, image, self.room(0))?;
        let link = Link::base(block.off(), image.level > 0);
        let is_there = context.publish(|operation| {
            add_block(operation, at.pid, at.link.0, link, block)?;
            Ok(true)
        })?;
        if is_there {
            // If this fails, the page has changed.
            let (guard, written) = (context.guard, link.written().0);
            let _ = context.pmwcas.compare_exchange_undurable(guard, at.pid, link.0, written);
        }
        Ok(())
    }

    /// Puts the page into the pool below its partial page `at`.
    fn install_below(
        &self,
        context: Context<'_, D>,
        number: u32,
        at: At,
        image: &Image<'_>,
    ) -> Result<()> {
        let source = self.pages()?.source()?;
        let gathered = Gathered::any(context, at.link)?;
        let changes = changes_of_partial(context, at.link)?;
        for &(key, value) in &changes.records {
            let place = image.records.binary_search_by(|(found, _)| (*found).cmp(key));
            let stored = place.ok().map(|place| image.records[place].1);
            if let Some(value) = value {
                source.loaded(key, value, stored).map_err(Error::Storage)?;
            }
        }
        let deltas: Vec<_> = changes
            .records
            .iter()
            .map(|&(key, value)| NewDelta {
                value: [value.unwrap_or_default(), &[], &[], &[]],
                ..NewDelta::new(if value.is_some() { Kind::Insert } else { Kind::Delete }, key)
            })
            .collect();
        let room = deltas.iter().map(NewDelta::room).sum::<u64>();
        let chaining = self.chaining();
        let mut loaded = None;
        if chaining.is_beside && deltas.len() as u32 <= chaining.max_deltas / 2 {
            let block = self.build_loaded(context, number, image, self.room(0) + room)?;
            let link = Link::base(block.off(), false).written();
            loaded = beside(context, block, link, &deltas)?;
        }
        let (block, link) = match loaded {
            Some((block, link)) if at.link.is_written() => (block, link.written()),
            Some(loaded) => loaded,
            None => {
                let delta = ImageDelta { records: changes.records };
                let changed = image.clone().changed(&delta);
                let changed = changed.map_err(|what| PageError::damaged(number, what))?;
                let block = self.build_loaded(context, number, &changed, self.room(0))?;
                let link = Link::base(block.off(), false);
                (block, link)
            }
        };
        context.publish(|operation| {
            operation.add_word(at.pid, at.link.0, link.0)?;
            Blocks { new: Some(block), old: 0 }.give_to(operation)?;
            add_freed(operation, &gathered.blocks)?;
            Ok(true)
        })?;
        Ok(())
    }

    /// Builds a page that was read from the store.
    fn build_loaded<'op>(
        &self,
        context: Context<'op, D>,
        number: u32,
        image: &Image<'_>,
        room: u64,
    ) -> Result<NewBlock<'op, D>> {
        let pages = self.pages()?;
        let anchor = self.anchor(context);
        let pid_of = |named: u32| {
            let pid = pages.pid_of(context, anchor, named);
            let what = "it names a page that cannot be";
            pid.ok_or_else(|| PageError::damaged(number, what))
        };
        let mut children = Vec::new();
        if image.level > 0 {
            for (_, child) in &image.records {
                let child = child.first_chunk().map_or(0, |child| u32::from_le_bytes(*child));
                children.push(pid_of(child)?.to_le_bytes());
            }
        }
        let mut values = children.iter().map(<[u8; 8]>::as_slice);
        let items: Vec<Item<'_, D>> = (image.records.iter())
            .map(|&(key, value)| Item::One(key, Value::Inline(values.next().unwrap_or(value))))
            .collect();
        let right = match image.right {
            0 => 0,
            right => pid_of(right)?,
        };
        let page = NewPage {
            level: image.level,
            low: image.low,
            high: image.high,
            right,
            items: &items,
            room,
            is_partial: false,
        };
        page.build(context)
    }
}
