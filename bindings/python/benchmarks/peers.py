"""Packages that keep records from bytes to bytes, each behind the same calls.

A peer has ``get``, ``put``, ``get_many``, ``put_many`` and ``close``. ``is_synced`` says which of
two failures a write survives when it returns: a power cut, or only ``kill -9``. Each peer has the
settings by which it is fastest among those that survive that failure. ``put_many`` is one commit,
but that of ``Pando``: there each record is an operation of its own.
"""

import pathlib

import diskcache
import lmdb
import plyvel
import rocksdict

import pando

MAP_BYTES = 16 << 30


class Pando:
    """A map without transactions. No such map survives a power cut."""

    survives = ("kill",)
    has_writers = True

    def __init__(self, folder, is_synced, shared=False):
        self.pool = pando.Pool(folder / "pool", shared=shared, max_bytes=MAP_BYTES)
        self.map = self.pool.map("map")
        self.get = self.map.__getitem__
        self.put = self.map.__setitem__
        self.get_many = self.map.get_many
        self.put_many = self.map.put_many

    def close(self):
        self.pool.close()


class PandoTransactional:
    """A transactional map, with a log if writes are synced. One process may have it open."""

    survives = ("kill", "power")
    has_writers = False

    def __init__(self, folder, is_synced, shared=False):
        log = folder / "log" if is_synced else None
        self.pool = pando.Pool(folder / "pool", log=log, synced=is_synced, max_bytes=MAP_BYTES)
        self.map = self.pool.map("map", transactional=True)
        self.get = self.map.__getitem__
        self.put = self.map.__setitem__
        self.get_many = self.map.get_many
        self.put_many = self.map.update

    def close(self):
        self.pool.close()


class Lmdb:
    """Without syncs it has a map that can be written, which is its faster mode."""

    survives = ("kill", "power")
    has_writers = True

    def __init__(self, folder, is_synced, shared=False):
        self.environment = lmdb.open(
            str(folder / "lmdb"), map_size=MAP_BYTES, sync=is_synced, writemap=not is_synced
        )

    def get(self, key):
        with self.environment.begin() as transaction:
            return transaction.get(key)

    def put(self, key, value):
        with self.environment.begin(write=True) as transaction:
            transaction.put(key, value)

    def get_many(self, keys):
        with self.environment.begin() as transaction:
            return [value for _, value in transaction.cursor().getmulti(keys)]

    def put_many(self, records):
        with self.environment.begin(write=True) as transaction:
            transaction.cursor().putmulti(records)

    def close(self):
        self.environment.close()


class Rocksdict:
    """RocksDB. One process may have it open."""

    survives = ("kill", "power")
    has_writers = False

    def __init__(self, folder, is_synced, shared=False):
        self.database = rocksdict.Rdict(str(folder / "rocks"), rocksdict.Options(raw_mode=True))
        options = rocksdict.WriteOptions()
        options.sync = is_synced
        self.database.set_write_options(options)
        self.get = self.database.__getitem__
        self.put = self.database.__setitem__
        self.get_many = self.database.get

    def put_many(self, records):
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in records:
            batch.put(key, value)
        self.database.write(batch)

    def close(self):
        self.database.close()


class Plyvel:
    """LevelDB. One process may have it open. It has no call for several keys."""

    survives = ("kill", "power")
    has_writers = False

    def __init__(self, folder, is_synced, shared=False):
        self.database = plyvel.DB(str(folder / "level"), create_if_missing=True)
        self.get = self.database.get
        self.is_synced = is_synced

    def put(self, key, value):
        self.database.put(key, value, sync=self.is_synced)

    def get_many(self, keys):
        get = self.database.get
        return [get(key) for key in keys]

    def put_many(self, records):
        with self.database.write_batch(sync=self.is_synced) as batch:
            for key, value in records:
                batch.put(key, value)

    def close(self):
        self.database.close()


class Diskcache:
    """SQLite. It evicts nothing here, and has no call for several keys."""

    survives = ("kill", "power")
    has_writers = True

    def __init__(self, folder, is_synced, shared=False):
        self.cache = diskcache.Cache(
            str(folder / "cache"),
            timeout=600,
            size_limit=MAP_BYTES,
            eviction_policy="none",
            cull_limit=0,
            sqlite_synchronous=2 if is_synced else 0,
        )
        self.get = self.cache.get
        self.put = self.cache.set

    def get_many(self, keys):
        with self.cache.transact(retry=True):
            return [self.cache.get(key) for key in keys]

    def put_many(self, records):
        with self.cache.transact(retry=True):
            for key, value in records:
                self.cache.set(key, value)

    def close(self):
        self.cache.close()


PEERS = {
    "pando": Pando,
    "pando-transactional": PandoTransactional,
    "lmdb": Lmdb,
    "rocksdict": Rocksdict,
    "plyvel": Plyvel,
    "diskcache": Diskcache,
}


def opened(name, folder, failure, shared=False):
    """Opens the peer in a folder of its own, which is created."""
    folder = pathlib.Path(folder) / name
    folder.mkdir(parents=True, exist_ok=True)
    return PEERS[name](folder, failure == "power", shared)
