//! Handles: numbers that C code holds as pointers, and the table from a number to its object.
//!
//! ```text
//! handle    63      40 39    36 35     4 3  0
//!           generation  kind     cell     0
//! ```
//!
//! A cell of the table is used again for later handles, with the next generation. So a handle that
//! was freed, or that belongs to another kind of object, is found by a comparison, and no memory of
//! a freed object is read. A handle that is freed while another thread uses it is not found:
//! `pando.h` forbids that. A cell that has had all generations, 16 million, is not used again.
//!
//! No call waits for another thread, also while the table grows: a thread that is inside at a fork
//! does not exist in the child, and whatever it holds would stay held there. A thread that needs a
//! new segment makes one, and publishes it by a CAS; if another thread was first, it takes that
//! one's. What a fork leaves is a segment that is published, or memory that nobody uses.

use std::any::{Any, TypeId};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use pando::Pool;

use crate::failure::Failure;
use crate::failure::pando_code as Code;

/// An object that has handles.
pub(crate) trait Object: Any + Send + Sync {
    /// From 1 to 15; of no other type.
    const KIND: u64;
    /// Its name in messages.
    const NAME: &'static str;
    /// The pool that it belongs to, if it has one.
    fn pool(&self) -> Option<&Pool>;
    /// Fails while a call uses the object, if it is used by one call at a time.
    fn idle(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// An object in the table, behind its type.
#[repr(C)]
struct Typed<T> {
    id: TypeId,
    object: T,
}

struct Cell {
    /// The live handle, or 0.
    handle: AtomicU64,
    /// While it is free: the next free cell plus one, or zero.
    next: AtomicU64,
    /// How many handles it has had.
    generation: AtomicU64,
    /// A `Typed` of some type.
    object: AtomicPtr<TypeId>,
}

const SEGMENTS: usize = 26;
const FIRST_CELLS: usize = 64;

/// Segment `n` is none yet, or has `FIRST_CELLS << n` cells, and is never moved or freed.
static TABLE: [AtomicPtr<Cell>; SEGMENTS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; SEGMENTS];

/// How many cells have been used at least once.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The stack of cells that can be used again: the number of the first plus one, or zero, and above
/// 32 bits how often it has changed.
static FREE: AtomicU64 = AtomicU64::new(0);

const LOW: u64 = 0xFFFF_FFFF;

const LAST_GENERATION: u64 = 0xFF_FFFF;

/// A cell that no other thread has.
fn take_cell() -> usize {
    // Acquire: pairs with the release in `return_cell`, so that the cell's next one is seen.
    let mut head = FREE.load(Ordering::Acquire);
    while let Some(cell) = ((head & LOW) as usize).checked_sub(1) {
        // Relaxed: if another thread takes the cell meanwhile, the count has changed and this
        // fails.
        let next = find(cell).map_or(0, |cell| cell.next.load(Ordering::Relaxed));
        let new = (head >> 32).wrapping_add(1) << 32 | next;
        match FREE.compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => return cell,
            Err(found) => head = found,
        }
    }
    // Relaxed: only the number counts.
    USED.fetch_add(1, Ordering::Relaxed)
}

/// Makes a cell without a handle free to be used again.
fn return_cell(number: usize, cell: &Cell) {
    let mut head = FREE.load(Ordering::Relaxed);
    loop {
        cell.next.store(head & LOW, Ordering::Relaxed);
        let new = (head >> 32).wrapping_add(1) << 32 | (number as u64 + 1);
        // Release: pairs with the acquire in `take_cell`.
        match FREE.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(found) => head = found,
        }
    }
}

/// The segment of a cell, and its place there.
fn place(cell: usize) -> (usize, usize) {
    let segment = (cell / FIRST_CELLS + 1).ilog2() as usize;
    (segment, cell - FIRST_CELLS * ((1 << segment) - 1))
}

fn find(cell: usize) -> Option<&'static Cell> {
    let (segment, at) = place(cell);
    // Acquire: pairs with the release in `grown`, so that the cells are seen.
    let cells = TABLE.get(segment)?.load(Ordering::Acquire);
    if cells.is_null() {
        return None;
    }
    // SAFETY: the segment is published, so it has so many cells and is never freed.
    unsafe { std::slice::from_raw_parts(cells, FIRST_CELLS << segment) }.get(at)
}

/// Makes the segment of a cell, unless there is one, and returns the cell.
fn grown(cell: usize) -> &'static Cell {
    if let Some(found) = find(cell) {
        return found;
    }
    let (segment, _) = place(cell);
    // Not written, so that a large segment takes time and memory only as its cells are used: other
    // threads may make it too.
    let cells = Box::<[Cell]>::new_zeroed_slice(FIRST_CELLS << segment);
    // SAFETY: a cell is integers and a pointer, and zeros are a cell without a handle.
    let cells = Box::into_raw(unsafe { cells.assume_init() });
    let none = std::ptr::null_mut();
    // Release: pairs with the acquire in `find`. Relaxed: `find` loads it again.
    if TABLE[segment]
        .compare_exchange(none, cells.cast(), Ordering::Release, Ordering::Relaxed)
        .is_err()
    {
        // SAFETY: another thread was first, so no thread has seen these cells.
        drop(unsafe { Box::from_raw(cells) });
    }
    match find(cell) {
        Some(found) => found,
        None => unreachable!("the segment of cell {cell} is published"),
    }
}

