//! Figures in documents: data first, and tables and plots made from it.
//!
//! `docs/figures/NAME.jsonl` holds what the commands of a figure wrote: a header line that says
//! where, when and by which commands it was measured, then the rows of `--json`. A page shows the
//! figure between two comments, and everything between them is generated:
//!
//! ```text
//! <!-- figure NAME -->
//! (table, plot and caption)
//! <!-- end of figure -->
//! ```
//!
//! | file, from the lowest up | what |
//! | --- | --- |
//! | [`table`] | how rows of JSON become a table and bars |
//! | [`catalog`] | the figures: their commands, their tables, the sources that they depend on |
//! | [`checkout`] | the root folder, and what git knows of it |
//! | [`data`] | the file of a figure |
//! | [`page`] | the places in a page that are generated, and tables that have no data |
//! | [`command`] | `bench figures`: measure, write, check |

pub mod catalog;
mod checkout;
pub mod command;
mod data;
mod page;
mod table;
