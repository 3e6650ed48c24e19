//! The descent for a key of eight bytes, as far as all separators have eight bytes, too.
//!
//! It decides as [`Inner::search`](crate::Inner::search) does.
//! A node is checked once, as a whole: its kind, its shape, and that all its children and
//! separators lie in the node and in the pool. A node that fails, and a child that is being
//! changed, ends the descent above it. The caller continues there in the general way, which finds
//! the same damage, and notes it.
//!
//! | node | where it is searched |
//! | --- | --- |
//! | fewer than sixteen separators | all of them, by halves |
//! | more, below the root | seventeen around the guess: the child's bounds are among them |
//! | more, at the root | around the share of all numbers, then all |
//! | more, without a guess, or after a wrong one | all of them, prefetched |

use std::sync::atomic::Ordering;

use pando_pmem::{Domain, Part, Words};
use pando_pmwcas::CONTROL_BITS;

use crate::guess::{Span, WINDOW, prefetch_window, window_of_all};
use crate::layout::{HEADER_BYTES, Header, Hint, Link, MAX_HEIGHT, Shape, separators_of};
use crate::node::{Leaves, each_searched};
use crate::slices::search_numbers;

/// An inner node whose separators all have eight bytes.
#[derive(Debug)]
struct Numbers<'pool, D> {
    /// The words before the children, the children, and the separators; nothing else.
    words: Words<'pool, D>,
    children: u64,
    separators: u64,
}

impl<D> Clone for Numbers<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Numbers<'_, D> {}

/// The way to a node: the bounds of its keys, and the first of the separators around the guess.
#[derive(Clone, Copy, Debug)]
struct Way {
    link: Link,
    span: Span,
    window: u64,
}

/// The child of a node.
enum Child {
    /// A leaf, as its link says.
    Leaf(Link),
    Inner(Way),
}

type Window<'pool, D> = Part<'pool, D, { WINDOW as usize }>;

/// Words before the children.
const HEADER_WORDS: u64 = HEADER_BYTES / 8;
/// No node has so many separators: there is no guess.
const NO_WINDOW: u64 = u32::MAX as u64;

/// The first node from `root` on, on the way to `number`, that is a leaf, or is to be read in the
/// general way. `all` are all words of the pool.
#[inline(always)]
pub(crate) fn descend<D: Domain, L: Leaves>(all: Words<'_, D>, root: Link, number: u64) -> Link {
    // The root is searched apart: it often has few separators, and other nodes have not.
    let mut at = match child_of_root::<D, L>(all, root, number) {
        Some(Child::Leaf(link)) => return link,
        Some(Child::Inner(child)) => child,
        None => return root,
    };
    for _ in 1..MAX_HEIGHT {
        match child::<D, L>(all, at, number) {
            Some(Child::Leaf(link)) => return link,
            Some(Child::Inner(child)) => at = child,
            None => break,
        }
    }
    at.link
}

/// The child of the root on the way to `number`; `None` if the root is a leaf, or is to be read in
/// the general way.
#[inline(always)]
fn child_of_root<D: Domain, L: Leaves>(
    all: Words<'_, D>,
    root: Link,
    number: u64,
) -> Option<Child> {
    let node = Numbers::at(all, root)?;
    node.child::<L>(all, Span::ALL, node.search(number), number)
}

/// The same of a node below the root.
#[inline(always)]
fn child<D: Domain, L: Leaves>(all: Words<'_, D>, at: Way, number: u64) -> Option<Child> {
    let node = Numbers::at(all, at.link)?;
    let Some((part, place)) = node.search_window(at.window, number) else {
        let index = search_outside(node.words, node.separators, number);
        return node.child::<L>(all, at.span, index, number);
    };
    // Relaxed, here and below: separators never change, and the thread has read, with acquire, the
    // word that published the node.
    let bound = move |at: u64| part.load(at, Ordering::Relaxed).swap_bytes();
    let index = at.window + place + 1;
    node.follow::<L>(all, index, number, move || bound(place), move || bound(place + 1))
}

impl<'pool, D: Domain> Numbers<'pool, D> {
    /// The node that `link` names, if it is one.
    #[inline(always)]
    fn at(all: Words<'pool, D>, link: Link) -> Option<Self> {
        let rest = all.skip(link.word_index())?;
        let head = rest.chunk::<3>(0)?;
        // Relaxed: as in `Node::at`.
        let (header, shape) = (head.load(0, Ordering::Relaxed), head.load(2, Ordering::Relaxed));
        let separators = separators_of(header)?;
        let children = separators + 1;
        if shape != Shape::of_numbers(children) {
            return None;
        }
        let words =
            rest.take(Header::of(header).node_bytes / 8)?.take(HEADER_WORDS - 1 + 2 * children)?;
        Some(Self { words, children, separators })
    }

    /// Where the separators begin among the words.
    #[inline(always)]
    fn first(self) -> u64 {
        HEADER_WORDS + self.children
    }

