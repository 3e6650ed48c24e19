//! The one table of all experiments: name, title, what it shows, which index it needs, how far it
//! is built, what differs.

use indicatif::ProgressBar;

use super::error::Error;
use super::experiment::{Built, Experiment, Runner, Settings};
use super::outcome::Outcome;
use super::store::{cache, clean, flush, recovery};
use super::{bwtree, bztree, nbtree, pmwcas, wbtree};

const NO_OTHER_TREES: &str =
    "the other trees of the table: of ours, the rows of BzTree and NBTree are counted";
const ONLY_BZ_TREE: &str =
    "the other trees that the paper compares with: our BzTree stands for them";
const NB_SYSTEMS: &[&str] = &[
    "the ratio is to our BzTree, in the domain `process`, on ordinary memory; the paper's is to the best and the worst of six trees on Optane",
    FEW_CORES,
];

const FEW_CORES: &str =
    "cores: as many threads as this machine has, where the paper's figure is of 48";
const OUR_BW_TREE: &str = "the Bw-tree is ours: `bwtree-plain` has each delta in a block and chains of 6 at most; `bwtree` is the one that we would use";

const OF_OUR_STORE: &str = "no figure of the paper, which leaves its storage to later work: claims of its text, by our store";
const SYSTEM_CACHE: &str = "the store reads and writes by the system's cache of files, in --pool-dir, which is in memory by default; the paper's is a flash disk";

const EMULATED_MEDIUM: &str = "with --write-back-ns or --read-line-ns the system that survives a loss of power is an emulated one (slow), which costs a few ns an access beside the delays; the others stay in DRAM";

/// What every figure of the wB+-Tree paper differs in.
const WB_TREE_DIFFERS: &[&str] = &[
    "the wB+-Trees take many writers; the others have one, and no recovery: they write and fence what the paper's procedures do",
    "a machine and its memory, or an emulated medium on it, not a cycle-accurate simulator; the write-back is clwb where the processor has it, not clflush, which evicts",
    "records are inserted one by one, not bulk-loaded, and fewer: --records",
    "slot+bitmap nodes have at least 3 lines; with 2, only slot-only nodes, as in the paper",
];

