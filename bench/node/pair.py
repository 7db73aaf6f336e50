"""Two programs in control groups of a guest, and what watches them or takes their memory: a redis of whose records a part is asked
for, and a program that uses a known part of its memory.

Built on `tests/guest/overcommit.py`, which has the redis and its client. Here the redis has no limit: whoever is to take memory
from it must find what rests.
"""

import base64
import json
import os

import overcommit
from overcommit import fields

MIB = 1 << 20
PAGE = 4096
BATCH = "/sys/fs/cgroup/batch"
# Where what watches or reclaims is put on request, but for a thread of the kernel.
AGENT = "/sys/fs/cgroup/agent"
SIZE, HOT = 64 * MIB, 16 * MIB
# Each hot page is touched so often a second, so that some of DAMON's looks of 5 ms find it used; the rest never after it was there.
TOUCHES = 60
WORKLOAD = f"isotherm workload hotspot --size {SIZE} --hot {HOT / SIZE:.0%} --seed 7 --rate {TOUCHES * HOT // PAGE} --duration 2h --thp no"
# What a client asks for goes on while it is looked what is idle, so that nothing else gets idle.
LOOKS, LOOK_EVERY_S = 3, 5
# For how long memory must not have been accessed to be called idle, s.
IDLE_S = 10
DAMON = "/sys/kernel/mm/damon/admin/kdamonds"
# Its defaults: 5 ms, 100 ms, 10 to 1000 regions.
DAMON_AGGREGATION_S = 0.1
ANY = (1 << 63) - 1

