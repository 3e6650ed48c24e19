"""Maps: the methods of a mutable mapping, and those of Pando."""

import asyncio
import collections.abc
import threading
import typing

import pytest

import pando


def test_a_map_is_a_mutable_mapping(pool):
    trees = pool.map("trees", key=str)
    assert isinstance(trees, collections.abc.MutableMapping)
    trees["oak"] = b"1"
    trees["ash"] = bytearray(b"2")
    trees["elm"] = memoryview(b"3")
    assert list(trees) == ["ash", "elm", "oak"]
    assert list(reversed(trees)) == ["oak", "elm", "ash"]
    assert dict(trees) == dict(trees.items()) == {"ash": b"2", "elm": b"3", "oak": b"1"}
    assert list(trees.values()) == [b"2", b"3", b"1"]
    assert "ash" in trees.keys() and list(trees.keys()) == list(trees)
    assert trees.get("fir") is None and trees.get("fir", 7) == 7
    with pytest.raises(pando.KeyNotFoundError) as raised:
        trees["fir"]
    assert raised.value.args == ("fir",) and isinstance(raised.value, KeyError)
    del trees["ash"]
    with pytest.raises(KeyError):
        del trees["ash"]
    assert trees.setdefault("elm", b"4") == b"3" and trees.setdefault("fir", b"4") == b"4"
    assert trees.pop("fir") == b"4" and trees.pop("fir", None) is None
    with pytest.raises(KeyError):
        trees.pop("fir")
    assert trees.popitem() == ("oak", b"1") and trees.popfirst() == ("elm", b"3")
    with pytest.raises(KeyError):
        trees.popitem()
    trees.update({"a": b"1"}, b=b"2")
    trees.update([("c", b"3")])
    assert len(trees) == 3 and bool(trees)
    trees.clear()
    assert len(trees) == 0 and not trees
    match trees:
        case {}:
            pass
        case _:
            raise AssertionError("a map is a mapping for match")


def test_values_and_arguments_are_checked(pool):
    trees = pool.map("trees", key=str)
    for wrong in (None, 1, "text", [1]):
        with pytest.raises(TypeError, match="a value is bytes"):
            trees["a"] = wrong
    with pytest.raises(TypeError):
        trees.update([("a", b"1", b"2")])
    with pytest.raises(TypeError):
        trees.pop("a", 1, 2)
    with pytest.raises(pando.OptionError):
        trees.scan("a", prefix="b")
    with pytest.raises(pando.LengthError, match="longer than"):
        trees["a" * 40_000] = b""
    with pytest.raises(TypeError):
        pool.map("trees", key=list)
    with pytest.raises(pando.MapDiffersError):
        pool.map("trees", index="skiplist")
    with pytest.raises(pando.OptionError):
        pool.map("x", index="nothing")
    with pytest.raises(KeyError):
        pool.open_map("none")


def test_calls_of_pando(pool):
    trees = pool.map("trees", key=str)
    trees.insert("ash", b"1")
    with pytest.raises(pando.KeyExistsError) as raised:
        trees.insert("ash", b"2")
    assert isinstance(raised.value, KeyError) and "already there" in str(raised.value)
    trees.replace("ash", b"2")
    with pytest.raises(pando.KeyNotFoundError):
        trees.replace("elm", b"2")
    assert trees.swap("ash", b"3") == b"2" and trees.swap("elm", b"4") is None
    trees.compare_exchange("ash", b"3", b"5")
    with pytest.raises(pando.ValueMismatchError) as raised:
        trees.compare_exchange("ash", b"3", b"6")
    assert raised.value.actual == b"5"
    trees.compare_remove("ash", b"5")
    assert trees.first() == trees.last() == ("elm", b"4")
    assert trees.limits == (32 << 10, 1 << 30) and trees.name == "trees" and trees.pool is pool


@pytest.mark.parametrize("count", [10, 1000])
def test_batches(pool, count):
    numbers = pool.map("numbers", key=int)
    numbers.put_many({n: b"%d" % n for n in range(count)})
    numbers.put_many((n, b"x") for n in range(0, count, 2))
    wanted = [b"x" if n % 2 == 0 else b"%d" % n for n in range(count)]
    assert numbers.get_many([*range(count), -1]) == [*wanted, None]
    assert numbers.remove_many(range(-5, 5)) == 5
    assert len(numbers) == count - 5


