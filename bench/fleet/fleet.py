#!/usr/bin/env python3
"""Rows a second and memory of `isotherm-fleet report` and `what-if`, beside the same SQL on DuckDB and Spark, in one run.

Engines take turns on the same files of a made-up fleet; the table has medians of times, with extremes, as ratios to isotherm-fleet's.
`make test-engines` (or tests/engines/setup) puts DuckDB and Spark where they are found; what is not there is left out.
"""

import argparse
import glob
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
QUERIES = {"report": ["agents", "usage"], "what-if": ["agents", "what_if"]}
SETUP = """
import sys
sys.path.insert(0, {lib!r})
import importlib.machinery, importlib.util
loader = importlib.machinery.SourceFileLoader("run", {run!r})
run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
loader.exec_module(run)
folder, queries = {folder!r}, {queries!r}
POLICY, PERCENTILES = run.POLICY, "SELECT CAST(0.98 AS DOUBLE) AS k"
"""
DUCKDB = SETUP + """
import duckdb
session = duckdb.connect()
session.sql("SET memory_limit = '2GB'")
session.sql("SET temp_directory = {spill!r}")
session.sql(f"CREATE VIEW files AS SELECT * FROM read_parquet('{{folder}}/*/*.parquet')")
session.sql(run.sql("windows.duckdb"))
session.sql(f"CREATE VIEW policy AS {{POLICY}}")
session.sql(f"CREATE VIEW percentiles AS {{PERCENTILES}}")
for query in queries:
    print(len(session.sql(run.sql(query)).fetchall()))
"""
SPARK = SETUP + """
from pyspark.sql import SparkSession
session = (SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").config("spark.driver.memory", "2g")
           .config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "8").config("spark.local.dir", {spill!r})
           .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate())
session.read.option("recursiveFileLookup", "true").option("pathGlobFilter", "*.parquet").parquet(folder).createOrReplaceTempView("files")
session.sql(run.sql("windows.spark"))
session.sql(f"CREATE OR REPLACE TEMPORARY VIEW policy AS {{POLICY}}")
session.sql(f"CREATE OR REPLACE TEMPORARY VIEW percentiles AS {{PERCENTILES}}")
for query in queries:
    print(len(session.sql(run.sql(query)).collect()))
"""


def timed(command):
    """Seconds of the clock, and the greatest resident memory of the process, MiB."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{command[0]}: {said.decode()[-2000:]}")
    return time.monotonic() - begin, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=10)
    parser.add_argument("--hours", type=int, default=168)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", default="duckdb,spark", help="to compare with; '' for none")
    parser.add_argument("--folder", help="a fleet that was made up earlier; else one is made up there, and stays")
    parser.add_argument("--commands", default="report,what-if", help="which are timed")
    parser.add_argument("--binary", default=os.path.join(ROOT, "target/fleet/isotherm-fleet"))
    parser.add_argument("--python", default=os.path.join(ROOT, "out/engines/venv/bin/python"))
    args = parser.parse_args()
    engines = [name for name in args.engines.split(",") if name]
    if engines and not os.path.exists(args.python):
        print("no engines to compare with (tests/engines/setup installs them)", file=sys.stderr)
        engines = []
    work = tempfile.mkdtemp(prefix="isotherm-bench-fleet-", dir=os.environ.get("TMPDIR"))
    try:
        folder, spill = args.folder or os.path.join(work, "fleet"), os.path.join(work, "spill")
        os.mkdir(spill)
        if not os.path.exists(os.path.join(folder, "truth.json")):
            print("making up the fleet ...", file=sys.stderr)
            subprocess.run([args.binary, "simulate", "--hosts", str(args.hosts), "--hours", str(args.hours), "--groups", str(args.groups),
                            "--seed", "1", "--out", folder], check=True, capture_output=True)
        with open(os.path.join(folder, "truth.json")) as f:
            truth = json.load(f)
        rows, hosts = truth["rows"], truth["hosts"]
        size = sum(os.path.getsize(path) for path in glob.glob(f"{folder}/*/*.parquet")) / 2**20
        print(f"{rows} rows of {hosts} hosts, {size:.0f} MiB; Linux {platform.release()}, {os.cpu_count()} processors, "
              f"{args.rounds} rounds; all engines within 2 GiB")
        print(f"{'':<10} {'':<16} {'s':>7} {'rows/s':>10} {'MiB':>6}  ratio of times to isotherm-fleet")
        for command in args.commands.split(","):
            queries, times = QUERIES[command], {}
            for _ in range(args.rounds):
                for name in ["isotherm-fleet", *engines]:
                    text = {"duckdb": DUCKDB, "spark": SPARK}.get(name, "").format(
                        lib=os.path.join(ROOT, "tests/engines"), run=os.path.join(ROOT, "tests/engines/run"), folder=folder, queries=queries,
                        spill=spill)
                    run = [args.binary, command, folder, "--json"] if name == "isotherm-fleet" else [args.python, "-c", text]
                    times.setdefault(name, []).append(timed(run))
            for name, runs in times.items():
                seconds, memory = statistics.median(run[0] for run in runs), max(run[1] for run in runs)
                ratios = sorted(run[0] / ours[0] for run, ours in zip(runs, times["isotherm-fleet"]))
                ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
                # What Spark's own process holds is not seen from here.
                memory = "-" if name == "spark" else f"{memory:.0f}"
                print(f"{command:<10} {name:<16} {seconds:>7.1f} {rows / seconds:>10.0f} {memory:>6}  {ratio}", flush=True)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
