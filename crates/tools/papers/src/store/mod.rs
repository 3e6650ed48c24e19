//! The record store on disk (sections II.E and V of the Bw-tree paper): cache, flushes, cleaning
//! and recovery.
//!
//! The paper has no figure of these. Its section VI measures the tree in memory, and leaves its
//! storage to later work. So these experiments are our own. Each measures one claim of the text, or
//! one size that the text leaves open.
//!
//! Everything lies in a new folder of `--pool-dir`, which is removed at the end. The store reads
//! and writes by the system's cache of files. On a file system in memory (the default), a read of
//! the disk is a copy of a few microseconds. On a disk it is the same as long as the system's cache
//! holds the file. To measure a device, run the command in a control group that has little more
//! memory than the store of the experiment. Counts do not depend on that.
//!
//! | file | what |
//! | --- | --- |
//! | [`cache`] | `bwtree:cache`: throughput and misses by the share of the data that memory holds |
//! | [`flush`] | `bwtree:flush`: pages that are written as deltas, against whole pages |
//! | [`clean`] | `bwtree:clean`: the cost of cleaning by the share of the segments that is live |
//! | [`recovery`] | `bwtree:recovery`: an opening after a kill, by the log since the checkpoint |
//! | [`opened`] | the map of a store as a system, and its updates |
//! | [`rounds`] | figures of several rounds, as lines |

pub mod cache;
pub mod clean;
pub mod flush;
pub mod opened;
pub mod recovery;
pub mod rounds;
