"""Pools and stores: files, transactions, snapshots, receipts, power safety."""

import gc
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import weakref

import pytest

import pando


def test_a_pool_is_opened_again(path):
    with pando.Pool(path, mode="x", max_bytes=64 << 20) as pool:
        assert pool.path == pathlib.Path(path)
        pool.map("trees", key=str)["ash"] = b"1"
        assert [found["name"] for found in pool.maps()] == ["trees"]
        assert pool.stat()["maps"][0]["records"] == 1
        assert pool.check()["problems"] == []
        with pytest.raises(pando.NoLogError):
            pool.sync()
        with pytest.raises(FileExistsError):
            pando.Pool(path, mode="x")
        with pytest.raises(pando.BusyError) as raised:
            pando.Pool(path)
        assert isinstance(raised.value, OSError)
    with pando.Pool(path) as pool:
        assert pool.open_map("trees", key=str)["ash"] == b"1"
        trees = pool.open_map("trees")
        with pytest.raises(pando.HandlesHeldError):
            pool.drop_map("trees")
        del trees
        pool.drop_map("trees")
        assert pool.maps() == []
    with pytest.raises(FileNotFoundError):
        pando.Pool(path + ".none", mode="r+")
    with pytest.raises(pando.OptionError):
        pando.Pool(path, mode="w")
    with pytest.raises(ValueError):
        pando.Pool(path, mode="r+", max_bytes=65 << 20)
    with open(path + ".text", "w") as file:
        file.write("no pool")
    with pytest.raises(pando.NotAPoolError):
        pando.Pool(path + ".text")


def test_a_subclass_that_holds_its_maps_is_collected(path):
    class Grove(pando.Pool):
        def __init__(self, *arguments, **options):
            self.trees = self.map("trees", key=str)

    grove = Grove(path)
    seen = weakref.ref(grove)
    del grove
    gc.collect()
    assert seen() is None
    # It is closed.
    pando.Pool(path, mode="r+").close()


def test_a_full_pool_raises_memory_error():
    with pando.Pool.volatile(max_bytes=1 << 20) as pool:
        numbers = pool.map("numbers", key=int)
        with pytest.raises(MemoryError) as raised:
            for n in range(1_000_000):
                numbers[n] = b"x" * 1000
        assert isinstance(raised.value, pando.FullError)
        assert numbers.remove_many(range(100)) == 100


def test_transactions(pool):
    accounts = pool.map("accounts", key=str, transactional=True)
    accounts["ash"] = b"70"
    with pool.transaction() as tx:
        tx.put(accounts, "elm", tx.get(accounts, "ash"))
        tx.remove(accounts, "ash")
        assert tx.scan(accounts) == [("elm", b"70")]
        assert tx.scan(accounts, limit=0) == [] and tx.get(accounts, "fir", 1) == 1
        assert accounts["ash"] == b"70"
    assert dict(accounts) == {"elm": b"70"}

    with pytest.raises(ZeroDivisionError):
        with pool.transaction() as tx:
            tx.put(accounts, "elm", b"0")
            1 / 0
    assert accounts["elm"] == b"70"

    with pytest.raises(pando.ConflictError):
        with pool.transaction() as tx:
            tx.put(accounts, "elm", tx.get(accounts, "elm") + b"1")
            accounts["elm"] = b"0"
    tx = pool.transaction(isolation="snapshot")
    tx.put(accounts, "elm", b"1")
    assert tx.commit() > 0
    with pytest.raises(pando.ClosedError):
        tx.commit()
    with pool.transaction() as tx:
        tx.put(accounts, "elm", b"2")
        tx.commit()
    with pool.transaction() as tx:
        tx.put(accounts, "elm", b"3")
        tx.abort()
    assert accounts["elm"] == b"2"
    with pytest.raises(pando.OptionError):
        pool.transaction(isolation="none")
    with pytest.raises(TypeError):
        pool.transaction().get(pool.map("plain", key=str), "a")


