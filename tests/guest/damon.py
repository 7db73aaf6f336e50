"""DAMON's files in sysfs as the kernel has them, and ours behind `isotherm mount`: one script on both. Folders, modes, defaults and
what is refused must be the same but for what docs/compat.md lists, and both must find the working set of a program."""

import os
import re
import statistics

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
MACHINE = {"memory_mib": 1024}
SIZE_MIB = 64
HOT = 0.25
WORKLOAD = f"isotherm workload hotspot --size {SIZE_MIB}M --hot {HOT:.0%} --seed 7 --rate 250000 --duration 20m --thp no"
WAYS = ("kernel", "own")
# The kernel's DAMON does not flush the TLB: under emulation now and then a whole run of it shows hot memory as idle.
RUNS = 4
LOOKS = 10
# The first looks come before regions have settled.
SETTLED = 4
# How far both may be from the truth, and from each other: regions have ragged edges, the kernel's more so under emulation.
TOLERANCES = {"kernel": 0.4, "own": 0.25}
SCHEME = "0/contexts/0/schemes/0"
ATTRS = "0/contexts/0/monitoring_attrs"
COUNTS = (
    ("nr_kdamonds", 1), ("0/contexts/nr_contexts", 1), ("0/contexts/0/targets/nr_targets", 1),
    ("0/contexts/0/targets/0/regions/nr_regions", 1), ("0/contexts/0/schemes/nr_schemes", 1), (f"{SCHEME}/filters/nr_filters", 1),
    (f"{SCHEME}/quotas/goals/nr_goals", 1),
)  # fmt: skip
# What is written where, in this order; the answer is the error, or what is read then.
WRITES = (
    ("nr_kdamonds", "-1"), ("nr_kdamonds", "x"), ("nr_kdamonds", ""), ("0/contexts/nr_contexts", "2"),
    ("0/contexts/nr_contexts", "-1"), ("0/contexts/0/operations", "vaddr"), ("0/contexts/0/operations", "nothing"),
    ("0/contexts/0/operations", "vaddr2"), ("0/contexts/0/avail_operations", "vaddr"),
    ("0/contexts/0/targets/nr_targets", "-1"), ("0/contexts/0/targets/0/pid_target", "abc"),
    ("0/contexts/0/targets/0/pid_target", "-5"), ("0/contexts/0/targets/0/pid_target", "0x10"),
    ("0/contexts/0/targets/0/regions/0/start", "4096"), ("0/contexts/0/targets/0/regions/0/end", "-1"),
    (f"{ATTRS}/intervals/sample_us", "5000 "), (f"{ATTRS}/intervals/sample_us", "5k"), (f"{ATTRS}/intervals/aggr_us", "-1"),
    (f"{ATTRS}/intervals/update_us", "0x100"), (f"{ATTRS}/nr_regions/min", "0"), (f"{ATTRS}/nr_regions/min", "2000"),
    (f"{ATTRS}/nr_regions/max", "5"), (f"{ATTRS}/nr_regions/max", "99999999999999999999999"),
    (f"{SCHEME}/action", "stat"), (f"{SCHEME}/action", "statx"), (f"{SCHEME}/action", "pageout"), (f"{SCHEME}/action", "willneed"),
    (f"{SCHEME}/action", "STAT"), (f"{SCHEME}/action", "lru_prio"), (f"{SCHEME}/action", "migrate_hot"), (f"{SCHEME}/action", ""),
    (f"{SCHEME}/apply_interval_us", "1000000"), (f"{SCHEME}/apply_interval_us", "1.5"), (f"{SCHEME}/target_nid", "-1"),
    (f"{SCHEME}/access_pattern/sz/min", "-1"), (f"{SCHEME}/access_pattern/sz/max", "18446744073709551615"),
    (f"{SCHEME}/access_pattern/age/min", " 7"), (f"{SCHEME}/access_pattern/nr_accesses/max", "07"),
    (f"{SCHEME}/quotas/ms", "10"), (f"{SCHEME}/quotas/bytes", "1M"), (f"{SCHEME}/quotas/effective_bytes", "1"),
    (f"{SCHEME}/quotas/weights/sz_permil", "1001"), (f"{SCHEME}/quotas/weights/sz_permil", "-1"),
    (f"{SCHEME}/quotas/goals/0/target_metric", "some_mem_psi_us"), (f"{SCHEME}/quotas/goals/0/target_metric", "nothing"),
    (f"{SCHEME}/quotas/goals/0/target_value", "0"), (f"{SCHEME}/quotas/goals/0/current_value", "ten"),
    (f"{SCHEME}/watermarks/metric", "free_mem_rate"), (f"{SCHEME}/watermarks/metric", "free"),
    (f"{SCHEME}/watermarks/high", "1001"), (f"{SCHEME}/watermarks/interval_us", "0"), (f"{SCHEME}/filters/0/type", "memcg"),
    (f"{SCHEME}/filters/0/type", "nothing"), (f"{SCHEME}/filters/0/memcg_path", "/a b"), (f"{SCHEME}/filters/0/matching", "Y"),
    (f"{SCHEME}/filters/0/matching", "maybe"), (f"{SCHEME}/filters/0/addr_start", "12"),
    (f"{SCHEME}/filters/0/damon_target_idx", "-1"), (f"{SCHEME}/stats/nr_tried", "0"), (f"{SCHEME}/tried_regions/total_bytes", "0"),
    ("0/state", "off"), ("0/state", "nothing"), ("0/state", "commit"), ("0/state", "update_schemes_stats"), ("0/pid", "1"),
    ("0/state", "on"),
)  # fmt: skip


