"""Ordered maps that survive kill -9, for many threads and processes.

A ``Pool`` is one file with named maps, a ``Store`` a directory whose maps may be larger than
memory. ``Pool.map`` opens a ``Map``, a mutable mapping from keys of one type to ``bytes``.
"""

from collections.abc import MutableMapping as _MutableMapping

from . import _errors
from ._errors import *  # noqa: F403
from ._pando import Map, Pin, Pool, Scan, Session, Snapshot, Store, Transaction, WriteBatch

_MutableMapping.register(Map)

_names = [name for name, found in vars(_errors).items() if isinstance(found, type)]
# They are named in messages as the users import them.
for _name in _names:
    vars(_errors)[_name].__module__ = "pando"
__all__ = [
    "Map",
    "Pin",
    "Pool",
    "Scan",
    "Session",
    "Snapshot",
    "Store",
    "Transaction",
    "WriteBatch",
    *_names,
]
