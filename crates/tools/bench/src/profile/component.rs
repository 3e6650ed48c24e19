//! The component to which a sample belongs, by the functions that were inlined at its address.
//!
//! The chain is walked from the innermost function outwards, and the first function with a rule
//! decides. Accessors (a word's load, a pool's bytes, the standard library) have no component of
//! their own: they belong to their caller. So a read of a link is inner search, and the same load
//! in a PMwCAS is PMwCAS.

use serde::Serialize;

/// The parts of the tree; the paper's figure 9 has the first four, with the others as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// From the root to the leaf.
    InnerSearch,
    /// Within the leaf.
    LeafSearch,
    /// Descriptors: to fill, execute, help, finalize.
    Pmwcas,
    /// Records: into a leaf, and from an old node to a new one.
    Copying,
    /// Blocks: to reserve, activate, free.
    Allocation,
    /// To enter and leave an epoch, and to free what is ripe.
    Epochs,
    /// Splits and merges beside copying; deciding what a write does; what no rule names.
    Other,
    /// The loop that calls the tree: no part of it.
    Driver,
}

impl Component {
    /// All, in the order of the table.
    pub const ALL: [Self; 8] = [
        Self::InnerSearch,
        Self::LeafSearch,
        Self::Pmwcas,
        Self::Copying,
        Self::Allocation,
        Self::Epochs,
        Self::Other,
        Self::Driver,
    ];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::InnerSearch => "inner search",
            Self::LeafSearch => "leaf search",
            Self::Pmwcas => "PMwCAS",
            Self::Copying => "copying",
            Self::Allocation => "allocation",
            Self::Epochs => "epochs",
            Self::Other => "other",
            Self::Driver => "driver",
        }
    }
}

/// One function of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Its name, with its path if the debug information has it.
    pub function: String,
    /// The source file of the line; empty if there is none.
    pub file: String,
}