def test_a_pool_that_is_closed_inside_a_transaction_is_an_error(path):
    with pando.Pool(path) as pool:
        with pytest.raises(pando.ClosedError):
            with pool.transaction() as tx:
                tx.put(pool.map("accounts", key=str, transactional=True), "ash", b"1")
                pool.close()
    with pando.Pool(path) as pool:
        accounts = pool.map("accounts", key=str)
        assert len(accounts) == 0
        with pool.transaction() as tx:
            tx.put(accounts, "ash", b"1")
            tx.commit()
            pool.close()


def test_a_transaction_has_the_lsn_of_its_commit(tmp_path):
    with pando.Pool(tmp_path / "pool", log=tmp_path / "log") as pool:
        trees = pool.map("trees", key=str, transactional=True)
        with pool.transaction() as first:
            first.put(trees, "ash", b"1")
            assert first.lsn is None
        second = pool.transaction()
        second.put(trees, "elm", b"1")
        assert second.commit() == second.lsn > first.lsn > 0
        pool.sync_to(second.lsn)
        assert pool.durable_lsn >= second.lsn
        with pytest.raises(AttributeError):
            second.lsn = 1

        aborted, empty = pool.transaction(), pool.transaction()
        aborted.put(trees, "elm", b"2")
        aborted.abort()
        assert aborted.lsn is None and empty.commit() == empty.lsn == 0
        with pytest.raises(ZeroDivisionError):
            with pool.transaction() as failed:
                failed.put(trees, "elm", b"2")
                1 / 0
        with pytest.raises(pando.ConflictError):
            with pool.transaction() as conflicting:
                conflicting.put(trees, "elm", conflicting.get(trees, "elm") + b"2")
                trees["elm"] = b"3"
        assert failed.lsn is None and conflicting.lsn is None

        runs = []

        def change(tx):
            runs.append(tx)
            tx.put(trees, "elm", tx.get(trees, "elm") + b"4")
            if len(runs) == 1:
                trees["elm"] = b"5"
            return len(runs), tx

        result, tx = pool.run(change)
        assert (result, tx) == (2, runs[1]) and runs[0].lsn is None
        assert tx.lsn > second.lsn
    # It outlives the pool.
    assert tx.lsn > second.lsn > first.lsn


def test_a_conflict_runs_the_body_again(pool):
    counts = pool.map("counts", key=str, transactional=True)
    runs = []

    def count(tx):
        visits = int(tx.get(counts, "visits", b"0"))
        if not runs:
            counts["visits"] = b"10"
        runs.append(visits)
        tx.put(counts, "visits", b"%d" % (visits + 1))
        return visits + 1

    assert pool.run(count) == 11 and runs == [0, 10]
    with pytest.raises(ZeroDivisionError):
        pool.run(lambda tx: 1 / 0)


def test_snapshots(pool):
    trees = pool.map("trees", key=str, transactional=True)
    trees.update(ash=b"1", elm=b"2")
    with pool.snapshot() as before:
        trees["ash"] = b"3"
        del trees["elm"]
        assert before.get(trees, "ash") == b"1" and before.get(trees, "fir", 7) == 7
        scan = before.scan(trees, reverse=True)
    with pytest.raises(pando.ClosedError):
        before.get(trees, "ash")
    # The scan keeps what it reads.
    assert list(scan) == [("elm", b"2"), ("ash", b"1")]


def test_batches_and_receipts(pool):
    trees = pool.map("trees", key=str, transactional=True)
    batch = pando.WriteBatch().require(trees, "ash", None).put(trees, "ash", b"1")
    assert len(batch.remove(trees, "elm")) == 3
    session = pool.new_session()
    assert session.apply(1, batch) == session.apply(1, batch) == "applied"
    assert session.apply(2, batch) == "condition failed"
    again = pool.session(session.id)
    assert again.outcome(1) == "applied" and again.outcome(3) == "not applied"
    with pytest.raises(pando.SessionError):
        again.apply(3, batch)
    again.end()
    with pytest.raises(pando.SessionError):
        pool.session(session.id)
    with pytest.raises(pando.OptionError):
        pool.session("7")
    with pytest.raises(pando.ConditionFailedError) as raised:
        pool.write(batch)
    assert raised.value.key == b"ash"