/// All experiments, by paper and in the paper's order.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "bztree:fig4",
        paper: &bztree::PAPER,
        title: "Random keys: throughput by mix and threads",
        shows: "BzTree against the Bw-tree under four mixes, uniform keys",
        index: "BzTree",
        built: Built::Whole(bztree::throughput::figure_4),
        takes_delays: false,
        differs: &[FEW_CORES, OUR_BW_TREE],
    },
    Experiment {
        name: "bztree:fig5",
        paper: &bztree::PAPER,
        title: "Zipfian and monotonic keys: throughput",
        shows: "BzTree against the Bw-tree, skewed and ascending keys",
        index: "BzTree",
        built: Built::Whole(bztree::throughput::figure_5),
        takes_delays: false,
        differs: &[
            FEW_CORES,
            OUR_BW_TREE,
            "monotonic, balanced: half the operations insert the next key, so that writers meet in one leaf; the paper does not say what its upserts hit",
        ],
    },
    Experiment {
        name: "bztree:fig6",
        paper: &bztree::PAPER,
        title: "Cost of persistence",
        shows: "BzTree volatile and durable, read-mostly and balanced",
        index: "BzTree",
        built: Built::Whole(bztree::throughput::figure_6),
        takes_delays: true,
        differs: &[
            FEW_CORES,
            "the write-back is clwb where the processor has it, not CLFLUSH, which evicts",
            "the volatile tree (process) orders its stores, which costs no instruction on x86-64; both lie on the same kind of pages, in files of --pool-dir",
            EMULATED_MEDIUM,
        ],
    },
    Experiment {
        name: "bztree:fig7",
        paper: &bztree::PAPER,
        title: "Mixes with scans",
        shows: "BzTree against the Bw-tree with scans of 10, and how they scale",
        index: "BzTree",
        built: Built::Whole(bztree::throughput::figure_7),
        takes_delays: false,
        differs: &[
            FEW_CORES,
            OUR_BW_TREE,
            "each scan returns 10 records where there are as many; the paper: at most 10",
        ],
    },
    Experiment {
        name: "bztree:fig8",
        paper: &bztree::PAPER,
        title: "Impact of key size and of free space",
        shows: "BzTree with keys of 8 to 128 bytes, and leaves with 512 to 32 bytes free",
        index: "BzTree",
        built: Built::Whole(bztree::sensitivity::figure_8),
        takes_delays: false,
        differs: &[
            FEW_CORES,
            "trees of different keys are loaded anew in turns; trees of different free space run side by side",
        ],
    },
    Experiment {
        name: "bztree:fig9",
        paper: &bztree::PAPER,
        title: "Execution time breakdown",
        shows: "where the time goes: search, PMwCAS, the rest",
        index: "BzTree",
        built: Built::Whole(bztree::tables::figure_9),
        takes_delays: false,
        differs: &[
            "samples of perf by the clock, by component from line tables; the paper: cycles by a Windows profiler, four categories",
            "default node sizes (2 KiB leaves, 4 KiB inner nodes), not pages of 1 KB",
            "the paper has copying, allocation, epochs and others as one category: 27 % of the balanced mix",
        ],
    },
    Experiment {
        name: "bztree:table1",
        paper: &bztree::PAPER,
        title: "PMwCAS sizes",
        shows: "words of each PMwCAS of an operation",
        index: "BzTree",
        built: Built::Whole(bztree::tables::table_1),
        takes_delays: false,
        differs: &[
            "counted, not argued: the descriptors that operations publish are watched",
            "words that only a compare-and-swap without a descriptor changes are not in it: here that is every change of a single record but those of values in blocks of their own",
        ],
    },
    Experiment {
        name: "bztree:table2",
        paper: &bztree::PAPER,
        title: "Memory footprint",
        shows: "bytes that BzTree and the Bw-tree take",
        index: "BzTree",
        built: Built::Whole(bztree::tables::table_2),
        takes_delays: false,
        differs: &[
            "taken after the fill; the paper: at the peak of the balanced mix",
            "a pool counts all chunks that it ever used; a map on the heap, the growth of the heap",
        ],
    },
    Experiment {
        name: "pmwcas:fig5",
        paper: &pmwcas::PAPER,
        title: "PMwCAS on arrays of words",
        shows: "throughput by contention (array size) and threads, and what persistence costs",
        index: "PMwCAS",
        built: Built::Whole(pmwcas::figure_5),
        takes_delays: true,
        differs: &[
            "figure 5a's HTM, where the processor commits transactions: one makes the whole operation, not phase 1 alone; after 8 that are aborted the operation takes a descriptor, and is executed by our algorithm",
            "the write-back is clwb where the processor has it, not CLFLUSH, so it evicts nothing",
            "the volatile MwCAS (process) is the same code with write-backs compiled out, as in the paper",
            "more threads than cores take turns: their throughput is no scaling",
            EMULATED_MEDIUM,
        ],
    },
    Experiment {
        name: "pmwcas:fig6",
        paper: &pmwcas::PAPER,
        title: "Indexes on CAS, MwCAS and PMwCAS",
        shows: "reads, upserts, deletes and a mix, volatile and persistent",
        index: "Bw-tree, skip list on PMwCAS",
        built: Built::Whole(pmwcas::figure_6),
        takes_delays: true,
        differs: &[
            "the writes of the realistic mix are upserts, where the paper's skip list inserts; without PMwCAS an upsert takes a block, with it two words of the node",
            "PCAS is the CAS index with the paper's persistent CAS of one word, where the paper's is a PMwCAS of one word; there is no PCAS or PMwCAS without write-backs, because ours are CAS and MwCAS then",
            "our Bw-tree's deltas stand beside their base page, so an upsert is a CAS of one word on all four primitives; they differ in splits, of which upserts make none, and in consolidations. `bwtree-plain:adr` has the paper's PMwCAS for each delta.",
            "the -WB variants, the paper's -CF, write back by clwb where the processor has it, not by CLFLUSH",
            FEW_CORES,
            EMULATED_MEDIUM,
        ],
    },
    Experiment {
        name: "wbtree:fig11",
        paper: &wbtree::PAPER,
        title: "Index performance on simulated PCM",
        shows: "search, insertion and deletion by node size",
        index: "wB+-Tree",
        built: Built::Whole(wbtree::figure_11),
        takes_delays: false,
        differs: &[
            "waits for a modelled medium, by count, where the paper's are times of a cycle-accurate simulator; the cache and the number of records are sixteenths or less of the paper's",
            "the wB+-Trees take many writers, and merge; the others have one, no recovery and no merges: they write and fence what the paper's procedures do",
            "slot+bitmap nodes have at least 3 lines; with 2, only slot-only nodes, as in the paper; those hold 5 records where the others hold 7",
        ],
    },
    Experiment {
        name: "wbtree:fig12",
        paper: &wbtree::PAPER,
        title: "Wear, energy, clflush and mfence counts",
        shows: "bits, energy, write-backs and fences of insertions into nodes of 8 lines",
        index: "wB+-Tree",
        built: Built::Whole(wbtree::figure_12),
        takes_delays: false,
        differs: &[
            "a model of the paper's medium, not a cycle-accurate simulator; the cache and the number of records are sixteenths or less of the paper's",
            "the paper's figures are plotted, and not read off",
        ],
    },
    Experiment {
        name: "wbtree:fig13",
        paper: &wbtree::PAPER,
        title: "Index performance on DRAM-like memory",
        shows: "search, insertion and deletion by node size",
        index: "wB+-Tree",
        built: Built::Whole(wbtree::figure_13),
        takes_delays: false,
        differs: WB_TREE_DIFFERS,
    },
    Experiment {
        name: "wbtree:fig14",
        paper: &wbtree::PAPER,
        title: "String keys",
        shows: "search, insertion and deletion with keys of 20 bytes",
        index: "wB+-Tree",
        built: Built::Whole(wbtree::figure_14),
        takes_delays: false,
        differs: &[
            "the wB+-Trees own their keys: an insertion allocates a block by a PMwCAS that a crash undoes or completes, and a deletion frees it; the others write strings one behind the other, and free none",
            "our cells have the first eight bytes of the key besides the pointer, so nodes of 8 lines hold a third less; 12 lines are the default",
            "the wB+-Trees take many writers; the others have one, no recovery and no merges",
            "a machine and its memory; the write-back is clwb where the processor has it, not clflush, which evicts; records are inserted one by one, and fewer: --records",
        ],
    },
    Experiment {
        name: "wbtree:fig15",
        paper: &wbtree::PAPER,
        title: "Memcached throughput",
        shows: "insertions and searches over the network, by the tree that is the index",
        index: "wB+-Tree",
        built: Built::Whole(wbtree::memcached::figure_15),
        takes_delays: false,
        differs: &[
            "a small server of memcached's protocol stands for memcached 1.4.17, with a thread a connection; its trees with one writer stand behind a lock, ours behind none; `pando serve` with its store in each kind of index, which writes records of its own and not bare values, stands beside it",
            "server and client are on one machine, and the client has one thread, as mc-benchmark does",
            "the wB+-Trees own their keys, and allocate and free them by a PMwCAS; the others write strings one behind the other; nodes of 8 lines, ours of 12, whose cells have the first eight bytes of a key",
            "a machine and its memory; the write-back is clwb where the processor has it, not clflush, which evicts; records are inserted one by one, and fewer: --records",
        ],
    },
    Experiment {
        name: "wbtree:table3",
        paper: &wbtree::PAPER,
        title: "Cost of persistent B+-Trees",
        shows: "words written, write-backs and fences of an insertion and a deletion",
        index: "wB+-Tree",
        built: Built::Whole(wbtree::table3::table_3),
        takes_delays: false,
        differs: &[
            "an insertion with a split: of one leaf (l = 1), on the average over the first five splits below a root; a PMwCAS is what splits ours, and its descriptor is written back too",
            "counted, not argued: a log record that spans two lines takes two write-backs, and lines are whole",
            "the wB+-Trees are ours, with many writers: slot words say for which state they are, so no valid bit is cleared first and they are not written back; claims, the dirty bit and slot words are words written that no durability needs",
        ],
    },
    Experiment {
        name: "nbtree:fig5",
        paper: &nbtree::PAPER,
        title: "Latency of base operations",
        shows: "insert, update, delete, search with 1 thread",
        index: "NBTree",
        built: Built::Partly(nbtree::figure_5, ONLY_BZ_TREE),
        takes_delays: false,
        differs: NB_SYSTEMS,
    },
    Experiment {
        name: "nbtree:fig6",
        paper: &nbtree::PAPER,
        title: "Throughput of base operations",
        shows: "the same with 56 threads",
        index: "NBTree",
        built: Built::Partly(nbtree::figure_6, ONLY_BZ_TREE),
        takes_delays: false,
        differs: NB_SYSTEMS,
    },
    Experiment {
        name: "nbtree:fig7",
        paper: &nbtree::PAPER,
        title: "Space",
        shows: "DRAM and persistent memory after 16M and 32M records",
        index: "NBTree",
        built: Built::Partly(nbtree::figure_7, ONLY_BZ_TREE),
        takes_delays: false,
        differs: NB_SYSTEMS,
    },
    Experiment {
        name: "nbtree:fig8",
        paper: &nbtree::PAPER,
        title: "YCSB throughput and tail latency",
        shows: "50 % writes, skew 0.99, by threads",
        index: "NBTree",
        built: Built::Partly(nbtree::figure_8, ONLY_BZ_TREE),
        takes_delays: false,
        differs: NB_SYSTEMS,
    },
    Experiment {
        name: "nbtree:fig9",
        paper: &nbtree::PAPER,
        title: "Write ratio and skew",
        shows: "throughput and tail latency by both",
        index: "NBTree",
        built: Built::Partly(nbtree::figure_9, ONLY_BZ_TREE),
        takes_delays: false,
        differs: NB_SYSTEMS,
    },
    Experiment {
        name: "nbtree:fig10",
        paper: &nbtree::PAPER,
        title: "Large keys and values",
        shows: "throughput by size",
        index: "NBTree",
        built: Built::Partly(nbtree::figure_10, ONLY_BZ_TREE),
        takes_delays: false,
        differs: NB_SYSTEMS,
    },
    Experiment {
        name: "nbtree:fig11",
        paper: &nbtree::PAPER,
        title: "Overhead of leaves",
        shows: "time in flushes, writes and reads, eADR and ADR",
        index: "NBTree",
        built: Built::Partly(nbtree::figure_11, ONLY_BZ_TREE),
        takes_delays: false,
        differs: &[
            "whole operations, not their parts; both lie in ordinary memory, so what differs is write-backs and fences",
            FEW_CORES,
        ],
    },
    Experiment {
        name: "nbtree:fig12",
        paper: &nbtree::PAPER,
        title: "ADR and eADR",
        shows: "throughput of both, 50 % writes",
        index: "NBTree",
        built: Built::Partly(nbtree::figure_12, ONLY_BZ_TREE),
        takes_delays: false,
        differs: &[
            "whole operations, not their parts; both lie in ordinary memory, so what differs is write-backs and fences",
            FEW_CORES,
        ],
    },
    Experiment {
        name: "nbtree:fig13",
        paper: &nbtree::PAPER,
        title: "On DRAM",
        shows: "throughput of base operations without persistent memory",
        index: "NBTree",
        built: Built::Partly(nbtree::figure_13, ONLY_BZ_TREE),
        takes_delays: true,
        differs: &[
            "both systems lie in ordinary memory: what differs is the write-backs and fences of the domain `adr`",
            FEW_CORES,
            EMULATED_MEDIUM,
        ],
    },
    Experiment {
        name: "nbtree:table1",
        paper: &nbtree::PAPER,
        title: "Overhead of tree operations",
        shows: "flushes and lines written by an insert, a delete, an update",
        index: "NBTree",
        built: Built::Partly(nbtree::table_1, NO_OTHER_TREES),
        takes_delays: false,
        differs: &[
            "counted in the counting domain; a figure is the median operation, without splits",
            "default node sizes: BzTree's leaves of 2 KiB and inner nodes of 4 KiB, NBTree's leaves of 1 KiB",
        ],
    },
    Experiment {
        name: "bwtree:fig5",
        paper: &bwtree::PAPER,
        title: "Length of delta chains",
        shows: "throughput by the length at which a page is consolidated",
        index: "Bw-tree",
        built: Built::Whole(bwtree::figure_5),
        takes_delays: false,
        differs: &[
            "records of 8 and 8 bytes that are there already, in place of the paper's traces, and pages of 1.5 KiB, not 8",
            "deltas stand beside their base page; a chain of blocks (`bwtree-plain`) has 6 at most",
            FEW_CORES,
        ],
    },
    Experiment {
        name: "bwtree:fig6",
        paper: &bwtree::PAPER,
        title: "Bw-tree and BerkeleyDB",
        shows: "throughput on records and mixes shaped as the game, deduplication and synthetic traces",
        index: "Bw-tree",
        built: Built::Whole(bwtree::figure_6),
        takes_delays: false,
        differs: &[
            "uniform keys of the traces' lengths and shares of reads, not the traces, which are not public; `pando paper trace` replays shapes of them",
            "BerkeleyDB 5.3, where this program was built with it (--features berkeleydb), else redb; both keep their records in files on tmpfs, as the paper's lay in its buffer pool",
            FEW_CORES,
        ],
    },
    Experiment {
        name: "bwtree:fig7",
        paper: &bwtree::PAPER,
        title: "Cache efficiency",
        shows: "lines that a search reads, and how many of them are of pages that all searches share",
        index: "Bw-tree",
        built: Built::Whole(bwtree::figure_7),
        takes_delays: false,
        differs: &[
            "counted by the library, without a processor's counters: distinct lines that a get reads, where the paper has the level of the cache that served each load",
            "the skip list is ours on PMwCAS: of crossbeam's, lines cannot be counted",
        ],
    },
    Experiment {
        name: "bwtree:table1",
        paper: &bwtree::PAPER,
        title: "Failures of latch-free updates",
        shows: "splits, consolidations and updates that lost a race",
        index: "Bw-tree",
        built: Built::Whole(bwtree::table_1),
        takes_delays: false,
        differs: &[
            "uniform keys of the traces' lengths and shares of reads; one write in four inserts, so that pages are split",
            "more threads than cores take turns, so that few races are run: with as many as the machine has, fewer fail than on the paper's eight",
            FEW_CORES,
        ],
    },
    Experiment {
        name: "bwtree:table2",
        paper: &bwtree::PAPER,
        title: "Bw-tree and skip list",
        shows: "throughput on a synthetic and a read-only workload",
        index: "Bw-tree",
        built: Built::Whole(bwtree::table_2),
        takes_delays: false,
        differs: &[
            "the skip lists are crossbeam's, to which ratios are, and ours; the paper's was the authors' own",
            "200 thousand records of 8 and 8 bytes unless --records says otherwise; the paper: 42 and 30 million",
            "the read-only workload has as many threads as the other; the paper does not say",
            FEW_CORES,
        ],
    },
    Experiment {
        name: "bwtree:options",
        paper: &bwtree::PAPER,
        title: "What we have changed, one by one",
        shows: "throughput of the plain design with each of our options alone, and with all",
        index: "Bw-tree",
        built: Built::Whole(bwtree::options),
        takes_delays: false,
        differs: &["no figure of the paper: its design is the first system", FEW_CORES],
    },
    Experiment {
        name: "bwtree:cache",
        paper: &bwtree::PAPER,
        title: "The store's cache",
        shows: "throughput, misses and disk reads by the share of the data that memory holds",
        index: "Bw-tree, store",
        built: Built::Whole(cache::run),
        takes_delays: false,
        differs: &[OF_OUR_STORE, SYSTEM_CACHE],
    },
    Experiment {
        name: "bwtree:flush",
        paper: &bwtree::PAPER,
        title: "Incremental flushing",
        shows: "bytes written for an update and its rate, by deltas and by whole pages",
        index: "Bw-tree, store",
        built: Built::Whole(flush::run),
        takes_delays: false,
        differs: &[
            OF_OUR_STORE,
            "at most three deltas, and then the whole page; the paper gives no limit",
            SYSTEM_CACHE,
        ],
    },
    Experiment {
        name: "bwtree:clean",
        paper: &bwtree::PAPER,
        title: "Cost of cleaning",
        shows: "bytes that cleaning moves for a byte that is written, by the live share of segments",
        index: "page store",
        built: Built::Whole(clean::run),
        takes_delays: false,
        differs: &[
            OF_OUR_STORE,
            "the page store alone, with writes of its own, and shorter segments than by default",
            SYSTEM_CACHE,
        ],
    },
    Experiment {
        name: "bwtree:recovery",
        paper: &bwtree::PAPER,
        title: "Opening after a kill",
        shows: "time to the first get by the log since the checkpoint, in two sizes of the store",
        index: "Bw-tree, store",
        built: Built::Whole(recovery::run),
        takes_delays: false,
        differs: &[
            OF_OUR_STORE,
            "the process is killed, so that the tail of the log survives; no power cut",
            SYSTEM_CACHE,
        ],
    },
];