def contents(kernel):
    """Its modules."""
    return kernel.modules("fuse")


def script():
    """The guest's script."""
    counts = "\n".join(f"  echo {count} >{path}" for path, count in COUNTS)
    writes = "\n".join(f"  answer {path} '{text}'" for path, text in WRITES)
    settings = "\n".join(
        f"  echo {value} >{path}"
        for path, value in (
            (f"{ATTRS}/intervals/sample_us", 50_000), (f"{ATTRS}/intervals/aggr_us", 1_000_000),
            (f"{ATTRS}/intervals/update_us", 2_000_000), (f"{ATTRS}/nr_regions/min", 10), (f"{ATTRS}/nr_regions/max", 100),
            (f"{SCHEME}/action", "stat"), (f"{SCHEME}/access_pattern/sz/max", 1 << 60),
            (f"{SCHEME}/access_pattern/nr_accesses/min", 1), (f"{SCHEME}/access_pattern/nr_accesses/max", 20),
            (f"{SCHEME}/access_pattern/age/max", 1_000_000),
        )
    )  # fmt: skip
    return f"""
set -e
for module in /modules/*.ko; do [ ! -e $module ] || insmod $module; done
mkdir /tmp/own
isotherm mount /tmp/own >own.log 2>&1 & own=$!
until [ -e /tmp/own/sys/kernel/mm/damon/admin/kdamonds ]; do kill -0 $own; sleep 0.2; done

answer() {{
  if echo "$2" 2>/tmp/why >$1; then echo "$1 <- $2: taken, $(cat $1 2>&1)"; else echo "$1 <- $2: $(sed 's/.*: //' /tmp/why)"; fi
}}

make() {{
  echo 0 >nr_kdamonds
{counts}
}}

watch() {{
  make
  echo vaddr >0/contexts/0/operations
  echo 0 >0/contexts/0/targets/0/regions/nr_regions
  echo 0 >{SCHEME}/filters/nr_filters
  echo 0 >{SCHEME}/quotas/goals/nr_goals
  echo $workload >0/contexts/0/targets/0/pid_target
{settings}
  echo on >0/state
  cat 0/state >$name.on
  for _ in $(seq {LOOKS}); do
    sleep 3
    echo update_schemes_tried_regions >0/state
    echo "look $(cat {SCHEME}/tried_regions/total_bytes)"
    for region in {SCHEME}/tried_regions/[0-9]*; do
      [ ! -e $region ] || echo "region $(cat $region/start) $(cat $region/end) $(cat $region/nr_accesses)"
    done
  done
  find {SCHEME}/tried_regions/*[0-9]* -exec stat -c '%A %n' '{{}}' + | sort -k 2 | grep -v /total_bytes >/out/${{name##*/}}.region
  echo update_schemes_stats >0/state
  echo "tried $(cat {SCHEME}/stats/nr_tried) $(cat {SCHEME}/stats/sz_tried)"
  echo off >0/state
  echo "state $(cat 0/state) pid $(cat 0/pid)"
}}

try() {{
  name=$1
  cd $2/kernel/mm/damon/admin/kdamonds
  make
  find .. -exec stat -c '%A %n' '{{}}' + | sort -k 2 >/out/$name.tree
  for file in $(find .. -type f | sort); do echo "$file $(cat $file 2>&1 | tr '\n' ' ')"; done >/out/$name.values
  ( {writes.strip()} ) >/out/$name.answers
  {WORKLOAD} --truth /out/$name.truth >/dev/null & workload=$!
  sleep 2
  for run in $(seq {RUNS}); do
    ( cd $2/kernel/mm/damon/admin/kdamonds; name=/tmp/$name; watch ) >/out/$name.$run
    # All that is hot was seen at least once: enough.
    [ $(awk '$1 == "look" && $2 > most {{ most = $2 }} END {{ print int(most / 1048576) }}' /out/$name.$run) -lt {int(SIZE_MIB * HOT * 0.8)} ] || break
  done
  echo 0 >nr_kdamonds
  kill -s TERM $workload; wait $workload || true
  cd /out
}}

try kernel /sys
try own /tmp/own/sys
kill -s TERM $own; wait $own
"""


