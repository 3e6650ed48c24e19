"""Everyday use of a memcached server by pymemcache; the first argument is the port."""

import sys
import threading

from pymemcache import serde
from pymemcache.client.base import Client, PooledClient
from pymemcache.exceptions import MemcacheIllegalInputError, MemcacheServerError

address = ("127.0.0.1", int(sys.argv[1]))
client = Client(address, default_noreply=False, timeout=10)

assert client.version() == b"1.6.18"
assert client.flush_all()

# Values.
assert client.set("oak", b"tree", flags=7)
assert client.get("oak") == b"tree"
assert client.get("elm") is None
assert not client.add("oak", b"other")
assert client.add("elm", b"1")
assert client.replace("elm", b"2")
assert not client.replace("ash", b"2")
assert client.append("elm", b"3") and client.prepend("elm", b"1")
assert client.get("elm") == b"123"
assert client.get_many(["oak", "elm", "ash"]) == {"oak": b"tree", "elm": b"123"}
assert client.set_many({f"key{number}": str(number) for number in range(500)}) == []
assert len(client.get_many([f"key{number}" for number in range(500)])) == 500
assert client.delete("oak") and not client.delete("oak")

# cas.
value, cas = client.gets("elm")
assert client.cas("elm", b"new", cas) is True
assert client.cas("elm", b"newer", cas) is False
assert client.cas("ash", b"x", cas) is None

# Counters.
client.set("count", "10")
assert client.incr("count", 5) == 15
assert client.decr("count", 100) == 0
assert client.incr("nothing", 1) is None

# Times.
assert client.set("short", b"x", expire=-1)
assert client.get("short") is None
assert client.touch("elm", 100) and not client.touch("ash", 100)
assert client.raw_command("gat 100 elm", "END\r\n") == b"VALUE elm 0 3\r\nnew\r\n"

# Bytes of every kind, and the longest value.
everything = bytes(range(256)) * 16
assert client.set("bytes", everything) and client.get("bytes") == everything
longest = b"\r\n" * 524_000
assert client.set("long", longest) and client.get("long") == longest
try:
    client.set("long", b"x" * (1 << 20))
    raise AssertionError("the server accepted a value of 1 MiB")
except MemcacheServerError as error:
    assert b"too large" in error.args[0], error
assert client.get("long") is None
try:
    client.get("with space")
    raise AssertionError("the client accepted a key with a space")
except MemcacheIllegalInputError:
    pass

# Python objects, with flags.
pickling = Client(address, serde=serde.pickle_serde, timeout=10)
pickling.set("object", {"a": [1, 2, 3]})
assert pickling.get("object") == {"a": [1, 2, 3]}

# No reply, then one.
quiet = Client(address, default_noreply=True, timeout=10)
for number in range(1000):
    quiet.set(f"quiet{number}", b"x")
assert quiet.get("quiet999") == b"x"

# Meta commands, sent as text.
assert client.raw_command("ms meta 2 T100 c F5\r\nab").startswith(b"HD c")
assert client.raw_command("mg meta s f t") == b"HD s2 f5 t100"
assert client.raw_command("md meta q\r\nmn", "\r\n") == b"MN"

# Statistics.
stats = client.stats()
assert stats[b"version"] in (b"1.6.18", "1.6.18"), stats
assert stats[b"curr_items"] > 1000, stats

# Concurrent counts.
pool = PooledClient(address, max_pool_size=8, timeout=30, default_noreply=False)
pool.set("shared", "0")
threads = [
    threading.Thread(target=lambda: [pool.incr("shared", 1) for _ in range(500)]) for _ in range(8)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert int(pool.get("shared")) == 4000
assert client.flush_all() and client.get("elm") is None
client.quit()
