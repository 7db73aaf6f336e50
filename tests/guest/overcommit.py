"""A store with twice the memory that it may have, in a guest: redis in a control group, zram to swap to, a YCSB-like client.

The guest's script does what `bench/lru/lru.py` does on a real machine, in a shell: it loads the store, sets half of what that
takes as `memory.max`, lets the client work to warm up, and once more to measure.
"""

import json
import os
import re
import shutil
import subprocess

import kernels
import vm

# One processor, whose clock is what it has executed: 4 ns an instruction. Whatever else the machine does that emulates it, the
# figures stay the same; but nothing runs beside anything else, and neither caches nor memory take time.
COUNTED = {"cpus": 1, "options": ("-icount", "shift=2,sleep=off")}
MEMORY_MIB = 1024
SWAP_MIB = 512
DISTRIBUTIONS = ("uniform", "exponential", "zipfian")
# Who reclaims: the kernel with its two lists, with its generations, and with `isotherm lru run` on the group.
ROWS = {"lists": None, "kernel": None, "isotherm-kernel": "--engine kernel", "isotherm-user": "--engine user"}
GROUP = "/sys/fs/cgroup/store"

SETUP = f"""
set -e
{kernels.zram_swap(SWAP_MIB)}
mount -t debugfs none /sys/kernel/debug
cat /sys/kernel/mm/lru_gen/enabled >enabled
echo y >/sys/kernel/mm/lru_gen/enabled
echo never >/sys/kernel/mm/transparent_hugepage/enabled
echo +memory >/sys/fs/cgroup/cgroup.subtree_control

# Waits for a file to have so many lines, while the client runs.
lines() {{
  until [ "$(wc -l <$1)" -ge $2 ]; do kill -0 $client || return 1; sleep 0.1; done
}}

# What the counters say, to files that begin with this name.
note() {{
  for file in memory.events memory.stat memory.current memory.swap.current memory.pressure memory.max; do cat {GROUP}/$file >$1.$file; done
  cat /proc/stat >$1.cpu
  cat /proc/vmstat >$1.vmstat
  grep -A 9 ' /store' /sys/kernel/debug/lru_gen >$1.gens || true
  cat /sys/block/zram0/mm_stat >$1.zram
  if [ -n "$manager" ]; then cat /proc/$manager/stat >$1.manager; fi
}}

# Starts redis in the group; NAME
serve() {{
  mkdir {GROUP}
  # Store and client share a processor: else most of a request's time is waking the other's up.
  sh -c 'echo $$ >{GROUP}/cgroup.procs; exec taskset 1 redis-server --port 0 --unixsocket /tmp/redis --dir /tmp --save ""' >$1.redis &
  server=$!
  until [ -S /tmp/redis ]; do kill -0 $server; sleep 0.1; done
}}

# Starts a client, which stores its records and then takes orders on descriptor 3; NAME RECORDS DISTRIBUTION SEED
ask() {{
  mkfifo /tmp/orders
  : >$1.answers
  taskset 1 ycsb_client /tmp/redis $2 $3 $4 </tmp/orders >>$1.answers 2>$1.errors & client=$!
  exec 3>/tmp/orders
  lines $1.answers 1
}}

# Ends client and redis, and takes the group away.
close() {{
  exec 3>&-
  wait $client
  kill -s TERM $server
  wait $server || true
  rm -f /tmp/redis /tmp/orders
  until rmdir {GROUP}; do sleep 0.1; done
}}

# Ends what manages the group, in good order; NAME
dismiss() {{
  kill -s INT $manager
  wait $manager && echo 0 >$1.status || echo $? >$1.status
}}

# NAME DISTRIBUTION RECORDS SEED WARM-UP SECONDS [what manages the group...]
store() {{
  name=$1 distribution=$2 records=$3 seed=$4 warm=$5 seconds=$6; shift 6
  serve $name
  ask $name $records $distribution $seed
  cat {GROUP}/memory.current >$name.needs
  limit=$(($(cat $name.needs) / 2 / 4096 * 4096))
  # memory.high reclaims what is above it; memory.max would kill where that is not done at once.
  until [ $(cat {GROUP}/memory.current) -le $limit ]; do echo $limit >{GROUP}/memory.high; done
  echo $limit >{GROUP}/memory.max
  echo max >{GROUP}/memory.high
  manager=
  if [ $# -gt 0 ]; then "$@" >$name.log 2>&1 & manager=$!; fi
  echo "run $warm" >&3
  lines $name.answers 2
  note $name.before
  echo "run $seconds" >&3
  lines $name.answers 3
  note $name.after
  if [ -n "$manager" ]; then dismiss $name; fi
  cat {GROUP}/memory.max >$name.max
  close
}}
"""


