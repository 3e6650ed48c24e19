//! The figures of the documents.
//!
//! A new one is an entry here, its name between two comments in a page (the page on top of
//! [`documents`](super)), and `bench figures measure NAME`.

use super::table::{Column, Show, Table};

/// A figure: how it is measured, and how it is shown.
#[derive(Debug)]
pub struct Figure {
    /// Its name: that of its file, and that in the pages.
    pub name: &'static str,
    /// What the numbers are, in a sentence above the table.
    pub about: &'static str,
    /// The commands that measure it, as arguments of `pando bench`.
    pub commands: &'static [&'static str],
    /// The folders whose sources are measured. If one changes, the figure is older than the code.
    pub sources: &'static [&'static str],
    /// Its table.
    pub table: Table,
}

/// What each index stands on, and what measures it.
const INDEXES: &[&str] = &["crates/core", "crates/indexes", "crates/tools/bench/src/systems"];
/// What the servers stand on.
const SERVERS: &[&str] = &[
    "crates/core",
    "crates/indexes",
    "crates/storage",
    "crates/pando",
    "crates/servers",
    "crates/tools/bench/src/servers",
];

/// What transactional maps and logs stand on.
const TRANSACTIONS: &[&str] = &[
    "crates/core",
    "crates/indexes",
    "crates/storage",
    "crates/pando",
    "crates/tools/bench/src/systems",
    "crates/tools/bench/src/transactions",
];

const OPERATIONS: Column = Column::plain("operations", "operation_mix");
const KEYS: Column = Column::plain("keys", "keys");
const THREADS: Column = Column::plain("threads", "threads");
const SYSTEM: Column = Column::plain("system", "system");
const INDEX: Column = Column::plain("index", "index");
const RECORDS: Column = Column::plain("records", "records");
const RATIO: Column = Column { heading: "ratio", field: "ratio_to_first", show: Show::Ratio };
const P999: Column = Column {
    heading: "p99.9, µs",
    field: "p999_ns",
    show: Show::Number { divisor: 1e3, digits: 0 },
};
const MILLIONS: Column = Column {
    heading: "million operations a second",
    field: "ops_per_second",
    show: Show::Number { divisor: 1e6, digits: 2 },
};
const THOUSANDS: Column = Column {
    heading: "thousand operations a second",
    field: "ops_per_second",
    show: Show::Number { divisor: 1e3, digits: 1 },
};
const BYTES: Show = Show::Number { divisor: 1.0, digits: 1 };
const MICROSECONDS: Show = Show::Spread { divisor: 1e3, digits: 1 };
const TIMES: Show = Show::Spread { divisor: 1.0, digits: 2 };

/// Throughput by that of the first system.
const RATIOS: Table =
    Table { keys: &[OPERATIONS, THREADS], across: Some("system"), cells: &[RATIO] };
/// Throughput itself.
const RATES: Table =
    Table { keys: &[OPERATIONS, THREADS], across: Some("system"), cells: &[MILLIONS] };
/// Throughput by that of the first system, and the latency of each.
const ACKNOWLEDGED: Table = Table {
    keys: &[SYSTEM, THREADS, Column::plain("pools on", "pool_file_system")],
    across: None,
    cells: &[THOUSANDS, RATIO, P999],
};
/// Servers beside each other.
const LOADS: Table = Table {
    keys: &[Column::plain("load", "load"), Column::plain("server", "server")],
    across: None,
    cells: &[
        Column { heading: "throughput", field: "ratio", show: TIMES },
        Column { heading: "processor time", field: "processor_ratio", show: TIMES },
        Column { heading: "p99, ms", field: "p99_ms", show: TIMES },
    ],
};

/// Measures with what each is divided by.
const MEASURES: Table = Table {
    keys: &[Column::plain("measure", "measure"), Column::plain("divided by", "base"), RECORDS],
    across: None,
    cells: &[
        Column { heading: "ratio", field: "ratio", show: TIMES },
        Column { heading: "on core", field: "on_core_ratio", show: TIMES },
        Column {
            heading: "thousand keys a second",
            field: "per_second",
            show: Show::Spread { divisor: 1e3, digits: 0 },
        },
        Column { heading: "µs", field: "latency_ns", show: MICROSECONDS },
    ],
};