/// A file, functions in it (none: all), and their component; `None` means that of the caller.
type Rule = (&'static str, &'static [&'static str], Option<Component>);

/// The first rule that fits a function decides about it.
const RULES: &[Rule] = &[
    // Functions that read one word for a caller.
    ("core/pmwcas/src/pmwcas.rs", &["read", "pool"], None),
    ("core/pmwcas/src/descriptor.rs", &["all"], None),
    ("core/pmwcas/src/", &[], Some(Component::Pmwcas)),
    ("core/pmem/src/alloc/", &[], Some(Component::Allocation)),
    ("core/pmem/src/epoch.rs", &["pool", "slot"], None),
    ("core/pmem/src/epoch.rs", &[], Some(Component::Epochs)),
    ("core/pmem/src/participant.rs", &[], Some(Component::Epochs)),
    ("core/pmem/src/lease.rs", &[], Some(Component::Epochs)),
    ("core/pmem/src/slots.rs", &[], Some(Component::Epochs)),
    ("core/pmem/src/pool/mod.rs", &["store_bytes"], Some(Component::Copying)),
    ("core/pmem/src/", &[], None),
    ("core/inner/src/descent.rs", &["new", "root"], None),
    ("core/inner/src/descent.rs", &[], Some(Component::InnerSearch)),
    (
        "core/inner/src/node.rs",
        &["status", "children", "child_off", "child", "separator", "separator_place", "search"],
        Some(Component::InnerSearch),
    ),
    // `Node`, and what both searches share.
    ("core/inner/src/node.rs", &[], None),
    ("core/inner/src/slices.rs", &[], None),
    ("core/inner/src/guess.rs", &[], None),
    ("core/inner/src/layout.rs", &[], None),
    ("core/inner/src/content.rs", &[], Some(Component::Copying)),
    ("core/inner/src/", &[], Some(Component::Other)),
    ("core/ranged/src/layout.rs", &[], None),
    ("core/ranged/src/leaf.rs", &["pairs", "bucket_pairs"], Some(Component::Copying)),
    ("core/ranged/src/leaf.rs", &[], Some(Component::LeafSearch)),
    ("core/ranged/src/write.rs", &["has_room"], Some(Component::LeafSearch)),
    ("core/ranged/src/scan.rs", &[], Some(Component::Copying)),
    ("core/ranged/src/build.rs", &[], Some(Component::Copying)),
    ("core/ranged/src/closing.rs", &["close_line"], Some(Component::Copying)),
    ("core/ranged/src/", &[], Some(Component::Other)),
    ("core/tree/src/handle.rs", &["pin"], Some(Component::Epochs)),
    ("core/tree/src/context.rs", &[], None),
    ("indexes/bztree/src/tree.rs", &[], None),
    ("indexes/bztree/src/node.rs", &["value_of_block"], Some(Component::LeafSearch)),
    ("indexes/bztree/src/node.rs", &[], None),
    ("indexes/bztree/src/layout.rs", &[], None),
    ("indexes/bztree/src/meta.rs", &[], None),
    ("indexes/bztree/src/claim.rs", &[], None),
    (
        "indexes/bztree/src/leaf.rs",
        &[
            "value",
            "pointed_value",
            "has_key",
            "sorted_position",
            "find_sorted",
            "pass",
            "find",
            "newest",
            "look",
            "has_room",
            "get",
            "estimate",
        ],
        Some(Component::LeafSearch),
    ),
    ("indexes/bztree/src/content.rs", &[], Some(Component::Copying)),
    // Places in a leaf; functions that copy a leaf use them too.
    ("indexes/bztree/src/leaf.rs", &[], None),
    ("indexes/bztree/src/build.rs", &[], Some(Component::Copying)),
    ("indexes/bztree/src/candidate.rs", &[], Some(Component::Copying)),
    ("indexes/bztree/src/write.rs", &["write_record"], Some(Component::Copying)),
    ("indexes/bztree/src/write.rs", &["conflicts"], Some(Component::LeafSearch)),
    ("indexes/bztree/src/", &[], Some(Component::Other)),
    ("tools/bench/src/", &[], Some(Component::Driver)),
];

/// The component of a chain, the innermost function first.
pub fn component(chain: &[Frame]) -> Component {
    // A call into the C library has no chain beyond itself: copying by what it is called.
    if let [frame] = chain
        && frame.file.is_empty()
    {
        return match frame.function.as_str() {
            name if ["memcpy", "memmove", "memset"].iter().any(|part| name.contains(part)) => {
                Component::Copying
            }
            // Keys too long for a comparison of numbers; leaves hold more of them than inner nodes.
            name if name.contains("memcmp") || name.contains("bcmp") => Component::LeafSearch,
            name if ["malloc", "free", "calloc", "realloc"]
                .iter()
                .any(|part| name.contains(part)) =>
            {
                Component::Copying
            }
            _ => Component::Other,
        };
    }
    let own = chain.iter().find_map(owner);
    own.unwrap_or_else(|| {
        // The standard library's sort, compiled for records on their way to a new node.
        let sorts = |frame: &Frame| frame.function.contains("pando_bztree::candidate::Candidate");
        if chain.iter().any(sorts) { Component::Copying } else { Component::Other }
    })
}

fn owner(frame: &Frame) -> Option<Component> {
    let name = short(&frame.function);
    let fits = |&&(file, functions, _): &&Rule| {
        is_in(&frame.file, file) && (functions.is_empty() || functions.contains(&name))
    };
    RULES.iter().find(fits).and_then(|&(_, _, component)| component)
}

/// Whether the source file lies at `place` of the workspace: a file, or a folder.
fn is_in(file: &str, place: &str) -> bool {
    match file.rfind(place) {
        Some(at) => {
            let starts = at == 0 || file.as_bytes()[at - 1] == b'/';
            starts && (place.ends_with('/') || at + place.len() == file.len())
        }
        None => false,
    }
}

/// The last part of a function's path, without its type arguments and without the marks of
/// closures in it.
fn short(function: &str) -> &str {
    let function = function.split("::{closure").next().unwrap_or(function);
    // Type arguments at the end: `search<pando_pmem::domain::Process>`.
    let function = match function.find('<') {
        Some(at) if at > 0 => &function[..at],
        _ => function,
    };
    let function = function.trim_end_matches("::");
    function.rsplit("::").next().unwrap_or(function)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, file: &str) -> Frame {
        Frame { function: function.to_owned(), file: file.to_owned() }
    }

    #[test]
    fn an_accessor_belongs_to_its_caller() {
        let load = frame("load", "/home/x/crates/core/pmem/src/word.rs");
        let read = frame("read<pando_pmem::domain::Process>", "crates/core/pmwcas/src/pmwcas.rs");
        let child = frame("child<V>", "crates/core/inner/src/node.rs");
        let atomic = frame("atomic_load<u64>", "/rustc/x/library/core/src/sync/atomic.rs");
        let chain = [atomic.clone(), load.clone(), read, child];
        assert_eq!(component(&chain), Component::InnerSearch);
        let install = frame("install<V>", "crates/core/pmwcas/src/rdcss.rs");
        assert_eq!(component(&[atomic, load, install]), Component::Pmwcas);
    }

    #[test]
    fn a_search_is_whose_it_is() {
        let numbers = frame("search_numbers<V>", "crates/core/inner/src/slices.rs");
        let inner = frame("search<V>", "crates/core/inner/src/node.rs");
        let leaf = frame("sorted_position<V>", "crates/indexes/bztree/src/leaf.rs");
        assert_eq!(component(&[numbers.clone(), inner]), Component::InnerSearch);
        assert_eq!(component(&[numbers, leaf]), Component::LeafSearch);
    }

    #[test]
    fn the_rest_is_named_by_file_or_not_at_all() {
        let reserve = frame("reserve_in_slab", "crates/core/pmem/src/alloc/slab.rs");
        assert_eq!(component(&[reserve]), Component::Allocation);
        assert_eq!(component(&[frame("__memmove_avx512", "")]), Component::Copying);
        assert_eq!(
            component(&[frame("work", "crates/tools/bench/src/profile/child.rs")]),
            Component::Driver
        );
        assert_eq!(component(&[frame("x", "/rustc/library/std/src/io.rs")]), Component::Other);
        assert_eq!(component(&[]), Component::Other);
    }

    /// Files and functions move; a rule for a missing one would move its time to other components.
    #[test]
    fn rules_name_what_there_is() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let text = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
        for (place, functions, _) in RULES {
            let path = crates.join(place);
            assert!(path.exists(), "{place}");
            let source = if path.is_dir() { String::new() } else { text(&path) };
            for function in *functions {
                let is_there = [" fn {}(", " fn {}<"]
                    .iter()
                    .any(|shape| source.contains(&shape.replace("{}", function)));
                assert!(is_there, "{place} has no function {function}");
            }
        }
    }

    #[test]
    fn names_are_cut_to_what_rules_know() {
        let long = "pando_bztree::node::Inner::search::<pando_pmem::domain::Process>";
        assert_eq!(short(long), "search");
        assert_eq!(short("find_leaf<V>"), "find_leaf");
        assert_eq!(short("pando_bztree::write::complete::{closure#0}"), "complete");
        assert!(is_in("a/crates/core/pmem/src/alloc/slab.rs", "core/pmem/src/alloc/"));
        assert!(!is_in("a/crates/xcore/pmem/src/alloc/slab.rs", "core/pmem/src/alloc/"));
        assert!(!is_in("crates/indexes/bztree/src/node.rs.old", "indexes/bztree/src/node.rs"));
    }
}
