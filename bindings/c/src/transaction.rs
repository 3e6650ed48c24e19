//! Transactions.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Mutex;

use pando::{Order, Pool, Transaction};
use self_cell::self_cell;

use crate::bytes::{pando_bytes, pando_slice, put, required};
use crate::error::{call, free, pando_error};
use crate::failure::Failure;
use crate::handle::{self, Object, alone};
use crate::map::{answer, map, pando_map};
use crate::options::{Range, acknowledge, isolation, pando_range, range};
use crate::pool::{pando_pool, pool};

/// Reads and writes of several keys that take place as a whole, or not at all.
pub struct pando_transaction {
    _private: [u8; 0],
}

type Open<'pool> = Option<Transaction<'pool>>;

self_cell!(
    struct TransactionCell {
        owner: Pool,
        #[not_covariant]
        dependent: Open,
    }
);

/// The transaction behind a handle. It is none when it is committed.
struct TransactionObject {
    cell: Mutex<TransactionCell>,
    pool: Pool,
}

impl Object for TransactionObject {
    const KIND: u64 = 6;
    const NAME: &'static str = "pando_transaction";
    fn pool(&self) -> Option<&Pool> {
        Some(&self.pool)
    }
    fn idle(&self) -> Result<(), Failure> {
        alone(&self.cell, Self::NAME).map(drop)
    }
}

fn over() -> Failure {
    Failure::option("the transaction", "over", "one that is not committed")
}

/// Runs `body` with the transaction.
fn with<R>(
    transaction: *mut pando_transaction,
    body: impl FnOnce(&mut Transaction<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let object = handle::get::<TransactionObject>(transaction as usize)?;
    alone(&object.cell, TransactionObject::NAME)?.with_dependent_mut(|_, open| match open {
        Some(transaction) => body(transaction),
        None => Err(over()),
    })
}

/// Begins a transaction with an isolation, a pando_isolation. It holds up no other one.
#[unsafe(no_mangle)]
pub extern "C" fn pando_pool_begin(
    pool: *const pando_pool,
    isolation: u32,
    transaction: Option<&mut MaybeUninit<*mut pando_transaction>>,
) -> *mut pando_error {
    call(|| {
        let transaction = required(transaction, "the place of the transaction")?;
        let (pool, isolation) = (self::pool(pool)?.clone(), self::isolation(isolation)?);
        let cell =
            TransactionCell::try_new(pool.clone(), |pool| pool.begin_with(isolation).map(Some))?;
        let cell = Mutex::new(cell);
        let object = TransactionObject { cell, pool };
        transaction.write(handle::give(object) as *mut pando_transaction);
        Ok(())
    })
}

/// Copies the value of the key, as the transaction sees it; otherwise as pando_map_get.
#[unsafe(no_mangle)]
pub extern "C" fn pando_transaction_get(
    transaction: *mut pando_transaction,
    map: *const pando_map,
    key: pando_slice,
    value: Option<&mut pando_bytes>,
    found: Option<&mut MaybeUninit<bool>>,
) -> *mut pando_error {
    call(|| {
        let found = required(found, "found")?;
        let (map, key) = (self::map(map)?, key.bytes("key")?);
        let got = with(transaction, |transaction| Ok(transaction.get(map, key)?))?;
        answer(got.as_deref(), value, Some(found));
        Ok(())
    })
}

/// Gives the key this value.
#[unsafe(no_mangle)]
pub extern "C" fn pando_transaction_put(
    transaction: *mut pando_transaction,
    map: *const pando_map,
    key: pando_slice,
    value: pando_slice,
) -> *mut pando_error {
    call(|| {
        let (map, key, value) = (self::map(map)?, key.bytes("key")?, value.bytes("value")?);
        with(transaction, |transaction| Ok(transaction.put(map, key, value)?))
    })
}

/// Removes the key, if it is present.
#[unsafe(no_mangle)]
pub extern "C" fn pando_transaction_remove(
    transaction: *mut pando_transaction,
    map: *const pando_map,
    key: pando_slice,
) -> *mut pando_error {
    call(|| {
        let (map, key) = (self::map(map)?, key.bytes("key")?);
        with(transaction, |transaction| Ok(transaction.remove(map, key)?))
    })
}

/// Reads a record that is lent for the time of the visit, and returns whether the scan goes on.
pub type pando_record_visit =
    Option<extern "C" fn(context: *mut c_void, key: pando_slice, value: pando_slice) -> bool>;

/// Lends each record of the range to visit, as the transaction sees it, until visit returns false;
/// range may be NULL for all records. The transaction conflicts with changes of the part that was
/// lent. visit must not use the transaction.
#[unsafe(no_mangle)]
pub extern "C" fn pando_transaction_scan(
    transaction: *mut pando_transaction,
    map: *const pando_map,
    range: *const pando_range,
    visit: pando_record_visit,
    context: *mut c_void,
) -> *mut pando_error {
    call(|| {
        let visit = visit.ok_or_else(|| Failure::null("visit"))?;
        let map = self::map(map)?;
        let Range { keys, order, expected } = self::range(range)?;
        with(transaction, |transaction| {
            let mut scan = transaction.range(map, keys);
            if let Some(records) = expected {
                scan = scan.expecting(records);
            }
            loop {
                let next = match order {
                    Order::Ascending => scan.next(),
                    Order::Descending => scan.next_back(),
                };
                let Some(record) = next else { return Ok(()) };
                let (key, value) = record?;
                if !visit(context, pando_slice::lend(&key), pando_slice::lend(&value)) {
                    return Ok(());
                }
            }
        })
    })
}

/// Sets when pando_transaction_commit returns: a pando_acknowledge. For a pool with a log.
#[unsafe(no_mangle)]
pub extern "C" fn pando_transaction_acknowledge(
    transaction: *mut pando_transaction,
    acknowledge: u32,
) -> *mut pando_error {
    call(|| {
        let acknowledge = self::acknowledge(acknowledge)?;
        with(transaction, |transaction| {
            transaction.acknowledge(acknowledge);
            Ok(())
        })
    })
}

/// Commits the transaction, which is over then, also after an error. lsn may be NULL; it gets the
/// log sequence number of the commit. PANDO_CODE_CONFLICT if another transaction came first:
/// nothing has taken place, and the caller runs its body again in a new transaction. The handle is
/// still to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn pando_transaction_commit(
    transaction: *mut pando_transaction,
    lsn: Option<&mut MaybeUninit<u64>>,
) -> *mut pando_error {
    call(|| {
        let object = handle::get::<TransactionObject>(transaction as usize)?;
        let mut cell = alone(&object.cell, TransactionObject::NAME)?;
        let committed = cell.with_dependent_mut(|_, open| open.take().map(Transaction::commit));
        put(lsn, committed.ok_or_else(over)??);
        Ok(())
    })
}

/// Frees the transaction. If it was not committed, nothing of it has taken place. NULL is left
/// alone.
#[unsafe(no_mangle)]
pub extern "C" fn pando_transaction_free(transaction: *mut pando_transaction) -> *mut pando_error {
    free::<TransactionObject>(transaction as usize)
}