def lacking():
    """Files that docs/compat.md says 6.12 lacks, as patterns."""
    with open(os.path.join(ROOT, "docs/compat.md"), encoding="utf-8") as file:
        (section,) = re.findall(r"^### What 6\.12 lacks$(.*?)(?=^#|\Z)", file.read(), re.M | re.S)
    return [re.compile(re.escape(path).replace("N", r"\d+")) for path in re.findall(r"^\* `([^`]+)`", section, re.M)]


def tree(text):
    """Modes by path."""
    return {path: mode for mode, path in (line.split(maxsplit=1) for line in text.splitlines())}


def first_region(text):
    """The same of the first tried region's folder alone."""
    return {path: mode for path, mode in tree(text).items() if re.search("/tried_regions/0(/|$)", path)}


def differences(one, other):
    """Keys whose values are not the same, for people."""
    return [f"{key}: {one.get(key)!r}, ours {other.get(key)!r}" for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key)]


def judge(name, files, results):
    """Compares what was seen with what must be."""
    check = results.check
    # The folder of a region that a scheme was tried on comes with its figures.
    trees = {way: tree(files[way + ".tree"]) | first_region(files[way + ".region"]) for way in WAYS}
    lacks = lacking()
    more = {path for path in trees["own"] if path not in trees["kernel"]}
    unlisted = sorted(path for path in more if not any(pattern.search(path) for pattern in lacks))
    unused = [pattern.pattern for pattern in lacks if not any(pattern.search(path) for path in more)]
    check(not unlisted, f"{name}: all that ours has more is listed {unlisted}")
    check(not unused, f"{name}: and all that is listed, ours has more {unused}")
    shared = {path: mode for path, mode in trees["own"].items() if path not in more}
    check(len(shared) > 80 and shared == trees["kernel"], f"{name}: {len(shared)} files and folders are the kernel's: {differences(trees['kernel'], shared)}")
    values = {way: dict(line.split(" ", 1) for line in files[way + ".values"].splitlines() if line.startswith("..")) for way in WAYS}
    values["own"] = {path: value for path, value in values["own"].items() if path not in more}
    operations = "../kdamonds/0/contexts/0/avail_operations"
    # The one value that is not the kernel's: nothing here sees physical memory.
    values["kernel"][operations] = values["kernel"][operations].replace("paddr ", "")
    found = differences(values["kernel"], values["own"])
    check(not found, f"{name}: {len(values['kernel'])} defaults are the kernel's: {found}")
    answers = {way: files[way + ".answers"].splitlines() for way in WAYS}
    found = [pair for pair in zip(*answers.values()) if pair[0] != pair[1]]
    check(len(answers["own"]) >= len(WRITES) and not found, f"{name}: {len(WRITES)} writes have the kernel's answers: {found}")
    hot = SIZE_MIB * HOT
    sizes = {}
    for way in WAYS:
        run = max(key for key in files if re.fullmatch(way + r"\.\d", key))
        looks = [int(line.split()[1]) / (1 << 20) for line in files[run].splitlines() if line.startswith("look ")]
        sizes[way] = statistics.median(looks[SETTLED:])
        check(abs(sizes[way] - hot) < TOLERANCES[way] * hot, f"{name}, {way}: the working set is {sizes[way]:.1f} MiB, in truth {hot:.0f}")
        last = files[run].splitlines()[-1]
        check(last == "state off pid -1", f"{name}, {way}: {last}")
    check(abs(sizes["kernel"] - sizes["own"]) < TOLERANCES["kernel"] * hot, f"{name}: both say the same")
