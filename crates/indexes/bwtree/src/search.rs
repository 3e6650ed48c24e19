//! The search for a key: down the inner pages, along side links, and through a leaf's chain.
//!
//! Every page may have been split since the word that led to it was read. So the search first
//! checks whether the target lies behind the page. A chain is walked from the newest record on, and
//! the first record that concerns the key decides. A split delta is older than all deltas of keys
//! that it left in the page, and newer than those of keys that it moved out of it. A node merge
//! delta stands for two chains, and the search continues in one of them.
//!
//! The step that removes a page, or an earlier one, also changes the word that led to it. So a
//! thread at a removed page reads again the word that led there. If it has changed, the search
//! starts again at the root. If not, one of the two words is damaged.
//!
//! # Damaged words
//!
//! A word of the mapping table may hold anything if the pool is damaged. A search then ends with
//! [`Damaged`], or at a page that looks undamaged (`page.rs`), for these reasons. Chains are walked
//! a bounded number of steps. Each step to a child is one level down, and there are at most 255
//! levels. Each step to the right leads to a page with a higher lowest key. A search that starts
//! again has seen a word change. A leaf that begins behind the searched key belongs to another
//! range, so an insert puts nothing where no search would find it. (If a leaf ends before the key,
//! side links lead on.)

use std::ops::Range;

use pando_index::Result;
use pando_pmem::{Domain, mutant};
use pando_tree::context::Context;
use pando_tree::key::{Probe, Target};

use crate::context::{At, Damaged, Pid, Value, damaged};
use crate::layout::{Kind, Link, NO_POSITION};
use crate::page::{Chain, Located, Page};
use crate::style::Style;
use crate::table::begun_off;
use crate::tree::BwTree;

/// Where a target lies, seen from a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// In this child of the inner page.
    Child(Pid),
    /// In the page itself, which is a leaf.
    Here,
    /// Behind it, from its right sibling on.
    Right(Pid),
    /// Nowhere: the page is being removed.
    Leaving,
}

/// The answer of a leaf for a key.
#[derive(Clone, Copy, Debug)]
pub enum Found<'op> {
    /// The record, and the position of its key in the base, if known.
    Value(Value<'op>, u16),
    /// There is no record; the position where its key would be.
    Absent(u16),
    /// The key lies behind the leaf.
    Right(Pid),
    /// The leaf is being removed.
    Leaving,
}

impl Link {
    /// Where the target lies, seen from the page that the link leads to.
    #[inline(always)]
    pub fn route<D: Domain>(
        self,
        context: Context<'_, D>,
        target: Target<'_>,
    ) -> Result<Route, Damaged> {
        let mut chain = Chain::new(self);
        while let Some(delta) = chain.next(context)? {
            match delta.info.kind {
                // The range begins there.
                Kind::IndexEntry if !target.reaches_slice(delta.key_slice()) => {}
                Kind::IndexEntry | Kind::IndexEntryDelete => {
                    let entry = delta.entry()?;
                    let is_within = target.reaches(entry.low)
                        && entry.high.is_none_or(|high| !target.reaches(high));
                    if is_within {
                        return Ok(Route::Child(entry.child));
                    }
                }
                Kind::Split if target.reaches(delta.key()) => {
                    return Ok(Route::Right(delta.value_word()));
                }
                Kind::NodeMerge if target.reaches(delta.key()) => {
                    chain.link = Link(delta.value_word());
                }
                Kind::RemoveNode => return Ok(Route::Leaving),
                _ => {}
            }
        }
        if chain.link == Link::EMPTY {
            return Ok(Route::Here);
        }
        let page = Page::of(context, chain.link)?;
        let is_behind = match target {
            Target::Holding(probe) => page.is_before(probe),
            _ => page.high().is_some_and(|high| target.reaches(high)),
        };
        if is_behind {
            return Ok(Route::Right(page.right()));
        }
        if page.level() == 0 {
            return Ok(Route::Here);
        }
        // The separators from the second child on; the first child has the keys before them.
        let position = match target {
            Target::Last => page.records(),
            Target::Holding(probe) => match page.locate(probe) {
                Located::At(at) => at + 1,
                Located::Before(before) => before,
            },
            Target::Before(probe) => match page.locate(probe) {
                Located::At(at) => at,
                Located::Before(before) => before,
            },
        };
        Ok(Route::Child(page.child(position.saturating_sub(1))))
    }