fn is_of_kind(handle: u64, kind: u64) -> bool {
    handle >> 36 & 0xF == kind
}

/// The cell of a live handle of an object `T`.
fn cell_of<T: Object>(handle: usize) -> Result<&'static Cell, Failure> {
    let (handle, name) = (handle as u64, T::NAME);
    if handle == 0 {
        let message = format!("the handle of a {name} is NULL; pass one that a call has returned");
        return Err(Failure::new(Code::Null, message));
    }
    let cell = (handle >> 4 & LOW) as usize;
    // Acquire: pairs with the release in `give`, so that the object is seen.
    let live = find(cell).filter(|cell| cell.handle.load(Ordering::Acquire) == handle);
    match live {
        Some(cell) if is_of_kind(handle, T::KIND) => Ok(cell),
        Some(_) => Err(Failure::new(
            Code::WrongHandle,
            format!("the handle is not that of a {name}; pass a {name}"),
        )),
        None => Err(Failure::new(
            Code::FreedHandle,
            format!(
                "the handle of a {name} was freed, or no call has returned it; use it before it is freed"
            ),
        )),
    }
}

/// Gives a handle to `object`.
pub(crate) fn give<T: Object>(object: T) -> usize {
    let cell = take_cell();
    let entry = grown(cell);
    // Relaxed, here and for the object: no other thread has the cell, and the release
    // below publishes both.
    let generation = entry.generation.fetch_add(1, Ordering::Relaxed) + 1;
    let object = Box::new(Typed { id: TypeId::of::<T>(), object });
    entry.object.store(Box::into_raw(object).cast(), Ordering::Relaxed);
    let handle = generation << 40 | T::KIND << 36 | (cell as u64) << 4;
    // Release: pairs with the acquire in `cell_of`.
    entry.handle.store(handle, Ordering::Release);
    handle as usize
}

/// The object of a live cell.
fn object_of<T: Object>(cell: &Cell) -> *mut Typed<T> {
    let object = cell.object.load(Ordering::Relaxed);
    // SAFETY: the cell is live, so the pointer is that of a `Typed`, which begins with its type.
    let id = unsafe { *object };
    assert_eq!(id, TypeId::of::<T>(), "two types of objects have the kind {}", T::KIND);
    object.cast()
}

/// The object of a handle, in any process.
pub(crate) fn look<'call, T: Object>(handle: usize) -> Result<&'call T, Failure> {
    let object = object_of::<T>(cell_of::<T>(handle)?);
    // SAFETY: the handle is live, so the pointer is that of a `Typed<T>`. It is freed only by
    // `take`, and `pando.h` forbids to free a handle inside another call with it.
    Ok(unsafe { &(*object).object })
}

/// The object of a handle, in the process that has opened its pool.
pub(crate) fn get<'call, T: Object>(handle: usize) -> Result<&'call T, Failure> {
    let object = look::<T>(handle)?;
    match object.pool() {
        Some(pool) if pool.has_forked() => Err(Failure::forked()),
        _ => Ok(object),
    }
}

/// Ends a handle, and returns its object; none if the process has forked: the object is forgotten
/// then, since a drop could wait for a thread of the parent. An object that is used by one call at
/// a time stays while another thread, or the call that a callback belongs to, uses it.
pub(crate) fn take<T: Object>(handle: usize) -> Result<Option<T>, Failure> {
    let cell = cell_of::<T>(handle)?;
    // Of two threads that free a handle at once, one succeeds. Acquire: pairs with the release in
    // `give`. Release: pairs with the acquire in
    // `cell_of`, by which another thread finds no such handle.
    let freed = cell.handle.compare_exchange(handle as u64, 0, Ordering::AcqRel, Ordering::Relaxed);
    if freed.is_err() {
        // The other one has freed it, or has found it in use and given it back.
        cell_of::<T>(handle)?;
        return Err(Failure::in_use(T::NAME));
    }
    let object = object_of::<T>(cell);
    // SAFETY: as in `look`. No other call finds the object, since the handle has just ended.
    let user = unsafe { &(*object).object };
    // In a child of a fork, the user may be a thread that does not exist. Nothing is dropped there.
    if !user.pool().is_some_and(Pool::has_forked)
        && let Err(in_use) = user.idle()
    {
        // Release: as in `give`.
        cell.handle.store(handle as u64, Ordering::Release);
        return Err(in_use);
    }
    // SAFETY: the pointer is that of a box, and no other call has the object.
    let object = unsafe { Box::from_raw(object) }.object;
    // After the last generation, a handle would be one that the caller has had.
    if handle as u64 >> 40 != LAST_GENERATION {
        return_cell((handle as u64 >> 4 & LOW) as usize, cell);
    }
    match object.pool() {
        Some(pool) if pool.has_forked() => {
            std::mem::forget(object);
            Ok(None)
        }
        _ => Ok(Some(object)),
    }
}

