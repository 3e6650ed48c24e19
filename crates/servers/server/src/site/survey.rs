//! The walk that measures the shape of the tree, and the first count of keys.
//!
//! A walk reads every leaf. So it is made only on request, in its own thread, and at most one
//! begins in a minute. A request before that gets the result of the last walk. The count of keys
//! locks one stripe at a time, for a step of about two milliseconds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pando::MapStat;
use pando_keyspace::layout::DATABASES;
use pando_redis::Server;
use parking_lot::Mutex;

use crate::status::{MapShape, Shape};

/// The least time between the begins of two walks.
const INTERVAL: Duration = Duration::from_secs(60);

/// The state and the result of the last walk.
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

    /// Begins a walk, unless one is running or began within the interval.
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
    if server.store.page_bytes().is_some() {
        // It would read all pages.
        let error = Some("the shape of a store is not measured".to_owned());
        return Shape { error, ..Shape::default() };
    }
    let counted = (0..DATABASES).try_for_each(|database| server.store.count(database).map(drop));
    let counted = counted.map_err(|error| error.to_string());
    match counted.and_then(|()| server.store.pool().stat().map_err(|error| error.to_string())) {
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
