//! The delays of an emulated medium, which only the papers' experiments use.

use clap::Args;
use pando_pmem::emulated::{Delays, MAX_DELAY_NS};

use crate::conditions::Conditions;
use crate::error::Error;
use crate::systems::SystemName;
use crate::systems::ours::EMULATED;

/// The delays of an emulated medium.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct DelayArgs {
    /// Emulated medium (systems that end with :slow, domain slow): delay in nanoseconds of each
    /// cache line that is written back
    #[arg(long, default_value = "0", value_parser = delay_ns())]
    pub write_back_ns: u64,
    /// Emulated medium: delay in nanoseconds of each cache line that is read and that the thread
    /// has not cached
    #[arg(long, default_value = "0", value_parser = delay_ns())]
    pub read_line_ns: u64,
}

fn delay_ns() -> impl clap::builder::TypedValueParser<Value = u64> {
    clap::value_parser!(u64).range(0..=MAX_DELAY_NS)
}

impl DelayArgs {
    /// The delays of a run of `systems`; an error if there are any and no system takes them.
    pub fn of_systems<'a>(
        self,
        mut systems: impl Iterator<Item = &'a SystemName>,
    ) -> Result<Delays, Error> {
        let is_taken = systems.any(|system| system.name().ends_with(EMULATED));
        self.delays(is_taken, "the systems that end with :slow")
    }

    /// The delays; an error if they are set and `is_taken` is false. The error names `takers`,
    /// which use delays.
    pub fn delays(self, is_taken: bool, takers: &str) -> Result<Delays, Error> {
        let Self { write_back_ns, read_line_ns } = self;
        let delays = Delays { write_back_ns, read_line_ns };
        if delays == Delays::default() || is_taken {
            return Ok(delays);
        }
        Err(Error::Usage(format!(
            "--write-back-ns and --read-line-ns need {takers}; add one of these, or remove the delays"
        )))
    }
}

impl Conditions {
    /// The same conditions with `delays` for systems and domains with an emulated medium.
    pub fn emulating(self, delays: Delays) -> Self {
        let Delays { write_back_ns, read_line_ns } = delays;
        Self { write_back_ns, read_line_ns, ..self }
    }
}