/// The experiment `name`.
pub fn find(name: &str) -> Result<&'static Experiment, Error> {
    EXPERIMENTS
        .iter()
        .find(|experiment| experiment.name == name)
        .ok_or_else(|| Error::Unknown { name: name.to_owned(), known: EXPERIMENTS.len() })
}

/// What runs `experiment` under `settings`, if it can be.
pub fn runner(experiment: &Experiment, settings: &Settings) -> Result<Runner, Error> {
    let (Built::Whole(run) | Built::Partly(run, _)) = experiment.built;
    if settings.is_emulated() && !experiment.takes_delays {
        let those = EXPERIMENTS.iter().filter(|other| other.takes_delays);
        let those = those.map(|other| other.name).collect::<Vec<_>>().join(", ");
        return Err(Error::NoMedium { name: experiment.name, those });
    }
    Ok(run)
}
/// Runs the experiment `name`.
pub fn run(
    name: &str,
    settings: &Settings,
    progress: &ProgressBar,
) -> Result<(&'static Experiment, Outcome), Error> {
    let experiment = find(name)?;
    let outcome = runner(experiment, settings)?(settings, progress)?;
    Ok((experiment, outcome))
}

/// The list for people, a paper after the other.
pub fn list() -> String {
    let mut out = String::new();
    let mut paper = "";
    for experiment in EXPERIMENTS {
        if experiment.paper.short != paper {
            paper = experiment.paper.short;
            out += &format!("{}\n", experiment.paper.title);
        }
        out += &format!(
            "  {:<14} {:<8} {} ({})\n",
            experiment.name,
            experiment.built.word(),
            experiment.title,
            experiment.index
        );
        if let Some(missing) = experiment.built.missing() {
            out += &format!("  {:<14} {:<8} needs {missing}\n", "", "");
        }
    }
    out
}