def test_scans(pool):
    numbers = pool.map("numbers", key=int)
    numbers.put_many((n, b"") for n in range(-500, 500))
    assert [n for n, _ in numbers.scan()] == list(range(-500, 500))
    assert [n for n, _ in numbers.scan(-3, 4)] == list(range(-3, 4))
    assert [n for n, _ in numbers.scan(stop=-498, reverse=True)] == [-499, -500]
    # A scan goes on beside writes.
    scan = numbers.scan(0)
    assert next(scan)[0] == 0
    del numbers[1]
    assert next(scan)[0] in (1, 2)
    with pytest.raises(TypeError, match="no prefixes"):
        numbers.scan(prefix=1)


def test_update_is_one_commit_in_a_transactional_map(pool):
    trees = pool.map("trees", key=str, transactional=True)
    with pytest.raises(TypeError):
        trees.update({"a": b"1", "b": 2})
    assert len(trees) == 0
    trees.update({"a": b"1", "b": b"2", "c": b"3"})
    assert len(trees) == 3
    assert trees.popitem() == ("c", b"3")
    trees.clear()
    assert list(trees) == []


@pytest.mark.parametrize("transactional", [False, True])
def test_a_record_whose_key_does_not_decode_stays(pool, transactional):
    plain = pool.map("numbers", transactional=transactional)
    plain.update({b"short": b"1"})
    numbers = pool.map("numbers", key=int)
    for pop in (numbers.popitem, numbers.popfirst):
        with pytest.raises(pando.KeyTypeError):
            pop()
    assert dict(plain) == {b"short": b"1"}
    assert plain.popitem() == (b"short", b"1")
    with pytest.raises(KeyError):
        plain.popfirst()


def test_a_closed_pool_closes_all_of_its_objects():
    pool = pando.Pool.volatile()
    trees = pool.map("trees", key=str, transactional=True)
    trees["ash"] = b"1"
    scan, snapshot, transaction = trees.scan(), pool.snapshot(), pool.transaction()
    session, other = pool.new_session(), pando.Pool.volatile()
    batch = pando.WriteBatch().put(trees, "ash", b"2")
    assert not pool.closed
    pool.close()
    pool.close()
    assert pool.closed
    uses = [
        lambda: trees["ash"],
        lambda: next(scan),
        lambda: snapshot.get(trees, "ash"),
        lambda: transaction.get(trees, "ash"),
        lambda: session.outcome(1),
        lambda: pool.map("trees"),
        lambda: pool.stat(),
        lambda: other.write(batch),
    ]
    for use in uses:
        with pytest.raises(pando.ClosedError):
            use()
    snapshot.close()
    transaction.abort()


def test_threads_write_at_once_and_a_close_waits_for_them():
    pool = pando.Pool.volatile()
    numbers = pool.map("numbers", key=int)
    seen = []

    def write(first):
        try:
            for n in range(first, first + 100_000):
                numbers.put_many([(n, b"x")] * 64)
        except pando.ClosedError:
            seen.append(first)

    threads = [threading.Thread(target=write, args=(n * 1_000_000,)) for n in range(4)]
    for thread in threads:
        thread.start()
    while len(numbers) < 8:
        pass
    pool.close()
    for thread in threads:
        thread.join()
    assert len(seen) == 4


def test_asyncio_uses_threads(pool):
    numbers = pool.map("numbers", key=int)

    async def write():
        writes = [asyncio.to_thread(numbers.__setitem__, n, b"%d" % n) for n in range(100)]
        await asyncio.gather(*writes)
        return await asyncio.to_thread(numbers.get_many, range(100))

    assert asyncio.run(write()) == [b"%d" % n for n in range(100)]


def test_annotations_name_the_types_at_run_time():
    def visit(trees: pando.Map[str], records: pando.Scan[tuple[str, bytes]]) -> None: ...

    hints = typing.get_type_hints(visit)
    assert typing.get_origin(hints["trees"]) is pando.Map
    assert typing.get_args(hints["trees"]) == (str,)
    assert typing.get_origin(hints["records"]) is pando.Scan
    assert typing.get_args(hints["records"]) == (tuple[str, bytes],)
