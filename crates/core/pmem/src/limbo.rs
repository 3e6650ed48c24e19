//! Limbo: retired blocks, which no thread can find any more and some threads may still read.
//!
//! The structure is process memory and belongs to the pool, not to a thread. So any thread that
//! collects reuses the ripe blocks of all threads, also of idle ones. A block is *ripe* when its
//! epochs have passed. A crash loses the structure, but no block: a block in limbo is not active,
//! so it is free in the next generation.
//!
//! # Structure
//!
//! Blocks are on stacks (Treiber's), by the epoch in which they were retired, modulo eight. Threads
//! are spread over several sets of stacks, *shards*, so that few threads push to the same stack. A
//! stack is pushed to by CAS and emptied whole by one swap. No thread pops a single node of a
//! shared stack, so there is no ABA problem.
//!
//! | step of a collection | other threads find |
//! | --- | --- |
//! | a swap empties a stack of ripe epochs | an empty stack; its blocks belong to the collecting thread |
//! | up to a bound, the blocks are given back for reuse | |
//! | the rest goes to the shard's stack of ripe blocks | these blocks, for the next collection |
//!
//! A collecting thread that stalls forever between the first and the last step keeps its blocks
//! until the pool is opened again. It is pinned meanwhile, so it stops all other reclamation too.
//!
//! # Why a stack of ripe epochs holds ripe blocks only
//!
//! A thread that pushes or collects is pinned. While a thread is pinned, the global epoch is the
//! one that it found after its announcement, `g`, or `g + 1`. So
//!
//! * a thread that pushes uses an epoch that is at most one behind the global epoch;
//! * a thread that collects knows the global epoch as `now`, which is `g` or `g + 1`. During the
//!   collection, other threads push to the stacks of epochs `g - 1` to `g + 1`. These lie within
//!   `now - 2` to `now + 1`;
//! * the collection empties the stacks of `now - 3` to `now - 6`. Modulo eight, none of these is
//!   one of the former.
//!
//! A block that no collection reached in its four epochs stays on its stack, and is collected with
//! the blocks of a later epoch.

use std::cell::RefCell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Epochs whose blocks have stacks of their own.
const EPOCHS: u64 = 8;
/// Epochs whose stacks one collection empties.
const RIPE_EPOCHS: u64 = 4;
/// Sets of stacks that threads share.
const SHARDS: usize = 16;
/// Nodes that a participant keeps to use again.
const SPARE_NODES: usize = 64;
/// The colours of retired blocks: two for each of two censuses (`alloc/census.rs`).
pub(crate) const COLOURS: usize = 4;

/// The retired blocks of a pool.
#[derive(Debug, Default)]
pub(crate) struct Limbo {
    shards: [Shard; SHARDS],
}

/// A set of stacks, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    by_epoch: [Stack; EPOCHS as usize],
    ripe: Stack,
    /// The blocks that wait, by their colour.
    waiting: [AtomicUsize; COLOURS],
}

#[derive(Debug, Default)]
struct Stack(AtomicPtr<Node>);

