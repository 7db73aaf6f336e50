"""A guest with two memory nodes: pages really move, in the shares that were asked for, and only the cold ones where only
those were meant."""

import json
import re

# Two nodes of memory, the CPUs on the first: the second is a slower tier.
_QEMU = [
    "-object", "memory-backend-ram,id=m0,size=512M", "-numa", "node,memdev=m0,cpus=0-1",
    "-object", "memory-backend-ram,id=m1,size=512M", "-numa", "node,memdev=m1",
]  # fmt: skip
MACHINE = {"memory_mib": 1024, "options": _QEMU}
WORKLOAD = "isotherm workload hotspot --size 64M --hot 25% --seed 7 --rate 250000 --tick 20ms --duration 10m --thp no"
MONITOR = "--sample 50ms --aggr 500ms --update 2s --max-regions 100 --cpu-budget 100% --mode scan"

EVEN = '[[scheme]]\naction = "migrate_hot"\ndestinations = [{ node = 0, weight = 1 }, { node = 1, weight = 3 }]\n'
ALL = '[[scheme]]\naction = "migrate_hot"\ntarget_nid = 0\n'
COLD = (
    '[[scheme]]\naction = "migrate_cold"\ntarget_nid = 1\n'
    '[scheme.pattern]\naccess_rate = ["0%", "0%"]\nage = ["1s", "max"]\n'
)


# The kernel's own balancing would bring hot pages back to the processors' node while we spread them.
BALANCING = "/proc/sys/kernel/numa_balancing"
# For some seconds it may: it marks the pages that lie on the other node, and those that nobody uses keep their marks.
MARK = f"""
echo 1 >{BALANCING}
for i in $(seq 60); do
  grep numa_pte_updates /proc/vmstat >marked
  read name count <marked
  [ $count -lt 12288 ] || break
  sleep 1
done
echo 0 >{BALANCING}
"""


def script():
    """The guest's script: three schemes on one workload, each for a while; where its pages are after each."""
    lines = ["set -e", "isotherm doctor --json >doctor.json", f"echo 0 >{BALANCING}"]
    lines += [f"{WORKLOAD} >/dev/null & workload=$!", "sleep 2", "cat /proc/$workload/numa_maps >before"]
    for name, scheme, duration, then in [("shares", EVEN, "4s", MARK), ("back", ALL, "4s", ""), ("cold", COLD, "12s", "")]:
        lines += [
            f"cat >{name}.toml <<'END'\n{scheme}END",
            f"isotherm schemes --pid $workload {MONITOR} -c {name}.toml --duration {duration} --stats {name}.stats",
            f"cat /proc/$workload/numa_maps >{name}",
            then,
        ]
    lines += ["kill -s TERM $workload; wait $workload || true"]
    return "\n".join(lines) + "\n"


def nodes(numa_maps):
    """Pages on either node of the largest mapping."""
    best = (0, 0)
    for line in numa_maps.splitlines():
        here = tuple(sum(int(n) for n in re.findall(rf" N{node}=(\d+)", line)) for node in (0, 1))
        best = max(best, here, key=sum)
    return best


def judge(name, files, results):
    """Compares what was seen with what was asked for."""
    doctor = json.loads(files["doctor.json"])
    usable = {a["name"]: a for a in doctor["actions"]}
    for action in ("migrate_hot", "migrate_cold", "hugepage", "nohugepage", "lock", "unlock"):
        a = usable[action]
        results.check(a["usable"], f"{name}: doctor says {action} works {a['reason']}{a['detail']}")
    marked = int(files["marked"].split()[1])
    results.check(marked >= 12288, f"{name}: the kernel's own balancing has marked {marked} pages")
    before, shares, back, cold = (nodes(files[f]) for f in ("before", "shares", "back", "cold"))
    results.check(before[0] > 16000 and before[1] == 0, f"{name}: pages on the nodes at first: {before}")
    total = sum(shares)
    results.check(
        total > 16000 and 0.73 < shares[1] / total < 0.77, f"{name}: weights 1 and 3 give shares of {shares} pages"
    )
    results.check(back[0] / sum(back) > 0.99, f"{name}: all back on the first node: {back}")
    # Three quarters are cold: 12288 pages. Hot ones may lie in a cold region's edge only if nobody touched them for 2 s.
    results.check(11500 < cold[1] < 12700, f"{name}: only the cold three quarters moved: {cold}")
