//! The section of INFO.

use std::sync::atomic::Ordering;

use crate::redis::Info;
use crate::settings;
use crate::state::{Phase, STATE};

/// Writes the section.
pub fn report(info: Info) {
    let phase = match STATE.phase() {
        Phase::PoolFirst => "start from the pool",
        Phase::FilesFirst => "start from files",
        Phase::Serving => "serving",
        Phase::Loading => "loading",
    };
    info.text("phase", phase);
    let Some(store) = STATE.store() else { return };
    info.text("pool", &settings::pool().display().to_string());
    info.number("used_bytes", store.used_bytes());
    info.number("size_bytes", store.size_bytes());
    info.number("allowed_bytes", settings::max_bytes(&store));
    info.number("saves", store.saves().unwrap_or(0));
    info.number("names_not_stored", STATE.names.len() as u64);
    info.number("garbage", store.garbage_count() as u64);
    info.number("save_pending", STATE.files.is_pending().into());
    info.number("start_maps", STATE.rebuilt_maps.load(Ordering::Relaxed));
    info.number("start_us", STATE.rebuilt_us.load(Ordering::Relaxed));
}
