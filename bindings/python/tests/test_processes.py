"""Several processes: forks, spawns, pickles, and workers of gunicorn that are killed."""

import gc
import json
import multiprocessing
import os
import pathlib
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

import pando

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def in_child(body):
    """Runs body in a forked child, which must end in order."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            body()
            status = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("kind", ["alone", "shared", "log", "store", "volatile"])
def test_a_forked_child_uses_nothing_of_its_parent(kind, tmp_path):
    path = str(tmp_path / "pool")
    if kind == "volatile":
        pool = pando.Pool.volatile()
    elif kind == "store":
        pool = pando.Store(path, memory_bytes=16 << 20)
    else:
        log = path + ".log" if kind == "log" else None
        pool = pando.Pool(path, shared=kind == "shared", log=log)
    held = {"pool": pool, "map": pool.map("map", key=str)}
    held["map"]["ash"] = b"1"
    held["scan"] = held["map"].scan()
    held["pin"] = pool.pin()
    held["view"] = held["pin"].get(held["map"], "ash")
    if kind in ("log", "store"):
        held["snapshot"] = pool.snapshot()
        held["transaction"] = pool.transaction()
        held["session"] = pool.new_session()

    def child():
        uses = [
            lambda: held["map"]["ash"],
            lambda: held["map"].__setitem__("elm", b"2"),
            lambda: next(held["scan"]),
            lambda: held["pool"].map("map"),
            lambda: held["pool"].stat(),
            lambda: held["pool"].transaction(),
            lambda: held["pool"].pin(),
            lambda: held["pin"].get(held["map"], "ash"),
            lambda: memoryview(held["view"].obj),
        ]
        if "snapshot" in held:
            uses.append(lambda: held["snapshot"].get(held["map"], "ash"))
            uses.append(lambda: held["transaction"].put(held["map"], "ash", b"3"))
            uses.append(lambda: held["session"].outcome(1))
        for use in uses:
            with pytest.raises(pando.ForkError):
                use()
        assert held["pool"].closed
        held["pool"].close()
        if kind == "shared":
            with pando.Pool(path, shared=True) as own:
                assert own.map("map", key=str)["ash"] == b"1"
                own.map("map", key=str)["child"] = b"2"
        # Collecting them touches nothing.
        held.clear()
        nonlocal pool
        pool = None
        gc.collect()

    in_child(child)
    assert held["map"]["ash"] == b"1"
    held["map"]["elm"] = b"2"
    if kind == "shared":
        assert held["map"]["child"] == b"2"
    assert list(held["scan"])
    assert held.pop("view") == b"1"
    held.pop("pin").close()
    pool.close()
    if kind not in ("volatile", "store"):
        with pando.Pool(path) as pool:
            assert pool.check()["problems"] == []


def count(pool, map, first):
    """The work of a process that got a pool or a map as a pickle."""
    assert map.pool is not None
    for n in range(first, first + 500):
        map[n] = b"%d" % os.getpid()
    return len(list(pool.map("numbers", key=int).scan(first, first + 500)))


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_pools_and_maps_pass_to_processes(start, path):
    context = multiprocessing.get_context(start)
    with pando.Pool(path, shared=True) as pool:
        numbers = pool.map("numbers", key=int)
        with context.Pool(2) as workers:
            work = [(pool, numbers, first * 1000) for first in range(4)]
            assert workers.starmap(count, work) == [500] * 4
        assert len(numbers) == 2000


def test_pickles(path, tmp_path):
    with pando.Pool(path, shared=True) as pool:
        again = pickle.loads(pickle.dumps(pool.map("cities", key=tuple[str, int])))
        again["a", 1] = b"1"
        assert again.key_type == "(string,i64)" and again.pool is not pool
        assert pool.map("cities", key=tuple[str, int])["a", 1] == b"1"
        again.pool.close()
    logged = pando.Pool(path + ".logged", log=path + ".log")
    trees = logged.map("trees", transactional=True)
    pickled = pickle.dumps([trees, trees.synced()])
    logged.close()
    plain, synced = pickle.loads(pickled)
    assert [map.__reduce__()[1][-1] for map in (plain, synced)] == [False, True]
    synced[b"ash"] = b"1"
    assert plain[b"ash"] == b"1"
    plain.pool.close()
    store = pando.Store(str(tmp_path / "store"), memory_bytes=16 << 20)
    pickled = pickle.dumps(store)
    with pytest.raises(pando.BusyError):
        pickle.loads(pickled)
    store.close()
    with pickle.loads(pickled) as again:
        assert isinstance(again, pando.Store)
    with pytest.raises(TypeError):
        pickle.dumps(pando.Pool.volatile())


APPLICATION = """
import os, pando
import session_cache

# With --preload this is the master. Its pool is of no use in the workers.
preloaded = pando.Pool(os.environ["POOL"], shared=True)
preloaded.map("preloaded", key=str)["master"] = b"%d" % os.getpid()
session_cache.cache.change("master", session_cache.visit)

def application(environ, start_response):
    try:
        preloaded.map("preloaded")
    except pando.ForkError:
        return session_cache.application(environ, start_response)
    raise AssertionError("a worker uses the pool of the master")
"""


def ask(port, session):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/", headers={"Cookie": f"session={session}"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        pid, visits = answer.read().split()
    return int(pid), int(visits)


def test_workers_of_gunicorn_share_a_pool_and_one_is_killed(path, tmp_path):
    pytest.importorskip("gunicorn")
    (tmp_path / "application.py").write_text(APPLICATION)
    shutil.copy(EXAMPLES / "session_cache.py", tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "--preload", "-w", "3", "-b", f"127.0.0.1:{port}"]
        + ["--log-level", "warning", "application:application"],
        cwd=tmp_path,
        env={**os.environ, "POOL": path, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    try:
        for _ in range(600):
            try:
                ask(port, "first")
                break
            except OSError:
                assert server.poll() is None
                time.sleep(0.1)
        answered, killed, last = 0, set(), 0
        while answered < 300:
            try:
                pid, last = ask(port, "counted")
                answered += 1
            except OSError:
                continue
            if answered in (50, 150) and pid not in killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        # A worker that was killed may have counted a request that it did not answer.
        assert 300 <= last <= 300 + len(killed) and killed
    finally:
        server.terminate()
        server.wait()
    with pando.Pool(path) as pool:
        sessions = pool.map("sessions", key=str)
        assert json.loads(sessions["counted"])["visits"] == last
        assert json.loads(sessions["master"])["visits"] == 1
        assert pool.check()["problems"] == []


def test_sessions_of_the_example_expire(path, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import session_cache

    cache = session_cache.SessionCache(path)
    monkeypatch.setattr(session_cache, "MAX_AGE_S", -1.0)
    cache.change("old", session_cache.visit)
    monkeypatch.setattr(session_cache, "MAX_AGE_S", 3600.0)
    assert cache.change("new", session_cache.visit) == {"visits": 1}
    assert cache.change("new", session_cache.visit)["visits"] == 2
    cache.expire()
    assert cache.change("old", session_cache.visit) == {"visits": 1}
    assert cache.change("new", session_cache.visit)["visits"] == 3