impl Shard {
    fn waiting(&self) -> usize {
        // Relaxed, here and below: the counts say whether collecting may help, and order nothing.
        self.waiting.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

#[derive(Debug)]
struct Node {
    off: u64,
    colour: usize,
    next: *mut Node,
    /// Another list of nodes that was pushed with this one; nearly always none.
    aside: *mut Node,
}

// SAFETY: one thread at a time has a node, and only that thread follows its pointers.
unsafe impl Send for Node {}

/// A participant's nodes to use again. With them, a thread that retires blocks seldom allocates
/// process memory.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "a node stays where it is while it goes from stack to stack")]
pub(crate) struct SpareNodes(RefCell<Vec<Box<Node>>>);

impl SpareNodes {
    fn node(&self, off: u64, colour: usize) -> Box<Node> {
        let new = Node { off, colour, next: ptr::null_mut(), aside: ptr::null_mut() };
        match self.0.borrow_mut().pop() {
            Some(mut node) => {
                *node = new;
                node
            }
            None => Box::new(new),
        }
    }

    fn keep(&self, node: Box<Node>) {
        let mut nodes = self.0.borrow_mut();
        if nodes.len() < SPARE_NODES {
            nodes.push(node);
        }
    }
}

impl Stack {
    fn push(&self, node: Box<Node>) {
        let node = Box::leak(node);
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            node.next = head;
            // Release: pairs with the swap in `take`. Later pushes continue the release sequence,
            // so the swap acquires every node below the top, too.
            match self.0.compare_exchange(head, node, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => head = other,
            }
        }
    }

    /// Takes all nodes; the stack is empty afterwards.
    fn take(&self) -> Taken {
        // Relaxed: an empty stack costs one load. A node that is pushed now waits for the next
        // collection.
        if self.0.load(Ordering::Relaxed).is_null() {
            return Taken::default();
        }
        // Acquire: pairs with `push`.
        let top = self.0.swap(ptr::null_mut(), Ordering::Acquire);
        Taken { top, others: Vec::new() }
    }

    /// Puts the rest back, in one step for each of its lists.
    fn put_back(&self, mut rest: Taken) {
        while let Some(list) = rest.take_list() {
            let empty = ptr::null_mut();
            // Release: as in `push`.
            if self.0.compare_exchange(empty, list, Ordering::Release, Ordering::Relaxed).is_ok() {
                continue;
            }
            // Another thread has put nodes back: the first node carries the rest as a second list.
            // SAFETY: the node was made by `Box::leak` and is on no stack: only this thread has it.
            let mut first = unsafe { Box::from_raw(list) };
            if !first.aside.is_null() {
                rest.others.push(first.aside);
            }
            first.aside = first.next;
            self.push(first);
        }
    }
}

/// Nodes that only this thread has.
#[derive(Debug)]
struct Taken {
    top: *mut Node,
    others: Vec<*mut Node>,
}

impl Default for Taken {
    fn default() -> Self {
        Self { top: ptr::null_mut(), others: Vec::new() }
    }
}

impl Taken {
    fn take_list(&mut self) -> Option<*mut Node> {
        let list = std::mem::replace(&mut self.top, ptr::null_mut());
        if list.is_null() { self.others.pop() } else { Some(list) }
    }

    /// The next block's node.
    fn next(&mut self) -> Option<Box<Node>> {
        let list = self.take_list()?;
        // SAFETY: the node was made by `Box::leak` and is on no stack: only this thread has it.
        let node = unsafe { Box::from_raw(list) };
        self.top = node.next;
        if !node.aside.is_null() {
            self.others.push(node.aside);
        }
        Some(node)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        while self.next().is_some() {}
    }
}

impl Limbo {
    fn shard(&self, number: usize) -> &Shard {
        &self.shards[number % SHARDS]
    }

    /// Adds a block that was retired in `epoch`, in the part `colour` of a census
    /// (`alloc/census.rs`). The calling thread is pinned in `slot`.
    pub fn push(&self, slot: usize, epoch: u64, colour: usize, off: u64, spare: &SpareNodes) {
        let shard = self.shard(slot);
        let node = spare.node(off, colour);
        shard.waiting[colour].fetch_add(1, Ordering::Relaxed);
        shard.by_epoch[(epoch % EPOCHS) as usize].push(node);
    }

    /// Calls `reuse` with at most `most` of the blocks that were retired in `newest` or before,
    /// first with those in the shard of `slot`, in which the thread is pinned. Returns their
    /// number.
    pub fn collect(
        &self,
        slot: usize,
        newest: u64,
        most: usize,
        spare: &SpareNodes,
        mut reuse: impl FnMut(u64),
    ) -> usize {
        let mut reused = 0;
        for shard in (0..SHARDS).map(|turn| self.shard(slot + turn)) {
            // A node that is pushed now waits for the next collection.
            if shard.waiting() == 0 {
                continue;
            }
            let mut reused_here = [0; COLOURS];
            let of_epochs = (newest + EPOCHS + 1 - RIPE_EPOCHS..=newest + EPOCHS)
                .map(|epoch| &shard.by_epoch[(epoch % EPOCHS) as usize]);
            let ripe = (reused < most).then_some(&shard.ripe);
            for stack in ripe.into_iter().chain(of_epochs) {
                let mut taken = stack.take();
                while reused < most
                    && let Some(node) = taken.next()
                {
                    reuse(node.off);
                    reused_here[node.colour] += 1;
                    spare.keep(node);
                    reused += 1;
                }
                // Also when no more blocks may be reused now: soon the stack serves a new epoch.
                shard.ripe.put_back(taken);
            }
            for (count, reused) in shard.waiting.iter().zip(reused_here) {
                if reused > 0 {
                    // Release: a thread that finds no block waiting sees that all were given back.
                    count.fetch_sub(reused, Ordering::Release);
                }
            }
        }
        reused
    }

