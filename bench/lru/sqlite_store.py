"""An embedded key-value store under YCSB-like load: `sqlite_store.py RECORDS DISTRIBUTION`.

SQLite in memory, in this process. Prints `ready` when the records are there, and then does what each line on its input says, as
ycsb_client does: `run SECONDS`, 80 % reads, 20 % updates, every value read is compared.
"""

import json
import math
import sqlite3
import sys
import time

import numpy

VALUE_BYTES = 1000
UPDATE_PART = 0.2
DRAW_AT_ONCE = 20_000
CHECKED = 48
EXPONENTIAL = 0.95, 0.8571428571
THETA = 0.99


def drawer(distribution, records, random):
    """A function that draws so many keys."""
    if distribution == "uniform":
        return lambda n: random.integers(0, records, n)
    if distribution == "exponential":
        mean = records * EXPONENTIAL[1] / -math.log(1 - EXPONENTIAL[0])

        def draw(n):
            back = random.exponential(mean, 2 * n)
            back = back[back < records][:n].astype(numpy.int64)
            return records - 1 - back

        return draw
    if distribution == "zipfian":
        sums = numpy.cumsum(1.0 / numpy.arange(1, records + 1) ** THETA)
        sums /= sums[-1]
        place = random.permutation(records).astype(numpy.int32)
        sums = sums.astype(numpy.float32)
        return lambda n: place[numpy.minimum(numpy.searchsorted(sums, random.random(n, dtype=numpy.float32)), records - 1)]
    sys.exit(f"no distribution called {distribution}")


def main():
    records, distribution = int(sys.argv[1]), sys.argv[2]
    random = numpy.random.default_rng(11)
    letters = random.integers(48, 112, 1 << 20).astype(numpy.uint8)
    letters[1::2] = 32
    filler = letters.tobytes()
    versions = numpy.zeros(records, numpy.int32)

    def value(key, version):
        head = b"user%012d version=%010d " % (key, version)
        at = (key * 2654435761 + version * 40503) % (len(filler) - VALUE_BYTES)
        return head + filler[at : at + VALUE_BYTES - len(head)]

    store = sqlite3.connect(":memory:", isolation_level=None)
    store.execute("PRAGMA journal_mode = OFF")
    store.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v BLOB NOT NULL)")
    store.execute("BEGIN")
    store.executemany("INSERT INTO t VALUES (?, ?)", ((key, value(key, 0)) for key in range(records)))
    store.execute("COMMIT")
    draw = drawer(distribution, records, random)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(run(store, float(line.split()[1]), draw, random, value, versions)), flush=True)


def run(store, seconds, draw, random, value, versions):
    """Works for so long; returns what came of it."""
    clock = time.perf_counter_ns
    latencies = []
    begin = before = clock()
    end = begin + int(seconds * 1e9)
    while before < end:
        keys, updates = draw(DRAW_AT_ONCE).tolist(), (random.random(DRAW_AT_ONCE) < UPDATE_PART).tolist()
        took = []
        before = clock()
        for key, update in zip(keys, updates):
            if update:
                version = int(versions[key]) + 1
                versions[key] = version
                store.execute("UPDATE t SET v = ? WHERE k = ?", (value(key, version), key))
            else:
                (found,) = store.execute("SELECT v FROM t WHERE k = ?", (key,)).fetchone()
                if len(found) != VALUE_BYTES or found[:CHECKED] != value(key, int(versions[key]))[:CHECKED]:
                    sys.exit(f"record {key}: not the value that was written last")
            now = clock()
            took.append(now - before)
            before = now
            if now >= end:
                break
        latencies.append(numpy.array(took, numpy.int64))
    elapsed = (clock() - begin) / 1e9
    latencies = numpy.concatenate(latencies)
    p50, p99, p999 = numpy.quantile(latencies, (0.5, 0.99, 0.999)) / 1000
    return {"operations": len(latencies), "seconds": elapsed, "p50_us": p50, "p99_us": p99, "p999_us": p999}


if __name__ == "__main__":
    main()
