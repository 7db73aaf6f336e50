"""Rules of `isotherm node` over control groups of version 2: what rests goes to swap, and not below what `memory.low` protects."""

import json

import kernels

MIB = 1 << 20
SIZE, HOT, LOW = 64 * MIB, 16 * MIB, 48 * MIB
WORKLOAD = f"isotherm workload hotspot --size {SIZE} --hot 25% --seed 7 --rate 100000 --duration 10m --thp no"
GROUPS = "/sys/fs/cgroup"
PATIENCE_S = 120


def contents(kernel):
    """The modules that it needs."""
    return kernel.modules("zram")


def script():
    """The guest's script."""
    return f"""
set -e
{kernels.zram_swap(256)}
echo +memory >{GROUPS}/cgroup.subtree_control
workloads=
for group in free low; do
  mkdir {GROUPS}/$group
  sh -c 'echo $$ >{GROUPS}/'$group'/cgroup.procs; exec {WORKLOAD}' >/dev/null &
  workloads="$workloads $!"
done
echo {LOW} >{GROUPS}/low/memory.low
cat >node.toml <<END
pace = "64M/s"
[[rule]]
groups = ["/free", "/low"]
action = "reclaim"
min_age = "5s"
goal = "none"
END
isotherm node -c node.toml --cpu-budget 20% --socket /tmp/node.sock >node.log 2>&1 & node=$!
# So many seconds at most until what rests has gone; then some more, in which the other group's could go.
for i in $(seq {PATIENCE_S}); do
  kill -0 $node
  [ $(cat {GROUPS}/free/memory.swap.current) -lt {SIZE - HOT - 4 * MIB} ] || break
  sleep 1
done
sleep 15
isotherm ctl status --json --socket /tmp/node.sock >status.json
for group in free low; do
  for file in memory.current memory.swap.current memory.pressure; do cat {GROUPS}/$group/$file >$group.$file; done
done
kill -s TERM $node
wait $node && echo 0 >node.status || echo $? >node.status
kill -s TERM $workloads
wait $workloads || true
"""


def judge(name, files, results):
    """Compares what was seen with what must be."""
    check = results.check
    status = json.loads(files["status.json"])
    rules = {group["cgroup"]: group.get("rule") or {} for group in status["groups"]}

    def figure(group, file):
        return int(files[f"{group}.{file}"])

    left, swapped = figure("free", "memory.current"), figure("free", "memory.swap.current")
    check(left <= HOT + 12 * MIB and swapped >= SIZE - HOT - 8 * MIB, f"{name}: what rests has gone: {left // MIB} MiB left, {swapped // MIB} in swap")
    check(left >= HOT - MIB, f"{name}: what is in use has not")
    told = rules["/free"]
    check(abs(told["reclaimed_out"] - swapped) <= 4 * MIB, f"{name}: the node tells of {told['reclaimed_out'] // MIB} MiB that are out")
    check(told["refaulted"][1] <= 2 * MIB, f"{name}: {told['refaulted'][1] // MIB} MiB came back within a minute")
    left, swapped = figure("low", "memory.current"), figure("low", "memory.swap.current")
    check(left >= LOW - MIB, f"{name}: {left // MIB} MiB are left where memory.low protects {LOW // MIB}")
    check(swapped > 4 * MIB, f"{name}: and what it does not protect has gone, {swapped // MIB} MiB")
    told = rules["/low"]
    check(told["idle_code"] == "protected", f"{name}: the status says why no more goes: {told['idle_reason']}")
    check(files["node.status"].strip() == "0", f"{name}: the node ends well: {files['node.log'].strip()[-200:]}")