/// All figures, in the order in which they are measured.
pub const FIGURES: &[Figure] = &[
    Figure {
        name: "costs",
        about: "Counted, per operation on a tree of 100,000 records: the median, and in brackets \
                the mean with consolidations, splits and merges.",
        commands: &["costs --index bztree,bwtree,nbtree,wbtree,pando-skiplist"],
        sources: INDEXES,
        table: Table {
            keys: &[INDEX, Column::plain("operation", "operation")],
            across: None,
            cells: &[
                Column { heading: "write-backs", field: "flushes", show: Show::MedianAndMean },
                Column { heading: "fences", field: "fences", show: Show::MedianAndMean },
                Column {
                    heading: "lines written",
                    field: "lines_written",
                    show: Show::MedianAndMean,
                },
                Column { heading: "lines read", field: "lines_read", show: Show::MedianAndMean },
            ],
        },
    },
    Figure {
        name: "memory",
        about: "Throughput divided by that of BzTree on anonymous memory; above 1 (bold) the \
                other is faster. 1 million records, 8-byte keys and values, uniform keys.",
        commands: &[
            "--systems bztree,scc,congee,concurrent-map,masstree,bf-tree,crossbeam-skiplist,btreemap,\
             btree-olc --records 1M --threads 1,2 --rounds 5 --seconds 0.15",
        ],
        sources: INDEXES,
        table: RATIOS,
    },
    Figure {
        name: "large",
        about: "The same with 10 million records.",
        commands: &[
            "--systems bztree,congee,concurrent-map,masstree,crossbeam-skiplist,btree-olc \
             --operation-mix read,50/50,scan10,scan100,insert,delete --records 10M --threads 1,2,4 \
             --rounds 3 --seconds 0.3 --batch 200k",
        ],
        sources: INDEXES,
        table: RATIOS,
    },
    Figure {
        name: "skewed",
        about: "The same with 10 million records and zipfian keys.",
        commands: &["--systems bztree,congee,concurrent-map,crossbeam-skiplist \
             --operation-mix read,50/50,scan10 --keys zipfian:0.99 --records 10M --threads 1,2 --rounds 3 --seconds 0.3"],
        sources: INDEXES,
        table: Table {
            keys: &[OPERATIONS, KEYS, THREADS],
            across: Some("system"),
            cells: &[RATIO],
        },
    },
    Figure {
        name: "indexes",
        about: "Million operations a second, domain `process`, 1 million records, 8-byte keys and \
                values, uniform keys.",
        commands: &["--systems bztree:process,bwtree:process,nbtree:process,wbtree:process,\
             pando-skiplist:process,crossbeam-skiplist --records 1M --threads 1,2 --rounds 5 \
             --seconds 0.15"],
        sources: INDEXES,
        table: RATES,
    },
    Figure {
        name: "durable",
        about: "Throughput divided by that of BzTree in the domain `process`; 100,000 records. A \
                write that has returned survives `kill -9` on every system here.",
        commands: &[
            "--systems bztree:process,redb,fjall,sled,bf-tree:log --records 100k --threads 1,2 \
             --rounds 3 --seconds 0.15 --batch 2k",
        ],
        sources: INDEXES,
        table: RATIOS,
    },
    Figure {
        name: "transactional",
        about: "Throughput of a transactional map divided by that of a plain map of the same \
                index, domain `process`; 1 million records.",
        commands: &[
            "--systems bztree:process,bztree:transactional --operation-mix read,update \
             --value-bytes 100 --records 1M --threads 1,2 --rounds 5 --seconds 0.5",
            "--systems nbtree:process,nbtree:transactional --operation-mix read,update \
             --records 1M --threads 1,2 --rounds 5 --seconds 0.5",
            "--systems pando-skiplist:process,pando-skiplist:transactional \
             --operation-mix read,update --records 1M --threads 1,2 --rounds 5 --seconds 0.5",
        ],
        sources: TRANSACTIONS,
        table: Table {
            keys: &[OPERATIONS, Column::plain("value, bytes", "value_bytes"), THREADS],
            across: Some("system"),
            cells: &[RATIO],
        },
    },
    Figure {
        name: "transactions",
        about: "BzTree, keys of 8 and values of 100 bytes, domain `process`: the median of the \
                rounds, and in brackets the least and the greatest. The last rows are rebuilds of \
                a pool whose file is gone.",
        commands: &["transactions --log-dir /var/tmp"],
        sources: TRANSACTIONS,
        table: MEASURES,
    },
    Figure {
        name: "synced",
        about: "Upserts that return when they survive a power cut, 20,000 records, values of 100 \
                bytes; logs, and files of peers, on a disk. The ratio is to the first system; a \
                `flush` of sled waits for the disk, but does not sync.",
        commands: &[
            "--systems bztree:synced,bztree:pipelined,redb:sync,fjall:sync,rocksdb:sync,lmdb:sync,sled \
             --operation-mix update --value-bytes 100 --records 20k --threads 1,2,8,64 --rounds 5 \
             --seconds 0.5 --sample-every 1 --log-dir /var/tmp",
            "--systems bztree:synced,bztree:pipelined --operation-mix update --value-bytes 100 \
             --records 20k --threads 1,2,8,64 --rounds 5 --seconds 0.5 --sample-every 1 \
             --pool-dir /var/tmp",
        ],
        sources: TRANSACTIONS,
        table: ACKNOWLEDGED,
    },
    Figure {
        name: "buffered",
        about: "Upserts that survive `kill -9` when they return (those of `sled:lazy` do not), \
                100,000 records, values of 100 bytes; logs, and files of peers, on a disk. The \
                ratio is to the first system.",
        commands: &[
            "--systems bztree:buffered,bztree:process,bztree:transactional,redb,fjall,rocksdb,lmdb,\
             sled,sled:lazy --operation-mix update --value-bytes 100 --records 100k --threads 1,2 \
             --rounds 5 --seconds 0.5 --sample-every 4 --log-dir /var/tmp",
            "--systems bztree:buffered,bztree:process,bztree:transactional --operation-mix update \
             --value-bytes 100 --records 100k --threads 1,2 --rounds 5 --seconds 0.5 \
             --sample-every 4 --pool-dir /var/tmp",
        ],
        sources: TRANSACTIONS,
        table: ACKNOWLEDGED,
    },
    Figure {
        name: "recovery",
        about: "From opening a pool after `kill -9`, in µs: the median, and in brackets the least \
                and the greatest.",
        commands: &[
            "recovery --index bztree,bwtree,wbtree,pando-skiplist,nbtree --records 1M,10M --cycles 11",
        ],
        sources: INDEXES,
        table: Table {
            keys: &[INDEX, RECORDS],
            across: None,
            cells: &[
                Column { heading: "until open, µs", field: "open_ns", show: MICROSECONDS },
                Column {
                    heading: "to the first get, µs",
                    field: "first_get_ns",
                    show: MICROSECONDS,
                },
            ],
        },
    },
    Figure {
        name: "processes",
        about: "A BzTree in a shared pool, keys of 8 and values of 100 bytes, two cores: the \
                median of the rounds, and in brackets the least and the greatest. 14 to 18 \
                processes are more than the cores, so their latencies are mostly the scheduler's.",
        commands: &["processes"],
        sources: TRANSACTIONS,
        table: MEASURES,
    },
    Figure {
        name: "space",
        about: "Bytes a record after a fill in random order with 8-byte keys and values: in the \
                pool or on the heap, and in the system's files, room for growth included.",
        commands: &["space --systems bztree:process,bwtree:process,nbtree:process,wbtree:process,\
             pando-skiplist:process,crossbeam-skiplist,btreemap,congee,concurrent-map --records 1M"],
        sources: INDEXES,
        table: Table {
            keys: &[SYSTEM, RECORDS],
            across: None,
            cells: &[
                Column { heading: "bytes", field: "bytes_per_record", show: BYTES },
                Column { heading: "in files", field: "file_bytes_per_record", show: BYTES },
            ],
        },
    },
    Figure {
        name: "profile",
        about: "BzTree's time by component, in percent of the samples in the tree; 1 million \
                records, 1 thread, no write-backs. Figure 9 of the BzTree paper.",
        commands: &["profile --records 1M --seconds 4"],
        sources: INDEXES,
        table: Table {
            keys: &[Column::plain("component", "component")],
            across: Some("operation_mix"),
            cells: &[Column { heading: "percent", field: "percent", show: BYTES }],
        },
    },
    Figure {
        name: "servers",
        about: "Ratios to Redis without persistence, in the same round; P: requests of a client on \
                their way at once; 50 clients (c50), 1 million keys.",
        commands: &[
            "servers --servers redis,pando,redis-everysec --pipelines 1,16,100 --clients 50 \
             --requests 1M",
        ],
        sources: SERVERS,
        table: LOADS,
    },
    Figure {
        name: "memcached",
        about: "Ratios to memcached in the same round, by the memcached text protocol.",
        commands: &[
            "servers --servers memcached,pando-memcached --tests get,set --pipelines 1,16,100 \
             --clients 50 --requests 1M",
        ],
        sources: SERVERS,
        table: LOADS,
    },
    Figure {
        name: "restarts",
        about: "From the start of the process to the answer to the first GET, in ms, after a kill; \
                10 million keys. For memcached it is after an orderly end that keeps its memory.",
        commands: &["servers --restarts 5"],
        sources: SERVERS,
        table: Table {
            keys: &[Column::plain("server", "server"), Column::plain("keys", "records")],
            across: None,
            cells: &[Column {
                heading: "restart, ms",
                field: "restart_ns",
                show: Show::Spread { divisor: 1e6, digits: 1 },
            }],
        },
    },
];

/// The figure called `name`, or an error that names all.
pub fn figure(name: &str) -> Result<&'static Figure, String> {
    FIGURES.iter().find(|figure| figure.name == name).ok_or_else(|| {
        let names: Vec<_> = FIGURES.iter().map(|figure| figure.name).collect();
        format!("there is no figure {name:?}; expected one of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for (at, figure) in FIGURES.iter().enumerate() {
            assert!(FIGURES[..at].iter().all(|other| other.name != figure.name), "{}", figure.name);
        }
    }
}
