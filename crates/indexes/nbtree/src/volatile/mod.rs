//! The layers in process memory: the metadata of leaves, and the inner nodes (paper 3.1). They are
//! rebuilt from the blocks of the leaves when a pool is opened.
//!
//! * `nodes.rs`: the fields of both. `leaf.rs`: a leaf's metadata. `inner.rs`: inner nodes and the
//!   search in them. `node.rs`: references to nodes, the words that hold them, and how their memory
//!   is freed. `spare.rs`: freed memory for new nodes.

pub(crate) mod inner;
pub(crate) mod leaf;
pub(crate) mod node;
pub(crate) mod nodes;
mod spare;
