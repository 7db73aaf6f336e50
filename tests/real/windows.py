"""The node's rows in Parquet files, read with pyarrow: by another program than the one that wrote them."""

import glob

# Idle for at least so long, seconds, by place in the list `cold_bytes`.
AGES = [0, 1, 2, 5, 10, 30, 60, 120, 240, 480, 900, 1800, 3600, 7200, 14400, 28800]


def last(folder):
    """The rows of the last window, by control group."""
    # Only where it is needed: what is run with each `make test` does without.
    from pyarrow import parquet

    rows = [row for file in glob.glob(f"{folder}/*.parquet") for row in parquet.read_table(file).to_pylist()]
    newest = max(row["window_start"] for row in rows)
    return {row["cgroup"]: row for row in rows if row["window_start"] == newest}


def idle(rows, group, seconds):
    """Bytes of a group that were idle for so long at the window's end; None: not known."""
    row = rows.get(group)
    return row and row["cold_bytes"][AGES.index(seconds)]
