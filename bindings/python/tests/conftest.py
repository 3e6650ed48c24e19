import pathlib

import pytest

import pando


@pytest.fixture
def pool():
    with pando.Pool.volatile(max_bytes=256 << 20) as pool:
        yield pool


@pytest.fixture
def path(tmp_path: pathlib.Path) -> str:
    return str(tmp_path / "pool")
