//! The order in which transactions must have taken place, and its cycles.

use std::collections::{BTreeMap, BTreeSet};

use super::recorded::Id;

/// What takes its place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    /// A transaction.
    Transaction(Id),
    /// The end of the round of this number.
    Reopened(usize),
}

/// For each node those that come after it.
type After<N> = BTreeMap<N, Vec<N>>;

/// The dependencies between transactions.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    /// Those that came to an end before the other one began, or whose versions the other one has
    /// read or replaced.
    after: After<Node>,
    /// Those that have read what the other one replaced.
    anti: After<Node>,
    /// Those with snapshot isolation.
    over_snapshot: BTreeSet<Node>,
}

impl Graph {
    /// `from` comes before `to` begins.
    pub fn add(&mut self, from: Node, to: Node) {
        self.after.entry(from).or_default().push(to);
    }

    /// `from` has read what `to` replaced.
    pub fn add_anti(&mut self, from: Node, to: Node) {
        self.anti.entry(from).or_default().push(to);
    }

    /// `node` has snapshot isolation.
    pub fn set_over_snapshot(&mut self, node: Node) {
        self.over_snapshot.insert(node);
    }

    /// The order without those dependencies that a transaction with snapshot isolation may ignore.
    ///
    /// It has read the state of its beginning. So it may end after another one that replaced what
    /// it has read; but those that it depends on came before its beginning, so before that one.
    fn order(self) -> After<Node> {
        let Self { after, anti, over_snapshot } = self;
        let mut order = after.clone();
        for (from, others) in &after {
            for pivot in others.iter().filter(|other| over_snapshot.contains(other)) {
                let further = anti.get(pivot).into_iter().flatten();
                order.entry(*from).or_default().extend(further);
            }
        }
        for (from, others) in anti.into_iter().filter(|(from, _)| !over_snapshot.contains(from)) {
            order.entry(from).or_default().extend(others);
        }
        order
    }

    /// Nodes of which each must come before the next one, and the first is the last.
    pub fn cycle(self) -> Option<Vec<Node>> {
        find_cycle(&self.order())
    }
}

/// A cycle, if there is one.
fn find_cycle<N: Copy + Ord>(after: &After<N>) -> Option<Vec<N>> {
    let mut is_done: BTreeMap<N, bool> = BTreeMap::new();
    for &first in after.keys() {
        let mut path = vec![(first, 0)];
        while let Some((id, next)) = path.last_mut() {
            if *next == 0 && is_done.get(id) == Some(&true) {
                path.pop();
                continue;
            }
            is_done.insert(*id, false);
            let (from, found) = (*id, after.get(id).and_then(|after| after.get(*next)).copied());
            *next += 1;
            match found {
                Some(to) if is_done.get(&to) == Some(&false) => {
                    let ids = path.iter().map(|(id, _)| *id);
                    return Some(ids.skip_while(|&id| id != to).chain([to]).collect());
                }
                Some(to) => path.push((to, 0)),
                None => {
                    is_done.insert(from, true);
                    path.pop();
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_found() {
        let cycle = |pairs: &[(u64, u64)]| {
            let mut after = After::new();
            pairs.iter().for_each(|&(from, to)| after.entry(from).or_default().push(to));
            find_cycle(&after)
        };
        assert_eq!(cycle(&[(1, 2), (1, 3), (2, 3), (3, 4)]), None);
        assert_eq!(cycle(&[(1, 2), (2, 3), (3, 4), (4, 2)]), Some(vec![2, 3, 4, 2]));
    }

    /// Transactions 1 and 2, of which some have snapshot isolation, in this order.
    fn is_allowed(after: &[(u64, u64)], anti: &[(u64, u64)], over_snapshot: &[u64]) -> bool {
        let mut graph = Graph::default();
        let nodes = |&(from, to): &(u64, u64)| (Node::Transaction(from), Node::Transaction(to));
        after.iter().map(nodes).for_each(|(from, to)| graph.add(from, to));
        anti.iter().map(nodes).for_each(|(from, to)| graph.add_anti(from, to));
        over_snapshot.iter().for_each(|&id| graph.set_over_snapshot(Node::Transaction(id)));
        graph.cycle().is_none()
    }

    #[test]
    fn snapshot_isolation_allows_write_skew_alone() {
        // Each has read what the other one replaced.
        let skew = [(1, 2), (2, 1)];
        assert!(!is_allowed(&[], &skew, &[]));
        assert!(is_allowed(&[], &skew, &[1, 2]));
        // One of the two is enough to miss the other.
        assert!(is_allowed(&[], &skew, &[1]));
        // One has replaced the version of the other, and missed a write of it.
        assert!(!is_allowed(&[(1, 2)], &[(2, 1)], &[1, 2]));
    }
}