    /// The answer of the leaf for the key. `shortcuts` is the option; `may_be_partial`: the
    /// page may be partial.
    #[inline(always)]
    pub fn find<'op, D: Domain>(
        self,
        context: Context<'op, D>,
        probe: Probe<'_>,
        (shortcuts, may_be_partial): (bool, bool),
    ) -> Result<Found<'op>, Damaged> {
        let mut chain = Chain::new(self);
        // The range of possible positions of the key in the base.
        let (mut from, mut to) = (0, usize::MAX);
        let mut is_known = true;
        while let Some(delta) = chain.next(context)? {
            let info = delta.info;
            match info.kind {
                Kind::Insert | Kind::Modify | Kind::Delete => {
                    let head = delta.key_slice();
                    if head == probe.slice && delta.is_of(probe) {
                        let position = if is_known { info.position } else { NO_POSITION };
                        return Ok(match info.kind {
                            Kind::Delete => Found::Absent(position),
                            _ => Found::Value(delta.value(), position),
                        });
                    }
                    if shortcuts {
                        // Without a branch on the comparison, whose result has no pattern. An
                        // unknown position is above all real ones.
                        let position = usize::from(info.position);
                        let is_below = head < probe.slice && info.position != NO_POSITION;
                        let is_above = head > probe.slice;
                        from = from.max(if is_below { position } else { 0 });
                        to = to.min(if is_above { position } else { usize::MAX });
                    }
                }
                Kind::Split if !mutant!("bw-split-ignored") && delta.is_not_behind(probe) => {
                    return Ok(Found::Right(delta.value_word()));
                }
                Kind::RemoveNode if !mutant!("bw-cas-leaving-unseen") => return Ok(Found::Leaving),
                Kind::NodeMerge => {
                    is_known = false;
                    if delta.is_not_behind(probe) {
                        chain.link = Link(delta.value_word());
                        (from, to) = (0, usize::MAX);
                    }
                }
                _ => {}
            }
        }
        if chain.link == Link::EMPTY {
            return Ok(Found::Absent(NO_POSITION));
        }
        let page = match Page::of(context, chain.link) {
            Ok(page) => page,
            Err(unread) if may_be_partial && unread.unread_pid().is_some() => {
                return find_in_partial(context, chain.link, probe, unread);
            }
            Err(damaged) => return Err(damaged),
        };
        if !mutant!("bw-high-key-ignored") && page.is_before(probe) {
            return Ok(Found::Right(page.right()));
        }
        let known = |position: usize| match u16::try_from(position) {
            Ok(position) if is_known => position.min(NO_POSITION),
            _ => NO_POSITION,
        };
        let range: Range<usize> = from..to.min(page.records());
        Ok(match page.locate_in(range, probe) {
            Located::At(at) => Found::Value(page.value(at), known(at)),
            Located::Before(0) if page.begins_behind(probe) => {
                return Err(Damaged::at(page.off));
            }
            Located::Before(before) => Found::Absent(known(before)),
        })
    }
}

/// The answer of a partial page for the key, if it has one (`blind.rs`); otherwise the error.
#[cold]
fn find_in_partial<'op, D: Domain>(
    context: Context<'op, D>,
    link: Link,
    probe: Probe<'_>,
    error: Damaged,
) -> Result<Found<'op>, Damaged> {
    let page = Page::any_of(context, link)?;
    match page.locate(probe) {
        Located::At(at) => Ok(Found::Value(page.value(at), NO_POSITION)),
        Located::Before(_) => Err(error),
    }
}

impl<D: Domain, S: Style<D>> BwTree<D, S> {
    /// The leaf to which the target leads; it may have been split since.
    #[inline(always)]
    pub(crate) fn find_leaf(&self, context: Context<'_, D>, target: Target<'_>) -> Result<At> {
        'root: loop {
            let mut at = self.root(context)?;
            let mut levels = 0;
            while at.link.is_inner() {
                let next = match at.link.route(context, target)? {
                    Route::Child(pid) => self.descend(context, at, pid, &mut levels)?,
                    Route::Right(pid) => self.step_right(context, at, pid)?,
                    Route::Leaving => self.help(context, at)?,
                    Route::Here => return Err(damaged(at)),
                };
                let Some(next) = next else { continue 'root };
                at = next;
            }
            return Ok(at);
        }
    }

    /// The leaf in which the target lies.
    pub(crate) fn find_holder(&self, context: Context<'_, D>, target: Target<'_>) -> Result<At> {
        'root: loop {
            let mut at = self.find_leaf(context, target)?;
            loop {
                let next = match at.link.route(context, target)? {
                    Route::Right(right) => self.step_right(context, at, right)?,
                    Route::Leaving => self.help(context, at)?,
                    Route::Here => return Ok(at),
                    Route::Child(_) => return Err(damaged(at)),
                };
                let Some(next) = next else { continue 'root };
                at = next;
            }
        }
    }

    /// The page on `level`, above the leaves, to which the target leads, and its child for the
    /// target; `None` if the tree is not so high.
    pub(crate) fn find_inner(
        &self,
        context: Context<'_, D>,
        target: Target<'_>,
        level: u8,
    ) -> Result<Option<(At, Pid)>> {
        self.find_inner_by(context, target, level, Self::step_right)
    }

