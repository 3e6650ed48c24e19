"""Pando beside other Python packages, in two tables: what survives kill -9, and a power cut.

    bindings/python/check bench [OPTIONS]

Keys have 8 bytes and values 100. All peers are loaded first. Each round gives every peer a slice of
the same work, in an order that changes; a ratio is computed within a round. Each value that is read
is compared with that of its key, and after the run the records are read again.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import platform
import random
import shutil
import statistics
import tempfile
import time

from peers import PEERS, opened

TITLES = {
    "kill": "A write that has returned survives kill -9",
    "power": "A write that has returned survives a power cut",
}
OPERATIONS = ["get", "put", "get batches", "put batches", "put, 2 processes"]
WRITERS = 2


def key_of(number):
    """Numbers in no order, each with its own key."""
    return (number * 0x9E37_79B9_7F4A_7C15 & (1 << 64) - 1).to_bytes(8, "big")


def value_of(key, salt):
    return key + salt.to_bytes(4, "big") * 23


def of_key(key, value):
    assert value[:8] == key and len(value) == 100, (key, value)


def slice_of(peer, operation, numbers, batch, seconds, salt):
    """Does the operation for that time, and returns records per second."""
    keys = [key_of(number) for number in numbers]
    groups = [keys[at : at + batch] for at in range(0, len(keys), batch)]
    writes = [[(key, value_of(key, salt)) for key in group] for group in groups]
    done, at, begun = 0, 0, time.perf_counter()
    until = begun + seconds
    while True:
        group, records = groups[at % len(groups)], writes[at % len(groups)]
        at += 1
        if operation == "get":
            for key in group:
                of_key(key, peer.get(key))
                done += 1
                if done % 16 == 0 and time.perf_counter() > until:
                    break
        elif operation == "get batches":
            for key, value in zip(group, peer.get_many(group), strict=True):
                of_key(key, value)
            done += len(group)
        elif operation == "put batches":
            peer.put_many(records)
            done += len(group)
        else:
            for key, value in records:
                peer.put(key, value)
                done += 1
                # A synced write takes far longer than the clock.
                if done % 4 == 0 and time.perf_counter() > until:
                    break
        now = time.perf_counter()
        if now > until:
            return done / (now - begun)


def writer(name, folder, failure, records, start, pipe):
    """A process that writes on request, each time it is sent a number of seconds."""
    peer = opened(name, folder, failure, shared=True)
    random.seed(os.getpid())
    pipe.send("ready")
    for salt, seconds in iter(pipe.recv, None):
        numbers = [random.randrange(records) for _ in range(10_000)]
        start.wait()
        pipe.send(slice_of(peer, "put", numbers, 1000, seconds, salt))
    peer.close()


class Writers:
    """Processes that have one database open, and write to it at once."""

    def __init__(self, name, folder, failure, records):
        context = multiprocessing.get_context("spawn")
        self.start = context.Barrier(WRITERS)
        self.processes = []
        for _ in range(WRITERS):
            here, there = context.Pipe()
            arguments = (name, folder, failure, records, self.start, there)
            process = context.Process(target=writer, args=arguments, daemon=True)
            process.start()
            # So that the end of the process is seen.
            there.close()
            assert here.recv() == "ready"
            self.processes.append((process, here))

    def run(self, seconds, salt):
        for _, pipe in self.processes:
            pipe.send((salt, seconds))
        return sum(pipe.recv() for _, pipe in self.processes)

    def close(self):
        for process, pipe in self.processes:
            pipe.send(None)
            process.join()
            assert process.exitcode == 0


def measure(failure, folder, options):
    """One line of data for each round, operation and peer."""
    names = [name for name, peer in PEERS.items() if failure in peer.survives]
    # A transactional map belongs to one process, so the second table has no figure of Pando.
    has_writers = [name for name in names if PEERS[name].has_writers and failure == "kill"]
    folder = pathlib.Path(folder) / failure
    peers = {name: opened(name, folder / "one", failure) for name in names}
    for peer in peers.values():
        for first in range(0, options.records, options.batch):
            last = min(first + options.batch, options.records)
            peer.put_many([(key_of(n), value_of(key_of(n), 0)) for n in range(first, last)])
    writers = {
        name: Writers(name, folder / "two", failure, options.records) for name in has_writers
    }
    lines = []
    for round in range(options.rounds):
        order = names[round % len(names) :] + names[: round % len(names)]
        for operation in OPERATIONS:
            numbers = [random.randrange(options.records) for _ in range(10_000)]
            for name in order:
                if operation == OPERATIONS[-1]:
                    if name not in writers:
                        continue
                    rate = writers[name].run(options.seconds, round + 1)
                else:
                    rate = slice_of(
                        peers[name], operation, numbers, options.batch, options.seconds, round + 1
                    )
                line = {"failure": failure, "round": round, "operation": operation}
                lines.append({**line, "system": name, "per_second": round_off(rate)})
    for found in writers.values():
        found.close()
    for peer in peers.values():
        for first in range(0, options.records, options.batch):
            keys = [key_of(n) for n in range(first, min(first + options.batch, options.records))]
            for key, value in zip(keys, peer.get_many(keys), strict=True):
                of_key(key, value)
        peer.close()
    return lines


def round_off(rate):
    return float(f"{rate:.4g}")


def table(failure, lines):
    """Markdown: the rate of Pando, and that divided by the rate of each peer."""
    rates = {}
    for line in lines:
        if line["failure"] == failure:
            of = rates.setdefault(line["operation"], {}).setdefault(line["system"], {})
            of[line["round"]] = line["per_second"]
    systems = list(dict.fromkeys(line["system"] for line in lines if line["failure"] == failure))
    systems = [name for name in PEERS if name in systems]
    first, peers = systems[0], systems[1:]
    yield f"{TITLES[failure]}."
    yield f"Records per second of {first}, and that divided by the rate of a peer: above 1"
    yield f"{first} is faster. Median of the rounds, least and greatest in brackets."
    yield ""
    yield "| operations | " + " | ".join([first, *peers]) + " |"
    yield "| --- |" + " ---: |" * len(systems)
    for operation, of in rates.items():
        cells = []
        own = of[first]
        cells.append(f"{statistics.median(own.values()):,.0f}")
        for name in peers:
            ratios = [own[n] / rate for n, rate in of.get(name, {}).items()]
            median = statistics.median(ratios) if ratios else None
            cells.append(f"{median:.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "")
        yield f"| {operation} | " + " | ".join(cells) + " |"


def machine():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(": ", 1)[1] for line in lines if line.startswith("model name")), "?")
    system = f"{model}, {os.cpu_count()} cores, Linux {platform.release()}"
    return f"{system}, CPython {platform.python_version()}"


def main():
    parser = argparse.ArgumentParser(prog="bindings/python/check bench", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="records of each peer")
    parser.add_argument("--rounds", type=int, default=9, help="slices of each peer")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a slice")
    parser.add_argument("--batch", type=int, default=1000, help="records of a batch")
    parser.add_argument("--seed", type=int, default=1, help="for the order of the keys")
    parser.add_argument("--kill", default="/dev/shm", help="directory of the first table's files")
    parser.add_argument("--power", default="/var/tmp", help="the second one's: it must be a disk")
    parser.add_argument("--out", type=pathlib.Path, help="file of JSON lines to write")
    options = parser.parse_args()
    lines = []
    for failure in TITLES:
        random.seed(options.seed)
        folder = tempfile.mkdtemp(prefix="pando-compare-", dir=getattr(options, failure))
        try:
            lines += measure(failure, folder, options)
        finally:
            shutil.rmtree(folder)
    for failure in TITLES:
        print(*table(failure, lines), "", sep="\n")
    print(machine())
    if options.out is not None:
        first = {"machine": machine(), "options": {**vars(options), "out": None}}
        options.out.write_text("".join(json.dumps(line) + "\n" for line in [first, *lines]))


if __name__ == "__main__":
    main()