def run_text(name, row, distribution, records, seed, warm_up, seconds, options=""):
    """The script's lines for one run."""
    engine = ROWS[row]
    manager = f"isotherm lru run --cgroup store {engine} --stats {name}.stats {options}" if engine else ""
    lists = row == "lists"
    lines = ["echo n >/sys/kernel/mm/lru_gen/enabled"] * lists
    lines += [f"store {name} {distribution} {records} {seed} {warm_up:g} {seconds:g} {manager}"]
    lines += ["echo y >/sys/kernel/mm/lru_gen/enabled"] * lists
    return "\n".join(lines) + "\n"


def contents(kernel):
    """What the guest needs besides isotherm and the client: {path: content}."""
    server = shutil.which("redis-server")
    if server is None:
        raise FileNotFoundError("redis-server is not installed")
    found = {**kernel.modules("zram"), "bin/redis-server": os.path.realpath(server)}
    text = subprocess.run(["ldd", server], check=True, stdout=subprocess.PIPE, text=True).stdout
    found.update({path.lstrip("/"): path for path in re.findall(r"(/\S+) \(0x", text)})
    for path, source in found.items():
        if isinstance(source, str):
            with open(source, "rb") as f:
                found[path] = f.read()
    return found


def boot(kernel, runs, binaries, **machine):
    """Boots a guest, in which runs (lines of `run_text`) take place one after the other; its files as text."""
    status, files = vm.run(kernel.elf, SETUP + runs, binaries, cpu=",la57=off", memory_mib=MEMORY_MIB,
                           texts=contents(kernel), **machine)  # fmt: skip
    files = {name: content.decode(errors="replace") for name, content in files.items()}
    if status != 0:
        reported = "".join(text for name, text in files.items() if name.endswith((".errors", ".log", "script.log")))
        raise vm.GuestFailed(f"the script in the guest failed with status {status}:\n{reported}")
    return files


def fields(text):
    """Lines of a name and a number."""
    return {line.split()[0]: int(line.split()[1]) for line in text.splitlines()}


class Run:
    """What one run left."""

    def __init__(self, name, files):
        self.name = name
        self._files = files
        answers = files[f"{name}.answers"].splitlines()
        self.answers = json.loads(answers[2])
        self.operations = self.answers["operations"]
        self.throughput = self.operations / self.answers["seconds"]
        self.status = files.get(f"{name}.status", "").strip()
        self.stats = [json.loads(line) for line in files.get(f"{name}.stats", "").splitlines()]

    def text(self, suffix):
        """One of its files."""
        return self._files[f"{self.name}.{suffix}"]

    def moved(self, file, field):
        """By how much a counter has moved while it was measured."""
        before, after = (fields(self.text(f"{when}.{file}"))[field] for when in ("before", "after"))
        return after - before

    def cpu_seconds(self):
        """CPU time of the whole guest in which something ran, while it was measured."""
        def busy(when):
            user, nice, system, _idle, _wait, irq, soft, *_ = map(int, self.text(f"{when}.cpu").split("\n")[0].split()[1:])
            return (user + nice + system + irq + soft) / 100

        return busy("after") - busy("before")

    def manager_seconds(self):
        """CPU time of what manages the group, and of processes that it has waited for, likewise."""
        def used(when):
            text = self._files.get(f"{self.name}.{when}.manager")
            return sum(map(int, text.rpartition(")")[2].split()[11:15])) / 100 if text else 0.0

        return used("after") - used("before")
