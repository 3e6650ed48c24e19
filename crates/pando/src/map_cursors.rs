//! The cursors of a scan, and the map that they borrow.

use std::sync::Arc;

use pando_index::{Cursor, Error, KeyRange, Order, Record};

use crate::engine::AnySnapshot;
use crate::shared::MapShared;

/// A cursor at each end of a range, and the map whose index they borrow.
pub(crate) struct MapCursors<'snapshot> {
    // Dropped first: they borrow from the map.
    front: Option<Box<dyn Cursor + 'snapshot>>,
    back: Option<Box<dyn Cursor + 'snapshot>>,
    map: Arc<MapShared>,
}

impl<'snapshot> MapCursors<'snapshot> {
    pub fn new(map: Arc<MapShared>) -> Self {
        Self { front: None, back: None, map }
    }

    /// The name of the map.
    pub fn name(&self) -> &str {
        &self.map.name
    }

    #[inline(always)]
    fn at(&mut self, order: Order) -> &mut Option<Box<dyn Cursor + 'snapshot>> {
        match order {
            Order::Ascending => &mut self.front,
            Order::Descending => &mut self.back,
        }
    }

    #[inline(always)]
    pub fn is_open(&mut self, order: Order) -> bool {
        self.at(order).is_some()
    }

    /// Opens the cursor for this order over `range`; if there is a snapshot, over the records of
    /// its moment. The map is transactional then.
    pub fn open(
        &mut self,
        snapshot: Option<&'snapshot dyn AnySnapshot>,
        range: KeyRange,
        order: Order,
    ) -> Result<(), Error> {
        // SAFETY: the map is neither moved nor changed while an `Arc` of it lives. The reference
        // goes only into a cursor, which never leaves this struct and is dropped before the `Arc`.
        // If a cursor cannot be opened, nothing keeps the reference: an error has no lifetime.
        let map: &'snapshot MapShared = unsafe { &*Arc::as_ptr(&self.map) };
        let cursor = match (snapshot, &map.stamped) {
            (None, _) => map.index.scan(range, order)?,
            (Some(snapshot), Some(stamped)) => {
                snapshot.scan(stamped, range, order).map_err(Error::storage)?
            }
            (Some(_), None) => unreachable!("a snapshot has only transactional maps"),
        };
        *self.at(order) = Some(cursor);
        Ok(())
    }

    /// Closes the cursors.
    pub fn close(&mut self) {
        (self.front, self.back) = (None, None);
    }

    /// As [`Cursor::expect`], for each cursor that is open.
    pub fn expect(&mut self, records: usize) {
        let open = [&mut self.front, &mut self.back].into_iter().flatten();
        open.for_each(|cursor| cursor.expect(records));
    }

    /// The next record of the cursor for this order, if it is open, and the name of the map.
    #[inline(always)]
    pub fn next(&mut self, order: Order) -> (&str, Result<Option<Record<'_>>, Error>) {
        let Self { front, back, map } = self;
        let cursor = match order {
            Order::Ascending => front,
            Order::Descending => back,
        };
        (&map.name, cursor.as_mut().map_or(Ok(None), |cursor| cursor.next()))
    }
}