def test_a_pool_with_a_log(tmp_path, monkeypatch):
    path, log = str(tmp_path / "pool"), str(tmp_path / "log")
    with pando.Pool(path, log=log) as pool:
        trees = pool.map("trees", key=str, transactional=True)
        trees["ash"] = b"1"
        assert pool.sync() <= pool.durable_lsn
        trees.synced()["elm"] = b"2"
        with pool.transaction() as tx:
            tx.put(trees, "fir", b"3")
            pool.sync_to(tx.commit(synced=True))
        pool.write_image()
        pool.backup(str(tmp_path / "backup"))
    os.remove(path)
    with pando.Pool(path, log=log) as pool:
        assert dict(pool.map("trees", key=str)) == {"ash": b"1", "elm": b"2", "fir": b"3"}
    monkeypatch.chdir(tmp_path)
    restored = pando.Pool.restore("backup", "other", log="other.log")
    with restored:
        assert len(restored.open_map("trees")) == 3
        pickled = pickle.dumps(restored)
    monkeypatch.chdir("/")
    with pickle.loads(pickled) as again:
        assert again.path == tmp_path / "other"


def test_a_store(tmp_path):
    with pando.Store(str(tmp_path / "store"), memory_bytes=16 << 20) as store:
        assert isinstance(store, pando.Pool)
        numbers = store.map("numbers", key=int)
        numbers.put_many((n, b"x" * 1000) for n in range(2000))
        store.sync()
        assert numbers[77] == b"x" * 1000 and len(list(numbers.scan(10, 20))) == 10
        with pytest.raises(pando.BusyError):
            pando.Store(str(tmp_path / "store"), memory_bytes=16 << 20)
    with pytest.raises(pando.OptionError):
        pando.Store(str(tmp_path / "small"), memory_bytes=1)


def test_a_store_is_opened_for_reading_alone(tmp_path):
    path = str(tmp_path / "store")
    for missing, mode in ((path, "r"), (path + "/store", "a")):
        with pytest.raises(FileNotFoundError) as raised:
            pando.Store(missing, mode=mode, memory_bytes=16 << 20)
        assert isinstance(raised.value, pando.PoolNotFoundError)
    with pando.Store(path, memory_bytes=16 << 20) as store:
        store.map("trees", key=str)["ash"] = b"1"

    def files():
        found = (tmp_path / "store").rglob("*")
        return {file: file.read_bytes() for file in found if file.is_file()}

    before = files()
    with (
        pando.Store(path, mode="r", memory_bytes=16 << 20) as store,
        pando.Store(path, mode="r", memory_bytes=16 << 20) as other,
    ):
        trees = store.open_map("trees", key=str)
        assert trees["ash"] == b"1" and other.open_map("trees", key=str)["ash"] == b"1"
        assert list(trees.scan()) == [("ash", b"1")] and len(trees) == 1
        with store.snapshot() as snapshot, store.transaction() as tx:
            assert snapshot.get(trees, "ash") == tx.get(trees, "ash") == b"1"
        assert store.check()["problems"] == [] and store.stat()["maps"][0]["name"] == "trees"
        writes = [
            lambda: trees.__setitem__("ash", b"2"),
            lambda: trees.update(elm=b"2"),
            lambda: trees.put_many({"elm": b"2"}),
            lambda: trees.pop("ash"),
            lambda: trees.clear(),
            lambda: store.run(lambda tx: tx.put(trees, "elm", b"2")),
            lambda: store.write(pando.WriteBatch().put(trees, "elm", b"2")),
            lambda: store.map("other"),
        ]
        for write in writes:
            with pytest.raises(pando.ReadOnlyError) as raised:
                write()
            assert isinstance(raised.value, PermissionError)
        with pytest.raises(pando.BusyError):
            pando.Store(path, memory_bytes=16 << 20)
        again = pickle.loads(pickle.dumps(trees))
        with pytest.raises(pando.ReadOnlyError):
            again["ash"] = b"2"
        again.pool.close()
    assert files() == before
    with pytest.raises(pando.OptionError, match="the mode"):
        pando.Store(path, mode="r+")