    #[inline(always)]
    fn separator(self, index: u64) -> u64 {
        self.words.at(self.first() + index, Ordering::Relaxed).swap_bytes()
    }

    /// The separators from `window` on, and the place among them of the lower bound of the child
    /// for `number`; `None` if the child's bounds are not both there.
    #[inline(always)]
    fn search_window(self, window: u64, number: u64) -> Option<(Window<'pool, D>, u64)> {
        let part: Window<'pool, D> = self.words.chunk(self.first() + window)?;
        let separator = |at: u64| part.load(at, Ordering::Relaxed).swap_bytes();
        if separator(0) > number || separator(WINDOW - 1) <= number {
            return None;
        }
        // The answer is one of sixteen. Each step has three loads that do not wait for each other,
        // and no branch that a processor could not predict.
        let step = |from: u64, by: u64| {
            let of = |place: u64| u64::from(separator(from + place * by) <= number);
            by * (of(1) + of(2) + of(3))
        };
        let quarter = step(0, 4);
        Some((part, quarter + step(quarter, 1)))
    }

    /// The index of the child for `number`.
    #[inline(always)]
    fn search(self, number: u64) -> u64 {
        let goes_right = |index: u64| u64::from(self.separator(index) <= number);
        match self.separators {
            0 => 0,
            1..4 => (0..self.separators).map(goes_right).sum(),
            4..8 => self.search_few::<3>(number),
            8..16 => self.search_few::<7>(number),
            separators => {
                let window = window_of_all(number, separators);
                let found = self.search_window(window, number).map(|(_, place)| window + place + 1);
                found.unwrap_or_else(|| search_all(self.words, separators, number))
            }
        }
    }

    /// The same among `N + 1` to `2 N + 1` separators: the first or the last `N` of them decide.
    #[inline(always)]
    fn search_few<const N: usize>(self, number: u64) -> u64 {
        let is_high = self.separator(N as u64) <= number;
        let start = if is_high { self.separators - N as u64 } else { 0 };
        let Some(part) = self.words.chunk::<N>(self.first() + start) else { return 0 };
        let step = |from: u64, by: u64| {
            let separator = part.load(from + by - 1, Ordering::Relaxed).swap_bytes();
            by * u64::from(separator <= number)
        };
        let mut place = if N == 7 { step(0, 4) } else { 0 };
        place += step(place, 2);
        place += step(place, 1);
        start + place
    }

    /// Child `index`, of a node whose keys lie within `span`.
    #[inline(always)]
    fn child<L: Leaves>(
        self,
        all: Words<'pool, D>,
        span: Span,
        index: u64,
        number: u64,
    ) -> Option<Child> {
        let low = move || match index {
            0 => span.low,
            _ => self.separator(index - 1),
        };
        let high = move || if index < self.separators { self.separator(index) } else { span.high };
        self.follow::<L>(all, index, number, low, high)
    }

    /// Child `index`, prefetched; `low` and `high` are its bounds.
    #[inline(always)]
    fn follow<L: Leaves>(
        self,
        all: Words<'pool, D>,
        index: u64,
        number: u64,
        low: impl FnOnce() -> u64,
        high: impl FnOnce() -> u64,
    ) -> Option<Child> {
        // Acquire: pairs with the swap that stored the link, as in `Pmwcas::read`.
        let found = self.words.get(HEADER_WORDS + index, Ordering::Acquire)?;
        if found & CONTROL_BITS != 0 {
            return None;
        }
        let link = Link(found);
        all.prefetch(link.word_index());
        let window = match link.hint() {
            Hint::Leaf(hint) => {
                let node = link.word_index();
                L::prefetch(|at| all.prefetch(node + at / 8), hint, number.wrapping_sub(low()));
                return Some(Child::Leaf(link));
            }
            Hint::Inner { children } => {
                let span = Span { low: low(), high: high() };
                let window = span.window(number, children - 1);
                prefetch_window(all, link.word_index(), children, window);
                return Some(Child::Inner(Way { link, span, window }));
            }
            Hint::None => NO_WINDOW,
        };
        all.prefetch(link.word_index() + 8);
        Some(Child::Inner(Way { link, span: Span { low: low(), high: high() }, window }))
    }
}

/// The index of the child for `number`, in the node with these words, if it is not in the window.
#[inline(never)]
fn search_outside<D: Domain>(words: Words<'_, D>, separators: u64, number: u64) -> u64 {
    match separators {
        0..16 => Numbers { words, children: separators + 1, separators }.search(number),
        // Below the root, the share of all numbers says nothing.
        _ => search_all(words, separators, number),
    }
}

/// The index of the child for `number`, by a search of all separators.
#[cold]
#[inline(never)]
fn search_all<D: Domain>(words: Words<'_, D>, separators: u64, number: u64) -> u64 {
    let node = Numbers { words, children: separators + 1, separators };
    each_searched(separators, |at| words.prefetch(node.first() + at / 8));
    // The bounds of the first and the last child are not both in the node.
    if node.separator(0) > number {
        return 0;
    }
    if node.separator(separators - 1) <= number {
        return separators;
    }
    // The children that are left.
    let narrowed = |low: u64| {
        for line in [0, 8, 16] {
            words.prefetch(HEADER_WORDS + low + line);
        }
    };
    search_numbers(words, node.first(), 1, separators, number, true, narrowed)
}

