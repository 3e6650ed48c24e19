//! The violated invariants of an index.

/// The class of an invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemClass {
    /// A node or value is reachable, but its block is not allocated or has another size.
    Block,
    /// A node's counts do not fit the node.
    Count,
    /// A separator does not ascend, or a key lies outside the range of its leaf.
    Separator,
    /// The records of a leaf do not ascend.
    Order,
    /// A leaf is not as deep as the others, or a node is in an impossible state.
    Structure,
}

/// A problem of a block, before it becomes a [`Problem`].
pub type Broken = (ProblemClass, &'static str);

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Which one.
    pub class: ProblemClass,
    /// Offset of the node.
    pub node_off: u64,
    /// What is wrong.
    pub what: String,
}
