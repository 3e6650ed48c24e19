//! The subcommands, each a thin layer over the library.

pub mod check;
pub mod compact;
pub mod evict;
pub mod generated;
pub mod load;
pub mod log;
pub mod maps;
pub mod point;
pub mod scan;
pub mod serve;
pub mod stat;
pub mod top;
pub mod upgrade;
