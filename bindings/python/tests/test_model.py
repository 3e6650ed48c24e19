"""A map beside a dict: random calls have the same answers."""

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import pando

KEYS = st.text(alphabet="ab\0\u00e9", max_size=4)
VALUES = st.binary(max_size=40)


class Model(RuleBasedStateMachine):
    @initialize(
        transactional=st.booleans(), index=st.sampled_from(["bztree", "skiplist", "wbtree"])
    )
    def begin(self, transactional, index):
        self.pool = pando.Pool.volatile(max_bytes=64 << 20)
        self.map = self.pool.map("map", key=str, index=index, transactional=transactional)
        self.model = {}

    @rule(key=KEYS, value=VALUES)
    def put(self, key, value):
        self.map[key] = value
        self.model[key] = value

    @rule(key=KEYS)
    def get(self, key):
        assert self.map.get(key) == self.model.get(key)
        assert (key in self.map) == (key in self.model)

    @rule(key=KEYS)
    def pop(self, key):
        assert self.map.pop(key, None) == self.model.pop(key, None)

    @rule(key=KEYS, value=VALUES)
    def setdefault(self, key, value):
        assert self.map.setdefault(key, value) == self.model.setdefault(key, value)

    @rule(key=KEYS, value=VALUES)
    def swap(self, key, value):
        assert self.map.swap(key, value) == self.model.get(key)
        self.model[key] = value

    @rule(key=KEYS, expected=VALUES, value=VALUES, right=st.booleans())
    def compare(self, key, expected, value, right):
        if right:
            expected = self.model.get(key, expected)
        try:
            self.map.compare_exchange(key, expected, value)
        except pando.KeyNotFoundError:
            assert key not in self.model
        except pando.ValueMismatchError as error:
            assert error.actual == self.model[key] != expected
        else:
            assert self.model[key] == expected
            self.model[key] = value

    @rule(records=st.dictionaries(KEYS, VALUES, max_size=100), many=st.booleans())
    def update(self, records, many):
        (self.map.put_many if many else self.map.update)(records)
        self.model.update(records)

    @precondition(lambda self: self.model)
    @rule(last=st.booleans())
    def popitem(self, last):
        key = (max if last else min)(self.model)
        assert (self.map.popitem if last else self.map.popfirst)() == (key, self.model.pop(key))

    @rule(start=st.none() | KEYS, stop=st.none() | KEYS, reverse=st.booleans())
    def scan(self, start, stop, reverse):
        wanted = [
            record
            for record in sorted(self.model.items())
            if (start is None or start <= record[0]) and (stop is None or record[0] < stop)
        ]
        found = list(self.map.scan(start, stop, reverse=reverse))
        assert found == (wanted[::-1] if reverse else wanted)

    @rule(prefix=KEYS)
    def prefix(self, prefix):
        wanted = [record for record in sorted(self.model.items()) if record[0].startswith(prefix)]
        assert list(self.map.scan(prefix=prefix)) == wanted

    @rule(keys=st.lists(KEYS, max_size=100))
    def many(self, keys):
        assert self.map.get_many(keys) == [self.model.get(key) for key in keys]

    @rule()
    def clear(self):
        self.map.clear()
        self.model.clear()

    @invariant()
    def has_the_same_records(self):
        if hasattr(self, "map"):
            assert list(self.map.items()) == sorted(self.model.items())
            assert len(self.map) == len(self.model) and bool(self.map) == bool(self.model)

    def teardown(self):
        if hasattr(self, "pool"):
            assert self.pool.check()["problems"] == []
            self.pool.close()


Model.TestCase.settings = hypothesis.settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
test_a_map_behaves_as_a_dict = Model.TestCase
