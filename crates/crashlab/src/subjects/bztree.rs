//! The BzTree as an index to be explored.

use std::sync::Arc;

use pando_bztree::{BzTree, Options};
use pando_pmem::catalog::MapHeader;
use pando_pmem::{Domain, Pool};
use pando_pmwcas::Pmwcas;

use super::compare_blocks;
use super::map::{Indexed, Shape};
use super::moments::OfMoments;

/// BzTrees.
pub struct BzTrees;

fn small_nodes() -> Options {
    Options {
        leaf_bytes: 368,
        inner_bytes: 256,
        // Slots in more than one line.
        free_bytes: 144,
        merge_bytes: 136,
        inline_bytes: 64,
        ..Options::default()
    }
}

impl OfMoments for BzTrees {
    const NAME: &'static str = "bztree-moments";
}

impl Indexed for BzTrees {
    type Index<D: Domain> = BzTree<D>;

    const NAME: &'static str = "bztree";

    fn open<D: Domain>(pool: Arc<Pool<D>>) -> Result<BzTree<D>, String> {
        let options = small_nodes();
        let pmwcas = Pmwcas::open(pool, &[]).map_err(|error| error.to_string())?;
        let pmwcas = Arc::new(pmwcas);
        let guard = pmwcas.pool().pin().map_err(|error| error.to_string())?;
        let header = MapHeader { name: "tree".into(), kind: 1, options: options.encode() };
        let first_leaf = || BzTree::first_leaf(&pmwcas, &guard, &options);
        let entry = pmwcas
            .find_or_create_map(&guard, &header, &first_leaf)
            .map_err(|error| error.to_string())?;
        let root_off = entry.root_off();
        drop(guard);
        Ok(BzTree::open(pmwcas, root_off, options))
    }

    fn audit<D: Domain>(tree: &BzTree<D>) -> Result<(), String> {
        let audit = tree.audit().map_err(|error| error.to_string())?;
        if let Some(problem) = audit.problems.first() {
            return Err(format!("the node at {:#x}: {}", problem.node_off, problem.what));
        }
        let guard = tree.pmwcas().pool().pin().map_err(|error| error.to_string())?;
        let mut reached: Vec<u64> = audit.blocks.iter().map(|block| block.off).collect();
        reached.extend(tree.pmwcas().maps(&guard).iter().map(|entry| entry.header_off));
        compare_blocks(tree.pmwcas().pool(), &reached)
    }

    fn shape<D: Domain>(tree: &BzTree<D>) -> Shape {
        let audit = tree.audit().expect("an index that nobody else uses");
        Shape {
            height: audit.stat.height,
            inner_nodes: audit.stat.inner_nodes,
            leaves: audit.stat.leaves,
            nodes: audit.blocks.iter().map(|block| block.off).collect(),
        }
    }
}