/// A lock that is not waited for: a second user is an error.
pub(crate) fn alone<'object, T>(
    object: &'object Mutex<T>,
    name: &str,
) -> Result<MutexGuard<'object, T>, Failure> {
    match object.try_lock() {
        Ok(locked) => Ok(locked),
        // A panic inside a call was reported. What is left can be used, or freed.
        Err(TryLockError::Poisoned(locked)) => Ok(locked.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Failure::in_use(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One(u32);
    impl Object for One {
        const KIND: u64 = 14;
        const NAME: &'static str = "one";
        fn pool(&self) -> Option<&Pool> {
            None
        }
    }

    struct Other;
    impl Object for Other {
        const KIND: u64 = 15;
        const NAME: &'static str = "other";
        fn pool(&self) -> Option<&Pool> {
            None
        }
    }

    fn code<T>(result: Result<T, Failure>) -> Code {
        result.err().map_or(Code::None, |failure| failure.code)
    }

    #[test]
    fn a_handle_is_found_until_it_is_freed() {
        let handles: Vec<_> = (0..1000).map(|n| give(One(n))).collect();
        for (n, &handle) in (0..).zip(&handles) {
            assert_eq!(look::<One>(handle).map(|one| one.0).ok(), Some(n));
        }
        for handle in handles {
            assert!(take::<One>(handle).is_ok_and(|one| one.is_some()));
            assert_eq!(code(take::<One>(handle)), Code::FreedHandle);
            // The cell is used again.
            let next = give(One(0));
            assert_eq!(code(look::<One>(handle)), Code::FreedHandle);
            assert!(take::<One>(next).is_ok());
        }
    }

    #[test]
    fn threads_give_and_take_at_once() {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for n in 0..2000 {
                        let number = thread * 10_000 + n;
                        let (one, two) = (give(One(number)), give(One(number + 5000)));
                        assert_eq!(look::<One>(one).map(|one| one.0).ok(), Some(number));
                        assert_eq!(
                            take::<One>(two).ok().flatten().map(|two| two.0),
                            Some(number + 5000)
                        );
                        assert_eq!(take::<One>(one).ok().flatten().map(|one| one.0), Some(number));
                    }
                });
            }
        });
    }

    /// Threads that free one handle at once: one of them gets the object.
    #[test]
    fn a_handle_that_threads_free_at_once_is_freed_once() {
        const THREADS: usize = 4;
        const ROUNDS: usize = 2000;
        let handles: Vec<_> = (0..ROUNDS).map(|n| give(One(n as u32))).collect();
        let (at, freed) = (std::sync::Barrier::new(THREADS), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for &handle in &handles {
                        at.wait();
                        match take::<One>(handle) {
                            Ok(one) => {
                                assert!(one.is_some());
                                // Relaxed: the end of the scope orders the count.
                                freed.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(failure) => assert_eq!(failure.code, Code::FreedHandle),
                        }
                    }
                });
            }
        });
        assert_eq!(freed.into_inner(), ROUNDS);
        // Each cell was returned once: no two new handles have the same.
        let mut cells: Vec<_> = (0..2 * ROUNDS).map(|_| give(One(0)) as u64 >> 4 & LOW).collect();
        cells.sort_unstable();
        cells.dedup();
        assert_eq!(cells.len(), 2 * ROUNDS);
    }

    #[test]
    fn a_cell_is_not_used_after_its_last_generation() {
        let cell_of = |handle: usize| handle as u64 >> 4 & LOW;
        let first = give(One(0));
        let last = first as u64 | LAST_GENERATION << 40;
        let cell =
            find(cell_of(first) as usize).map(|cell| cell.handle.swap(last, Ordering::AcqRel));
        assert_eq!(cell, Some(first as u64));
        assert!(take::<One>(last as usize).is_ok_and(|one| one.is_some()));
        let later: Vec<_> = (0..1000).map(|n| give(One(n))).collect();
        assert!(later.iter().all(|&handle| cell_of(handle) != cell_of(first)));
        assert!(later.into_iter().all(|handle| take::<One>(handle).is_ok()));
    }

    #[test]
    fn other_numbers_are_no_handles() {
        let handle = give(One(7));
        assert_eq!(code(look::<Other>(handle)), Code::WrongHandle);
        assert_eq!(code(look::<One>(0)), Code::Null);
        for wrong in [1, 16, usize::MAX, handle + 1, handle ^ 1 << 41] {
            assert_ne!(code(look::<One>(wrong)), Code::None, "{wrong:#x}");
        }
        assert!(take::<One>(handle).is_ok());
    }
}
