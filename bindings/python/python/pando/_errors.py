"""The errors of Pando. Each is an ``Error``, and also the built-in error that fits."""


class Error(Exception):
    """An error of Pando: what was found, what is allowed, and what to do next."""

    # KeyError would show the representation of the message.
    __str__ = Exception.__str__


class OptionError(Error, ValueError):
    """An option or an argument has a value that is not allowed."""


class KeyTypeError(Error, ValueError):
    """A key has no encoding, or a stored key does not have the type of the map's keys."""


class LengthError(Error, ValueError):
    """A key, a value or a transaction is longer or shorter than is allowed."""


class PoolNotFoundError(Error, FileNotFoundError):
    """There is no pool, no store, no log or no folder at the path."""


class PoolExistsError(Error, FileExistsError):
    """There is a pool or a log at the path already."""


class BusyError(Error, OSError):
    """The pool or the store is open elsewhere, or a handle is in use by another thread."""


class ClosedError(Error, ValueError):
    """The pool, or the transaction, is closed."""


class ForkError(Error, RuntimeError):
    """The pool was opened before this process was forked."""


class NotAPoolError(Error, ValueError):
    """The file is no pool, or one of another version."""


class DamagedError(Error):
    """The pool, the map or the log is damaged, or a power cut may have damaged it."""


class FullError(Error, MemoryError):
    """There is no room: in the pool, on the file system, or for the log."""


class TooManyThreadsError(Error, RuntimeError):
    """Too many threads are inside calls at once."""


class MapNotFoundError(Error, KeyError):
    """The pool has no map of that name."""


class MapDiffersError(Error, ValueError):
    """The map or the pool was created with other options."""


class HandlesHeldError(Error, RuntimeError):
    """Handles of the map are still held."""


class NotTransactionalError(Error, TypeError):
    """The call needs a transactional map, or one of this pool."""


class NotShareableError(Error, RuntimeError):
    """Several processes cannot share this, or not at the same time."""


class NoLogError(Error):
    """The call needs a pool with a log, or a store."""


class ReadOnlyError(Error, PermissionError):
    """The store is open for reading alone."""


class KeyExistsError(Error, KeyError):
    """An insert found its key."""


class KeyNotFoundError(Error, KeyError):
    """The key is absent."""


class ValueMismatchError(Error):
    """The value is not the expected one; ``actual`` has it."""

    actual: bytes


class ConflictError(Error):
    """The transaction conflicts with another one: run it again, or use ``Pool.run``."""


class ConditionFailedError(Error):
    """A condition of a batch does not hold; ``key`` has the bytes of its key."""

    key: bytes


class AppliedNotDurableError(Error, OSError):
    """The write has taken place, but a power cut may undo it."""


class SnapshotRevokedError(Error):
    """The snapshot is revoked: it was too old, or kept too many bytes."""


class SessionError(Error):
    """The session does not exist, or the sequence cannot be used."""


class IoError(Error, OSError):
    """The operating system refused a call."""
