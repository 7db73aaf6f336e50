"""An analyst's session: `numpy_analytics.py ROUNDS`. Columns that stay in memory, and questions about some of them at a time.

Each phase asks ROUNDS times about two columns; the answers are compared with those that were computed before the start.
Prints `ready`, waits for a line, prints `ELAPSED_NS ok`.
"""

import sys
import time

import numpy

MIB = 1 << 20
COLUMNS = 12
COLUMN_MIB = 32


def column(number):
    """Whole numbers below 1000, another sequence in each column."""
    return numpy.arange(COLUMN_MIB * MIB // 8) * (2 * number + 3) * 7919 % 1009 % 1000


def answers(a, b):
    """What is asked about two columns."""
    picked = a > 500
    return (
        int(a.sum()),
        int(numpy.dot(a, b)),
        int(b[picked].sum()),
        int(numpy.bincount(a, weights=b, minlength=1000)[123]),
        int(numpy.median(b)),
    )


def main():
    rounds = int(sys.argv[1])
    columns = [column(n) for n in range(COLUMNS)]
    pairs = [(n, n + 1) for n in range(0, COLUMNS, 2)]
    expected = {pair: answers(*(columns[n] for n in pair)) for pair in pairs}
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.monotonic_ns()
    for pair in pairs:
        for _ in range(rounds):
            if answers(*(columns[n] for n in pair)) != expected[pair]:
                sys.exit(f"columns {pair}: wrong answers")
    print(time.monotonic_ns() - begin, "ok", flush=True)
    if any((columns[n] != column(n)).any() for n in range(COLUMNS)):
        sys.exit("a column is not what it was")


if __name__ == "__main__":
    main()
