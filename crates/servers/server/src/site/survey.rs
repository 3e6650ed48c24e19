//! The walk over the tree that says its shape, and the first count of keys.
//!
//! A walk costs a look at every leaf, so it is made only when somebody asks, in a thread of its
//! own, and again no sooner than a minute after the last one began: whoever asks before is told
//! that one's. To count the keys holds the lock of one stripe at a time, for as long as its
//! thousandth part of the keys takes to read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pando::MapStat;
use pando_keyspace::layout::DATABASES;
use pando_redis::Server;
use parking_lot::Mutex;

use crate::status::{MapShape, Shape};

/// From the beginning of a walk to that of the next.
const INTERVAL: Duration = Duration::from_secs(60);

/// What the last walk found.
#[derive(Default)]
pub(super) struct Survey {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_walking: bool,
    begun_at: Option<Instant>,
    ended_at: Option<Instant>,
    pub last: Shape,
}

impl Survey {
    pub(super) fn shape(&self) -> Shape {
        let state = self.state.lock();
        let age_seconds = state.ended_at.map(|at| at.elapsed().as_secs());
        Shape { is_walking: state.is_walking, age_seconds, ..state.last.clone() }
    }

    /// Begins a walk, unless one is being made or was begun just now.
    pub(super) fn ask(survey: &Arc<Self>, server: &Server) {
        let mut state = survey.state.lock();
        if state.is_walking || state.begun_at.is_some_and(|at| at.elapsed() < INTERVAL) {
            return;
        }
        let walker = Arc::clone(survey);
        let walk = move |server: &Server| {
            let begun_at = Instant::now();
            let mut shape = walk(server);
            shape.took_ms = u64::try_from(begun_at.elapsed().as_millis()).unwrap_or(u64::MAX);
            let mut state = walker.state.lock();
            state.is_walking = false;
            state.ended_at = Some(Instant::now());
            state.last = shape;
        };
        match server.begin_task("survey", walk) {
            Ok(()) => {
                state.is_walking = true;
                state.begun_at = Some(Instant::now());
            }
            Err(error) => state.last.error = Some(error.to_string()),
        }
    }
}

fn walk(server: &Server) -> Shape {
    let counted = (0..DATABASES).try_for_each(|database| server.store.count(database).map(drop));
    let told = counted.map_err(|error| error.to_string());
    match told.and_then(|()| server.store.pool().stat().map_err(|error| error.to_string())) {
        Ok(stat) => Shape { maps: stat.maps.iter().map(map_shape).collect(), ..Shape::default() },
        Err(error) => Shape { error: Some(error), ..Shape::default() },
    }
}

fn map_shape(map: &MapStat) -> MapShape {
    let mut shape =
        MapShape { name: map.name.clone(), index: map.index.clone(), ..MapShape::default() };
    if let Some(figures) = &map.figures {
        shape.height = figures.height;
        shape.inner_nodes = figures.inner_nodes;
        shape.leaves = figures.leaves;
        shape.records = figures.records;
        shape.leaf_fill = figures.leaf_fill;
        shape.bytes_a_record = figures.bytes_a_record;
    }
    shape
}