    /// The number of blocks that wait, of all threads.
    pub fn waiting(&self) -> usize {
        self.shards.iter().map(Shard::waiting).sum()
    }

    /// Whether all blocks of other colours were given back.
    pub fn has_only(&self, colour: usize) -> bool {
        let others = |shard: &Shard| {
            // Acquire: pairs with the decrease.
            let counts = shard.waiting.iter().map(|count| count.load(Ordering::Acquire));
            counts.enumerate().any(|(other, count)| other != colour && count > 0)
        };
        !self.shards.iter().any(others)
    }
}

impl Drop for Limbo {
    fn drop(&mut self) {
        for shard in &self.shards {
            shard.by_epoch.iter().chain([&shard.ripe]).for_each(|stack| drop(stack.take()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(limbo: &Limbo, newest: u64, most: usize) -> Vec<u64> {
        let mut offs = Vec::new();
        let spare = SpareNodes::default();
        assert_eq!(limbo.collect(3, newest, most, &spare, |off| offs.push(off)), offs.len());
        offs.sort_unstable();
        offs
    }

    #[test]
    fn what_is_over_the_bound_is_there_for_the_next_collection() {
        let limbo = Limbo::default();
        let spare = SpareNodes::default();
        (0..100).for_each(|off| limbo.push(off as usize, 9, 0, off, &spare));
        assert!(collected(&limbo, 8, 1000).is_empty(), "the epoch is not ripe");
        let mut all = collected(&limbo, 9, 30);
        assert_eq!((all.len(), limbo.waiting()), (30, 70));
        assert!(limbo.has_only(0) && !limbo.has_only(1));
        // The stacks of epoch 9 serve epoch 17 by now.
        (100..200).for_each(|off| limbo.push(off as usize, 17, 1, off, &spare));
        all.extend(collected(&limbo, 14, 40));
        all.extend(collected(&limbo, 14, 1000));
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        assert_eq!(collected(&limbo, 17, 1000), (100..200).collect::<Vec<_>>());
        assert_eq!(limbo.waiting(), 0);
    }

    /// Two threads collect from one shard and both put nodes back.
    #[test]
    fn rests_that_are_put_back_on_each_other_stay_whole() {
        let (stack, spare) = (Stack::default(), SpareNodes::default());
        for lists in [[0..3, 3..4, 4..9, 9..20], [20..21, 21..22, 22..23, 23..24]] {
            for list in lists {
                let other = Stack::default();
                list.clone().for_each(|off| other.push(spare.node(off, 0)));
                stack.put_back(other.take());
            }
            // Again, with several lists.
            let mut taken = stack.take();
            let first = taken.next().expect("a node");
            stack.push(spare.node(first.off, first.colour));
            stack.put_back(taken);
        }
        let mut taken = stack.take();
        let mut offs: Vec<_> = std::iter::from_fn(|| taken.next()).map(|node| node.off).collect();
        offs.sort_unstable();
        assert_eq!(offs, (0..24).collect::<Vec<_>>());
    }

    #[test]
    fn threads_that_push_and_collect_at_once_lose_nothing() {
        const EACH: u64 = 20_000;
        let (limbo, sum) = (Limbo::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let (limbo, sum) = (&limbo, &sum);
                scope.spawn(move || {
                    let spare = SpareNodes::default();
                    for off in 0..EACH {
                        limbo.push(0, thread as u64 % 2, thread, off, &spare);
                        if off % 16 == 0 {
                            limbo.collect(thread, 1, 10, &spare, |off| {
                                sum.fetch_add(off as usize, Ordering::Relaxed);
                            });
                        }
                    }
                });
            }
        });
        let spare = SpareNodes::default();
        while limbo.collect(0, 1, 1000, &spare, |off| {
            sum.fetch_add(off as usize, Ordering::Relaxed);
        }) > 0
        {}
        assert_eq!(limbo.waiting(), 0);
        assert_eq!(sum.into_inner() as u64, 4 * EACH * (EACH - 1) / 2);
    }
}