#[cfg(test)]
mod tests {
    use pando_pmem::{CreateOptions, Guard, Pool, Process};

    use super::*;
    use crate::layout::Kind;

    /// An inner node with `separators` separators: each is ten times its index, plus ten.
    fn node(guard: &Guard<'_, Process>, separators: u64) -> Link {
        let children = separators + 1;
        let mut block = guard.reserve((HEADER_WORDS - 1 + 2 * children) * 8).expect("room");
        let node_bytes = block.bytes();
        let header = Header { kind: Kind::Inner, prefix_bytes: 0, count: children, node_bytes };
        block.write_u64(0, header.encode());
        block.write_u64(16, Shape::of_numbers(children));
        for at in 0..separators {
            block.write_u64(HEADER_BYTES + (children + at) * 8, (at * 10 + 10).swap_bytes());
        }
        Link::new(block.off(), Hint::None)
    }

    /// With any number of separators, and whatever the window: the place is right.
    #[test]
    fn a_search_finds_the_child() {
        let pool = Pool::<Process>::anonymous(&CreateOptions::default()).expect("memory");
        let guard = pool.pin().expect("a slot");
        for separators in (0..40).chain([252]) {
            let link = node(&guard, separators);
            let node = Numbers::at(pool.all_words(), link).expect("an inner node");
            assert_eq!((node.separators, node.children), (separators, separators + 1));
            for number in (0..separators * 10 + 20).chain([u64::MAX]) {
                let right = (number / 10).min(separators);
                let label = format!("{number} of {separators}");
                assert_eq!(node.search(number), right, "{label}");
                for window in 0..separators + 2 {
                    let found = node.search_window(window, number);
                    let is_there = window + WINDOW <= separators
                        && (window + 1..window + WINDOW).contains(&right);
                    let found = found.map(|(_, place)| window + place + 1);
                    assert_eq!(found, is_there.then_some(right), "{label}, {window}");
                }
            }
        }
    }

    /// Only a whole node is searched here.
    #[test]
    fn other_nodes_are_left_to_the_general_way() {
        let pool = Pool::<Process>::anonymous(&CreateOptions::default()).expect("memory");
        let guard = pool.pin().expect("a slot");
        let (link, all) = (node(&guard, 20), pool.all_words());
        assert!(Numbers::at(all, link).is_some());
        for off in [link.off() + 1, link.off() + 8, 1 << 47, (1 << 48) - 8] {
            assert!(Numbers::at(all, Link(off)).is_none(), "{off:x}");
        }
        let order = Ordering::Relaxed;
        let (header, shape) = (pool.word(link.off()), pool.word(link.off() + 16));
        let (right_header, right_shape) = (header.load(order), shape.load(order));
        let no_children = right_header & !(0xFFFF << 32);
        let many_children = no_children | 0xFFFF << 32;
        let leaf = right_header ^ 3 << 56;
        let with_prefix = right_header | 1 << 48;
        let short = right_header & !0xFFFF_FFFF | (43 * 8);
        let long = right_header | 0xFFFF_FFF8;
        for other in [0, no_children, many_children, leaf, with_prefix, short, long] {
            header.store(other, order);
            shape.store(Shape::of_numbers(other >> 32 & 0xFFFF), order);
            assert!(Numbers::at(all, link).is_none(), "{other:x}");
        }
        header.store(right_header, order);
        for other in [0, right_shape + 1, right_shape + (8 << 16), right_shape | 1 << 48] {
            shape.store(other, order);
            assert!(Numbers::at(all, link).is_none(), "{other:x}");
        }
        shape.store(right_shape, order);
        assert!(Numbers::at(all, link).is_some());
        assert_eq!(guard.damage(), None, "nothing is noted");
    }

    /// A child that is being changed ends the descent above it.
    #[test]
    fn a_child_that_changes_is_left_to_the_general_way() {
        let pool = Pool::<Process>::anonymous(&CreateOptions::default()).expect("memory");
        let guard = pool.pin().expect("a slot");
        let (link, leaf) = (node(&guard, 20), Link::new(4096, Hint::Leaf(0)));
        let child = pool.word(link.off() + HEADER_BYTES + 5 * 8);
        let found = || descend::<_, NoLeaves>(pool.all_words(), link, 55);
        child.store(leaf.0, Ordering::Release);
        assert_eq!(found(), leaf);
        child.store(leaf.0 | 1 << 61, Ordering::Release);
        assert_eq!(found(), link);
    }

    #[derive(Clone, Copy)]
    struct NoLeaves;

    impl Leaves for NoLeaves {
        fn prefetch(_: impl Fn(u64), _: u16, _: u64) {}
    }
}
