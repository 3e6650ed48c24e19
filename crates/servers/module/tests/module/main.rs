//! Tests of the module in real servers. Each server is a process with its own directory.
//!
//! `PANDO_REDIS` is the program; Debian's `redis-server` if it is not set. The module must be built
//! with the feature `testing`, as `check` does.

#[allow(dead_code, reason = "each user needs a part")]
#[path = "../../../server/tests/common/packages.rs"]
mod packages;
#[allow(dead_code, reason = "each user needs a part")]
#[path = "../../../server/tests/common/process.rs"]
mod process;
#[allow(dead_code, reason = "each user needs a part")]
#[path = "../../../server/tests/common/wire.rs"]
mod wire;

mod server;

mod cluster;
mod commands;
mod kills;
mod names;
mod payloads;
mod replicas;
mod starts;