SETUP = f"""
echo +cpu >/sys/fs/cgroup/cgroup.subtree_control

# The counters of both groups, to files that begin with this name.
note_both() {{
  note $1
  for file in memory.stat memory.current memory.pressure; do cat {BATCH}/$file >$1.batch.$file; done
  if [ -n "$manager" ]; then cat /proc/$manager/status >$1.manager_status; fi
}}

# The kernel's DAMON on the largest piece of physical memory, with its own intervals; counts what was not accessed for {IDLE_S} s.
damon_on() {{
  echo 1 >{DAMON}/nr_kdamonds
  echo 1 >{DAMON}/0/contexts/nr_contexts
  context={DAMON}/0/contexts/0
  scheme=$context/schemes/0
  echo paddr >$context/operations
  echo 1 >$context/targets/nr_targets
  echo 1 >$context/targets/0/regions/nr_regions
  # The last of them, where a machine has less than 2 GiB.
  range=$(sed -n 's/^ *\\([0-9a-f]*\\)-\\([0-9a-f]*\\) : System RAM/\\1 \\2/p' /proc/iomem | tail -n 1)
  echo $((0x${{range% *}})) >$context/targets/0/regions/0/start
  echo $((0x${{range#* }} + 1)) >$context/targets/0/regions/0/end
  echo 1 >$context/schemes/nr_schemes
  echo stat >$scheme/action
  echo {ANY} >$scheme/access_pattern/sz/max
  echo {int(IDLE_S / DAMON_AGGREGATION_S)} >$scheme/access_pattern/age/min
  echo {(1 << 32) - 1} >$scheme/access_pattern/age/max
  for file in intervals/sample_us intervals/aggr_us nr_regions/min nr_regions/max; do
    echo "${{file##*/}} $(cat $context/monitoring_attrs/$file)"
  done >$1.damon
  echo on >{DAMON}/0/state
  manager=$(cat {DAMON}/0/pid)
}}

# What was idle: NAME KIND
look() {{
  case $2 in
    damon)
      echo update_schemes_tried_regions >{DAMON}/0/state
      for region in $scheme/tried_regions/[0-9]*; do
        read start <$region/start; read end <$region/end; read age <$region/age
        echo "$start $end $age"
      done >$1 ;;
    *) isotherm ps --json >$1 ;;
  esac
  grep -E '^(MemFree|Cached|AnonPages|Slab)' /proc/meminfo >$1.meminfo
}}

# The frames of some of a process's memory, 8 bytes of pagemap a page: PID START SIZE
frames() {{
  dd if=/proc/$1/pagemap bs=32768 iflag=skip_bytes,count_bytes skip=$(($2 / {PAGE} * 8)) count=$(($3 / {PAGE} * 8)) 2>/dev/null | base64 -w 0
}}

# Frames of both programs: NAME
all_frames() {{
  start=$(sed -n '/"start":/{{s/.*"start"://; s/[^0-9].*//; p}}' $1.workload)
  echo "batch $start $(frames $workload $start {SIZE})" >$1.frames
  while read range flags _ _ inode _; do
    case "$flags $inode" in
      "rw-p 0") start=$((0x${{range%-*}})); echo "store $start $(frames $server $start $((0x${{range#*-}} - start)))" ;;
    esac
  done </proc/$server/maps >>$1.frames
}}

# NAME RECORDS ASKED RATE SEED SETTLE WINDOW KIND [what watches or reclaims...]; KIND: none, damon, node, rules or other
pair() {{
  name=$1 records=$2 asked=$3 rate=$4 seed=$5 settle=$6 window=$7 kind=$8; shift 8
  echo "$name begins" >/dev/console
  manager=
  serve $name
  # All are stored; a second client stores the first of them anew and asks for these only.
  taskset 1 ycsb_client /tmp/redis $records zipfian $seed </dev/null >/dev/null
  mkdir {BATCH}
  # It runs when nobody else wants to: else p99 says how often a request meets it on a single processor.
  echo 1 >{BATCH}/cpu.idle
  sh -c 'echo $$ >{BATCH}/cgroup.procs; exec {WORKLOAD} --truth '$name.truth >$name.workload 2>&1 & workload=$!
  ask $name $asked zipfian $seed
  until grep -q READY $name.workload; do kill -0 $workload; sleep 0.1; done
  case $kind in
    none) ;;
    damon) damon_on $name ;;
    *) sh -c '[ ! -d {AGENT} ] || echo $$ >{AGENT}/cgroup.procs; exec "$@"' agent "$@" >$name.log 2>&1 & manager=$! ;;
  esac
  # Nothing of this script runs meanwhile.
  echo "run $settle $rate" >&3
  sleep $settle
  lines $name.answers 2
  note_both $name.before
  echo "run $window $rate" >&3
  sleep $window
  lines $name.answers 3
  note_both $name.after
  case $kind in
    damon|node)
      echo "run $((({LOOKS} + 1) * {LOOK_EVERY_S})) $rate" >&3
      for number in $(seq {LOOKS}); do sleep {LOOK_EVERY_S}; look $name.look.$number $kind; done
      if [ $kind = damon ]; then all_frames $name; fi
      lines $name.answers 4 ;;
    rules) isotherm ctl status --json >$name.ctl ;;
  esac
  case $kind in
    none) ;;
    damon) echo off >{DAMON}/0/state; echo 0 >{DAMON}/nr_kdamonds ;;
    node|rules) dismiss $name ;;
    other) kill -s TERM $manager; wait $manager || true ;;
  esac
  close
  kill -s TERM $workload
  wait $workload || true
  until rmdir {BATCH}; do sleep 0.1; done
}}
"""


def rules_text(file, min_age, goal):
    """Lines that write a node's rules."""
    return f"""cat >{file} <<END
pace = "64M/s"
[[rule]]
groups = ["/store", "/batch"]
action = "reclaim"
min_age = "{min_age}"
goal = "{goal}"
END
"""


def idle_text():
    """Lines after which what watches or reclaims runs when nobody else wants to."""
    return f"mkdir {AGENT}\necho 1 >{AGENT}/cpu.idle\n"


def run_text(name, kind, command, options, seed):
    """The script's lines for one run."""
    return f"pair {name} {options.records} {options.asked} {options.rate:g} {seed} {options.settle:g} {options.window:g} {kind} {command}\n"