    /// Like [`find_inner`](Self::find_inner), with `step` along side links.
    pub(crate) fn find_inner_by<'op>(
        &self,
        context: Context<'op, D>,
        target: Target<'_>,
        level: u8,
        step: impl Fn(&Self, Context<'op, D>, At, Pid) -> Result<Option<At>>,
    ) -> Result<Option<(At, Pid)>> {
        'root: loop {
            let mut at = self.root(context)?;
            let mut levels = 0;
            loop {
                if !at.link.is_inner() {
                    return Ok(None);
                }
                let found = Page::of(context, at.link)?.level();
                if found < level {
                    return Ok(None);
                }
                let next = match at.link.route(context, target)? {
                    Route::Child(pid) if found == level => return Ok(Some((at, pid))),
                    Route::Child(pid) => self.descend(context, at, pid, &mut levels)?,
                    Route::Right(pid) => step(self, context, at, pid)?,
                    Route::Leaving => self.help(context, at)?,
                    Route::Here => return Err(damaged(at)),
                };
                let Some(next) = next else { continue 'root };
                at = next;
            }
        }
    }

    /// The root, which is never removed.
    #[inline(always)]
    pub(crate) fn root(&self, context: Context<'_, D>) -> Result<At> {
        let pid = self.root_pid(context);
        context.pool().words_within(pid, 1).ok_or(Damaged::at(pid))?;
        let at = At::now(context, pid);
        if at.link.is_removed() || at.link == Link::EMPTY && !is_new(context, pid) {
            return Err(S::missing(at).unwrap_or_else(|| damaged(at)));
        }
        Ok(at)
    }

    /// The child of `at` at `pid`; `None` if it was removed, and the search starts again. `levels`
    /// counts steps down.
    #[inline(always)]
    fn descend(
        &self,
        context: Context<'_, D>,
        at: At,
        pid: Pid,
        levels: &mut u32,
    ) -> Result<Option<At>> {
        *levels += 1;
        if *levels > u32::from(u8::MAX) {
            return Err(damaged(at));
        }
        self.arrive(context, at, pid)
    }

    /// The page at `pid`, to which `from` leads; prefetches its lines. `None` if it was removed,
    /// and `from` has changed since it was read.
    #[inline(always)]
    pub(crate) fn arrive(&self, context: Context<'_, D>, from: At, pid: Pid) -> Result<Option<At>> {
        let link = Link::at(context, pid);
        if link.is_removed() || link == Link::EMPTY {
            return self.gone(context, from, At { pid, link });
        }
        S::touch(self, At { pid, link });
        prefetch(context, link);
        Ok(Some(At { pid, link }))
    }

    /// There is no page at `at`. It is absent, or was removed after `from` was read, or one of the
    /// two words is damaged.
    #[cold]
    fn gone(&self, context: Context<'_, D>, from: At, at: At) -> Result<Option<At>> {
        if let Some(missing) = S::missing(at) {
            return Err(missing);
        }
        if Link::at(context, from.pid) == from.link { Err(damaged(at)) } else { Ok(None) }
    }

    /// The right sibling of `at`, where a search continues whose target lies behind the page;
    /// `None` if the search starts again.
    #[cold]
    pub(crate) fn step_right(
        &self,
        context: Context<'_, D>,
        at: At,
        right: Pid,
    ) -> Result<Option<At>> {
        // The search continues even if the pool has no room to complete a change.
        let _ = S::passed_side_link(self, context, at);
        self.pass_side_link(context, at, right)
    }

    /// Like [`step_right`](Self::step_right), but completes nothing.
    pub(crate) fn pass_side_link(
        &self,
        context: Context<'_, D>,
        at: At,
        right: Pid,
    ) -> Result<Option<At>> {
        if right == 0 {
            return Err(damaged(at));
        }
        let Some(next) = self.arrive(context, at, right)? else { return Ok(None) };
        if Page::of(context, next.link)?.low() <= Page::of(context, at.link)?.low() {
            return Err(damaged(at));
        }
        Ok(Some(next))
    }

    /// Completes the removal of the page; the search starts again.
    #[cold]
    pub(crate) fn help(&self, context: Context<'_, D>, at: At) -> Result<Option<At>> {
        // It gives back the room that it takes.
        context.guard.with_reserve(|| S::complete_removal(self, context, at))?;
        Ok(None)
    }
}

/// Prefetches lines of the page: the header, the first slices, and the newest deltas, which stand
/// one before the other.
#[inline(always)]
pub(crate) fn prefetch<D: Domain>(context: Context<'_, D>, link: Link) {
    let Some(base) = link.base_off() else { return };
    for line in 0..6 {
        context.pool().prefetch(base + line * 64);
    }
    if link.off() != base {
        context.pool().prefetch(link.off());
        context.pool().prefetch(link.off().wrapping_sub(64));
        context.pool().prefetch(link.off().wrapping_sub(128));
    }
}

/// Whether a tree without a root at `pid` has never had a record.
#[cold]
fn is_new<D: Domain>(context: Context<'_, D>, pid: Pid) -> bool {
    // A root may have appeared since it was searched. Its word is written before `begun`, or
    // together with it.
    context.read(begun_off(pid)) == 0 || Link::at(context, pid) != Link::EMPTY
}
