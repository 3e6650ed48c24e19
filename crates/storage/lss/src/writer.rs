//! How groups become blocks.

use std::collections::HashMap;

use pando_pmem::mutant;

use crate::error::{Error, NoDelta, Result};
use crate::part::{self, Kind, MAX_PAGE_BYTES, MAX_PARTS, PIECE_COSTS_BYTES};
use crate::queue::{Refusal, Write};
use crate::room::Purpose;
use crate::shared::Shared;
use crate::state::{Draft, Writer};

/// Bytes that a write takes in a block at most.
pub(crate) fn most_bytes(write: &Write) -> usize {
    part::bytes_for(MAX_PARTS - 1, [write.bytes.as_slice()])
}

fn refusal_of(error: &Error) -> Refusal {
    match error {
        Error::NeedsBase { pid, why } => Refusal::NeedsBase(*pid, *why),
        Error::Full { .. } => Refusal::Full,
        _ => Refusal::Failed,
    }
}

impl Writer {
    /// Writes all groups that were appended before the call. Each gets its outcome.
    pub fn write_queue(&mut self, shared: &Shared) -> Result<()> {
        let mut draft = Draft::default();
        let mut failure = shared.check_failed().err();
        for slot in shared.queue.take() {
            shared.leaves_queue(slot.take());
            let Some(group) = slot.take() else { continue };
            if group.is_empty() {
                slot.end(Ok(()));
                continue;
            }
            let added = match failure {
                None => self.add_group(shared, &mut draft, group),
                Some(_) => {
                    slot.end(Err(Refusal::Failed));
                    continue;
                }
            };
            match added {
                Ok(()) => draft.slots.push(slot.clone()),
                Err(error) => {
                    let refusal = refusal_of(&error);
                    slot.end(Err(refusal));
                    failure = (refusal == Refusal::Failed).then_some(error);
                }
            }
        }
        if let Some(error) = failure {
            draft.slots.iter().for_each(|slot| slot.end(Err(Refusal::Failed)));
            return Err(error);
        }
        self.write(shared, &mut draft)?;
        if self.since_checkpoint_bytes <= shared.options.checkpoint_bytes {
            return Ok(());
        }
        match self.checkpoint(shared, None) {
            // The groups are written. The next call tries again.
            Err(Error::Full { .. }) => Ok(()),
            made => made,
        }
    }

    /// Adds a group to the block, or refuses it whole.
    fn add_group(&mut self, shared: &Shared, draft: &mut Draft, group: &[Write]) -> Result<()> {
        self.check_deltas(shared, draft, group)?;
        let only_frees = group.iter().all(|write| write.kind == Kind::Free);
        let purpose = if only_frees { Purpose::Free } else { Purpose::Write };
        let bytes = group.iter().map(most_bytes).sum();
        self.make_place(shared, draft, bytes, purpose)?;
        for write in group {
            let pieces: &[&[u8]] = match write.kind {
                Kind::Free => &[],
                Kind::Base | Kind::Delta => &[&write.bytes],
            };
            self.add(shared, draft, (write.kind, write.pid), pieces);
            draft.appended_bytes += write.bytes.len() as u64;
            if mutant!("lss-group-torn") {
                self.write(shared, draft)?;
                self.make_place(shared, draft, bytes, purpose)?;
            }
        }
        Ok(())
    }

    /// Whether each delta of the group has a page that takes it.
    fn check_deltas(&self, shared: &Shared, draft: &Draft, group: &[Write]) -> Result<()> {
        // Cleaning writes a page as one part.
        let most_bytes = MAX_PAGE_BYTES.min(shared.most_group_bytes());
        // Number of parts and bytes of the pages that earlier writes of the group change.
        let mut changed: HashMap<u32, (usize, usize)> = HashMap::new();
        for Write { kind, pid, bytes } in group {
            let bytes = bytes.len() + PIECE_COSTS_BYTES;
            let after = match kind {
                Kind::Base => (1, bytes),
                Kind::Free => (0, 0),
                Kind::Delta => {
                    let before = changed.get(pid).copied().unwrap_or_else(|| {
                        let parts = self.parts_in(shared, draft, *pid);
                        (parts.len(), parts.iter().map(|part| part.bytes()).sum())
                    });
                    let why = match before {
                        (0, _) => Some(NoDelta::NoPage),
                        (parts, _) if parts >= MAX_PARTS => Some(NoDelta::Parts),
                        (_, before) if before + bytes > most_bytes => Some(NoDelta::Bytes),
                        _ => None,
                    };
                    if let Some(why) = why {
                        return Err(Error::NeedsBase { pid: *pid, why });
                    }
                    (before.0 + 1, before.1 + bytes)
                }
            };
            changed.insert(*pid, after);
        }
        Ok(())
    }
}