FULL_STORE = """
import pando, sys
store = pando.Store(sys.argv[1] + "/store", memory_bytes=16 << 20)
numbers = store.map("numbers", key=int)
try:
    for n in range(0, 1_000_000, 100):
        numbers.put_many((n + m, b"x" * 1000) for m in range(100))
except MemoryError as error:
    assert isinstance(error, pando.FullError), error
    print("full")
try:
    store.close()
except pando.FullError as error:
    print(error)
"""


def test_a_store_on_a_full_file_system_raises_memory_error(tmp_path):
    mounted = ["unshare", "-rm", "sh", "-ec", 'mount -t tmpfs -o size=64m tmpfs "$1"; shift; "$@"', ""]
    if subprocess.run([*mounted, tmp_path, "true"]).returncode != 0:
        assert "PANDO_REQUIRE" not in os.environ
        pytest.skip("this user may not mount a file system")
    command = [*mounted, tmp_path, sys.executable, "-c", FULL_STORE, tmp_path]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.returncode == 0 and told.stdout.startswith("full\n"), told


def test_a_damaged_page_of_a_store_is_an_error_of_its_own(tmp_path):
    path = tmp_path / "store"
    with pando.Store(path, memory_bytes=16 << 20) as store:
        numbers = store.map("numbers", key=int)
        numbers.put_many((n, b"x" * 1000) for n in range(10_000))
    for segment in (path / "pages").glob("segment-*"):
        damaged = bytearray(segment.read_bytes())
        for at in range(len(damaged) // 2, len(damaged), 1000):
            damaged[at] ^= 1
        segment.write_bytes(damaged)
    with pando.Store(path, mode="r", memory_bytes=16 << 20) as store:
        with pytest.raises(pando.DamagedError):
            list(store.map("numbers", key=int).values())


CLOSED_WITH_A_VIEW = """
import os, pando, signal, sys
pool = pando.Pool(sys.argv[1], log=sys.argv[2])
trees = pool.map("trees", key=str, transactional=True)
trees["aspen"] = b"x" * 5000
pin = pool.pin()
view = pin.get(trees, "aspen")
trees["ash"] = b"1"
pool.close()
assert pool.closed and view == b"x" * 5000
# All that is not in the log is lost.
os.remove(sys.argv[1])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_close_makes_durable_what_a_view_outlives(tmp_path):
    path, log = str(tmp_path / "pool"), str(tmp_path / "log")
    closed = subprocess.run([sys.executable, "-c", CLOSED_WITH_A_VIEW, path, log])
    assert closed.returncode == -signal.SIGKILL
    with pando.Pool(path, log=log) as pool:
        assert dict(pool.map("trees", key=str)) == {"ash": b"1", "aspen": b"x" * 5000}


WRITER = """
import pando, sys
numbers = pando.Pool(sys.argv[1]).map("numbers", key=int)
n = 0
while True:
    numbers[n] = b"x" * 100
    print(n, flush=True)
    n += 1
"""


def test_a_write_that_has_returned_survives_kill_9(path):
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE)
    last = -1
    for line in writer.stdout:
        last = int(line)
        if last == 2000:
            writer.send_signal(signal.SIGKILL)
            break
    for line in writer.stdout:
        last = int(line)
    writer.wait()
    with pando.Pool(path) as pool:
        numbers = pool.map("numbers", key=int)
        assert list(numbers)[: last + 1] == list(range(last + 1))
        assert pool.check()["problems"] == []
