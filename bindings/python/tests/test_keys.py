"""Typed keys: the vectors that all languages share, and refused keys."""

import datetime
import math
import os
import pathlib
import struct
import uuid

import pytest

import pando

UTC = datetime.timezone.utc
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
VECTORS = pathlib.Path(
    os.environ.get("PANDO_VECTORS")
    or pathlib.Path(__file__).parents[3] / "crates/pando/tests/fixtures/typed-keys.tsv"
)


def value_of(kind, text):
    """The object that a column of the vectors means."""
    if kind.startswith("("):
        kinds = kind[1:-1].split(",")
        return tuple(value_of(kind, part) for kind, part in zip(kinds, text.split(";")))
    if kind.startswith("option("):
        return None if text == "none" else value_of(kind[7:-1], text)
    if kind == "string":
        return bytes.fromhex(text).decode()
    if kind == "bytes":
        return bytes.fromhex(text)
    if kind == "uuid":
        return uuid.UUID(text)
    if kind == "bool":
        return text == "1"
    if kind == "char":
        return chr(int(text))
    if kind == "time_ns":
        seconds, nanoseconds = map(int, text.split(";"))
        return seconds * 10**9 + nanoseconds
    if kind == "f32":
        return struct.unpack("f", struct.pack("f", float(text)))[0]
    if kind == "f64":
        return float(text)
    return int(text)


def lines():
    for line in VECTORS.read_text().splitlines():
        if not line.startswith("#"):
            yield line.split("\t")


def test_keys_have_the_bytes_of_the_test_vectors(pool):
    seen = 0
    last = {}
    for kind, text, whole, _ in lines():
        seen += 1
        python = "time_ns" if kind == "time" else kind
        typed = pool.map(kind, key=python)
        plain = pool.map(kind)
        if text == "refused":
            key = bytes.fromhex(whole)
            plain[key] = b""
            with pytest.raises((pando.KeyTypeError, OverflowError)):
                list(typed)
            del plain[key]
            continue
        value = value_of(python, text)
        if whole == "refused":
            with pytest.raises(ValueError):
                typed[value] = b""
            continue
        typed[value] = b""
        assert plain[bytes.fromhex(whole)] == b"", (kind, text)
        assert value in typed
        if text != "-0.0":
            last.setdefault(kind, []).append(value)
            assert list(typed) == last[kind], (kind, text)
    assert seen > 200


def test_elements_of_tuples_have_the_bytes_of_the_test_vectors(pool):
    for kind, text, whole, element in lines():
        if "refused" in (text, whole):
            continue
        python = "time_ns" if kind == "time" else kind
        typed = pool.map("tuples", key=f"({python},u8)")
        key = (value_of(python, text), 7)
        typed[key] = b""
        assert list(pool.map("tuples")) == [bytes.fromhex(element) + b"\x07"], (kind, text)
        if text != "-0.0":
            assert list(typed) == [key] and typed.pop(key) == b""
        else:
            typed.clear()


def test_python_types_name_types_of_keys(pool):
    names = {
        bytes: "bytes",
        str: "string",
        int: "i64",
        float: "f64",
        bool: "bool",
        uuid.UUID: "uuid",
        datetime.datetime: "time",
        tuple[str, int]: "(string,i64)",
        int | None: "option(i64)",
        tuple[str, tuple[int, bytes | None]]: "(string,(i64,option(bytes)))",
        "( u8, option(string) )": "(u8,option(string))",
    }
    for number, (kind, name) in enumerate(names.items()):
        assert pool.map(f"map {number}", key=kind).key_type == name
    for wrong in (list, "u7", "(u8", "u8)", "", tuple[list], int | str, 7, list[int]):
        with pytest.raises(TypeError, match="the type of keys"):
            pool.map("wrong", key=wrong)


def test_types_of_keys_are_not_too_deep(pool):
    def nested(levels):
        return "(" * levels + "u8" + ")" * levels

    assert pool.map("deep", key=nested(63)).key_type == nested(63)
    alias = int
    for _ in range(64):
        alias = tuple[alias]
    for deep in (nested(64), nested(1_000_000), "option(" * 1_000_000, alias):
        with pytest.raises(TypeError, match="the type of keys"):
            pool.map("wrong", key=deep)


def test_numbers_that_have_no_key_are_refused(pool):
    integers = pool.map("integers", key=int)
    for wrong in (2**63, -(2**63) - 1, 10**40):
        with pytest.raises(OverflowError, match="outside the range"):
            integers[wrong] = b""
    for wrong in (True, False, 1.0, "1", None):
        with pytest.raises(TypeError):
            integers[wrong] = b""
    floats = pool.map("floats", key=float)
    with pytest.raises(ValueError, match="NaN"):
        floats[math.nan] = b""
    with pytest.raises(ValueError):
        math.nan in floats
    with pytest.raises(TypeError):
        floats[True] = b""
    floats[-0.0] = b"zero"
    assert floats[0.0] == floats[0] == b"zero"
    with pytest.raises(pando.KeyTypeError):
        pool.map("short", key="f32")[0.1] = b""
    with pytest.raises(OverflowError):
        pool.map("bytes", key="u8")[256] = b""
    with pytest.raises(pando.KeyTypeError):
        pool.map("pairs", key=tuple[int, int])[(1,)] = b""
    with pytest.raises(UnicodeEncodeError):
        pool.map("text", key=str)["\ud800"] = b""


def test_times_are_aware_and_have_microseconds(pool):
    times = pool.map("times", key=datetime.datetime)
    berlin = datetime.timezone(datetime.timedelta(hours=2))
    first = datetime.datetime(2026, 7, 1, 14, 30, 0, 123456, tzinfo=berlin)
    times[first] = b"1"
    times[EPOCH - datetime.timedelta(microseconds=1)] = b"0"
    assert times[first.astimezone(UTC)] == b"1"
    assert list(times) == [EPOCH - datetime.timedelta(microseconds=1), first]
    assert list(times)[1].tzinfo is UTC
    with pytest.raises(ValueError, match="time zone"):
        times[datetime.datetime(2026, 7, 1)] = b""
    with pytest.raises(TypeError):
        times[datetime.date(2026, 7, 1)] = b""
    pool.map("times", key="time_ns")[1] = b"a nanosecond"
    with pytest.raises(pando.KeyTypeError, match="time_ns"):
        list(times)


def test_prefixes_of_tuples(pool):
    visits = pool.map("visits", key=tuple[str, int, str])
    visits.update({("/", 2026, "a"): b"", ("/", 2027, "b"): b"", ("/about", 2026, "c"): b""})
    assert [key for key, _ in visits.scan(prefix=("/",))] == [("/", 2026, "a"), ("/", 2027, "b")]
    assert [key for key, _ in visits.scan(prefix=("/", 2027))] == [("/", 2027, "b")]
    assert len(list(visits.scan(prefix=()))) == 3
    with pytest.raises(pando.KeyTypeError):
        visits.scan(prefix=("/", 1, "a", 2))
