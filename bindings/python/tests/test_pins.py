"""Values as views: they never show other bytes, whatever is closed, and whoever writes."""

import gc
import sys
import threading

import pytest

import pando

LONG = b"x" * 5000


@pytest.fixture
def trees(pool):
    trees = pool.map("trees", key=str)
    trees.update({"aspen": LONG, "ash": b"12345678", "elm": b""})
    return trees


def test_a_view_is_a_memoryview_that_cannot_be_written(pool, trees):
    with pool.pin() as pin:
        view = pin.get(trees, "aspen")
        assert type(view) is memoryview and view.readonly and view == LONG
        assert view.format == "B" and view.contiguous and len(view) == 5000
        with pytest.raises(TypeError):
            view[0] = 1
        assert pin.get(trees, "ash") == b"12345678" and pin.get(trees, "elm") == b""
        assert pin.get(trees, "oak") is None and pin.get(trees, "oak", 7) == 7
        with pytest.raises(TypeError):
            pin.get(trees, 7)
        del view


def test_a_view_stays_while_others_write(pool, trees):
    with pool.pin() as pin, pin.get(trees, "aspen") as view:

        def write():
            for n in range(300):
                trees["aspen"] = b"%d" % n * 2000
            del trees["aspen"]
            trees.update({f"tree {n}": b"y" * 5000 for n in range(300)})

        writer = threading.Thread(target=write)
        writer.start()
        writer.join()
        assert "aspen" not in trees and view == LONG


def test_a_view_at_the_end_raises_a_buffer_error_and_stays_valid(pool, trees):
    with pytest.raises(BufferError, match="^1 view of the pin is alive"):
        with pool.pin() as pin:
            view = pin.get(trees, "aspen")
    trees.update({key: b"y" * 5000 for key in trees})
    trees.update({f"tree {n}": b"z" * 5000 for n in range(300)})
    assert view == LONG
    with pytest.raises(BufferError, match="^2 views of the pin are alive"):
        with pool.pin() as pin:
            views = pin.get(trees, "ash"), pin.get(trees, "elm")
    assert views[0] == b"y" * 5000


def test_a_view_of_a_view_counts(pool, trees):
    with pytest.raises(BufferError):
        with pool.pin() as pin:
            with pin.get(trees, "aspen") as view:
                part = view[10:20]
                part = memoryview(part)
                assert part.obj is view.obj
                view = None
    assert part == b"x" * 10
    # What is behind it can be asked for another view, which is valid as well.
    del trees["aspen"]
    trees.update({f"tree {n}": b"z" * 5000 for n in range(300)})
    assert memoryview(part.obj) == LONG


def test_what_is_behind_a_view_counts(pool, trees):
    with pytest.raises(BufferError):
        with pool.pin() as pin:
            value = pin.get(trees, "aspen").obj
    assert memoryview(value) == LONG


def test_the_error_of_a_view_replaces_no_other(pool, trees):
    class Mine(BaseException):
        pass

    with pytest.raises(Mine):
        with pool.pin() as pin:
            view = pin.get(trees, "aspen")
            raise Mine
    assert view == LONG
    with pytest.raises(pando.ClosedError):
        pin.get(trees, "aspen")


def test_views_that_are_released_or_collected_raise_nothing(pool, trees):
    with pool.pin() as pin:
        view = pin.get(trees, "aspen")
        view.release()
        with pytest.raises(ValueError):
            view[0]
        pin.get(trees, "aspen")
        cycle = [pin.get(trees, "ash")]
        cycle.append(cycle)
        del cycle
        gc.collect()
    with pytest.raises(pando.ClosedError):
        pin.get(trees, "aspen")
    pin.close()


def test_close_ends_a_pin(pool, trees):
    pin = pool.pin()
    view = pin.get(trees, "aspen")
    with pytest.raises(BufferError):
        pin.close()
    with pytest.raises(pando.ClosedError):
        pin.get(trees, "aspen")
    assert view == LONG
    view.release()
    pin.close()


def test_a_view_outlives_all_handles(path):
    pool = pando.Pool(path)
    trees = pool.map("trees", key=str)
    trees["aspen"] = LONG
    pin = pool.pin()
    view = pin.get(trees, "aspen")
    with pytest.raises(pando.HandlesHeldError):
        pool.drop_map("trees")
    pool.close()
    with pytest.raises(pando.ClosedError):
        pin.get(trees, "aspen")
    with pytest.raises(pando.BusyError):
        pando.Pool(path)
    del pool, trees, pin
    gc.collect()
    assert view == LONG
    view.release()
    with pando.Pool(path) as pool:
        assert pool.map("trees", key=str)["aspen"] == LONG


def test_the_pool_uses_the_memory_again_after_the_views():
    with pando.Pool.volatile(max_bytes=16 << 20) as pool:
        trees = pool.map("trees", key=str)

        def fill():
            for n in range(1000):
                trees["aspen"] = bytes([n % 256]) * 100_000

        fill()
        with pool.pin() as pin, pin.get(trees, "aspen") as view:
            first = view[0]
            with pytest.raises(pando.FullError):
                fill()
            assert view == bytes([first]) * 100_000
        fill()


def test_a_view_is_used_in_other_threads(pool, trees):
    seen = []
    with pool.pin() as pin:

        def read():
            with pin.get(trees, "aspen") as view:
                seen.append(bytes(view))

        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        view = pin.get(trees, "aspen")
        releasing = threading.Thread(target=view.release)
        releasing.start()
        releasing.join()
    assert seen == [LONG] * 8


def test_pins_of_a_store_and_of_transactional_maps(tmp_path, pool):
    fir = pool.map("fir", key=int, transactional=True)
    fir[1] = LONG
    with pool.pin() as pin, pin.get(fir, 1) as view:
        fir[1] = b"y"
        assert view == LONG
    with pando.Store(str(tmp_path / "store"), memory_bytes=16 << 20) as store:
        fir = store.map("fir", key=int)
        fir[1] = LONG
        with store.pin() as pin, pin.get(fir, 1) as view:
            fir[1] = b"y"
            assert view == LONG


def test_a_pin_takes_the_maps_of_its_pool(pool, trees):
    with pando.Pool.volatile() as other, other.pin() as pin:
        with pytest.raises(pando.NotTransactionalError):
            pin.get(trees, "aspen")


def test_a_pin_counts_no_references(pool, trees):
    with pool.pin() as pin:
        view = pin.get(trees, "aspen")
        value = view.obj
        before = sys.getrefcount(value)
        second = memoryview(value)
        assert sys.getrefcount(value) == before + 1
        second.release()
        assert sys.getrefcount(value) == before
        view.release()
        # It counts as a view.
        del value