class Run(overcommit.Run):
    """What one run left."""

    def __init__(self, name, files):
        super().__init__(name, files)
        self.seconds = self.answers["seconds"]
        if self.status not in ("", "0"):
            raise RuntimeError(f"{name} ended with status {self.status}: {self.text('log')}")

    def current(self, group):
        """What the group is charged with: mean of begin and end, bytes."""
        dot = "" if group == "store" else f".{group}"
        return sum(int(self.text(f"{when}{dot}.memory.current")) for when in ("before", "after")) / 2

    def stalled(self, group):
        """Part of the time in which some task of the group waited for memory."""
        dot = "" if group == "store" else f".{group}"

        def total(when):
            return int(self.text(f"{when}{dot}.memory.pressure").splitlines()[0].rpartition("total=")[2])

        return (total("after") - total("before")) / 1e6 / self.seconds

    def faults(self, group):
        """Major faults a second."""
        dot = "" if group == "store" else f".{group}"
        before, after = (fields(self.text(f"{when}{dot}.memory.stat"))["pgmajfault"] for when in ("before", "after"))
        return (after - before) / self.seconds

    def spent(self):
        """CPU time of what watches or reclaims from its start to the end of the window, s."""
        text = self._files.get(f"{self.name}.after.manager")
        return sum(map(int, text.rpartition(")")[2].split()[11:15])) / 100 if text else 0.0

    def compressed(self):
        """What zram takes: mean of begin and end, bytes."""
        return sum(int(self.text(f"{when}.zram").split()[2]) for when in ("before", "after")) / 2

    def manager_rss(self):
        """Resident memory of what watches or reclaims, bytes."""
        text = self._files.get(f"{self.name}.after.manager_status", "")
        return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("VmRSS:")), 0)

    def looks(self):
        """What was found each time it was looked: (text, /proc/meminfo's bytes)."""
        for number in range(1, LOOKS + 1):
            memory = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in self.text(f"look.{number}.meminfo").splitlines()}
            yield self.text(f"look.{number}"), memory

    def node_idle(self):
        """What the node has called idle at each look: {"store", "batch", "all": (bytes, least, most, resident)}."""
        for text, memory in self.looks():
            found = {}
            for line in map(json.loads, text.splitlines()):
                cold = next((c for c in line["cold"] or () if c["for_ns"] == IDLE_S * 10**9), None)
                key = {"total": "all", "cgroup": (line.get("cgroup") or "").strip("/")}.get(line["kind"])
                if cold is not None and key in ("all", "store", "batch"):
                    found[key] = (cold["bytes"], cold["least"], cold["most"], line["rss_bytes"])
            yield found, memory

    def frames(self):
        """Numbers of frames that are present: {"store", "hot", "cold": set}."""
        truth = json.loads(self.text("truth"))
        hot = [(r["start"], r["end"]) for s in truth["slices"] for r in s["touched"]]
        low, high = min(start for start, _ in hot), max(end for _, end in hot)
        if high - low != HOT:
            raise RuntimeError(f"the program was to use {HOT} bytes, and used {low:#x} to {high:#x}")
        found = {"store": set(), "hot": set(), "cold": set()}
        for line in self.text("frames").splitlines():
            name, start, *content = line.split()
            entries = memoryview(base64.b64decode("".join(content))).cast("Q")
            for i, entry in enumerate(entries):
                address = int(start) + i * PAGE
                key = name if name == "store" else "hot" if low <= address < high else "cold"
                if entry >> 63:
                    found[key].add(entry & (1 << 55) - 1)
        return found

    def damon_idle(self):
        """What DAMON has called idle at each look: {"store", "hot", "cold", "all": bytes}, regions."""
        frames = self.frames()
        for text, memory in self.looks():
            regions = [tuple(map(int, line.split()[:2])) for line in text.splitlines()]
            idle = {"all": sum(end - start for start, end in regions)}
            for key, numbers in frames.items():
                # Regions begin and end anywhere; a frame counts for the region that has its first byte.
                idle[key] = PAGE * sum(len(numbers.intersection(range(-(-s // PAGE), -(-e // PAGE)))) for s, e in regions)
            yield idle, len(regions), memory


def boot(kernel, runs, binaries, folder, **machine):
    """Boots a guest, in which runs (lines of `run_text`) take place one after the other; its files as text."""
    return overcommit.boot(kernel, SETUP + runs, {**binaries, "senpai.sh": os.path.join(folder, "senpai.sh")}, **machine)
