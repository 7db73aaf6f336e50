"""The kernel's own generations (MGLRU) through `isotherm lru --engine kernel`: what it reports and creates, and what it refuses.

The guest has no swap: eviction is asked for and accepted, `run` says why it does not begin."""

import json

GROUP = "/sys/fs/cgroup/app"
SIZE_MIB = 64
WORKLOAD = f"isotherm workload hotspot --size {SIZE_MIB}M --hot 25% --seed 7 --rate 250000 --tick 20ms --duration 10m --thp no"


def script():
    """The guest's script."""
    return f"""
mount -t debugfs none /sys/kernel/debug 2>/dev/null || true
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir {GROUP}
cat /sys/kernel/mm/lru_gen/enabled >before
if grep -q 0x0000 before; then
  isotherm lru report --engine kernel --cgroup app >off 2>&1; echo $? >off.status
  echo y >/sys/kernel/mm/lru_gen/enabled
fi
sh -c 'echo $$ >{GROUP}/cgroup.procs; exec {WORKLOAD}' >/dev/null & workload=$!
sleep 4
isotherm lru report --engine kernel --cgroup app --json >first.json || exit 1
for i in 1 2 3; do isotherm lru age --engine kernel --cgroup app || exit 2; sleep 2; done
isotherm lru report --engine kernel --cgroup app --json >aged.json || exit 3
isotherm lru report --cgroup app --kernel-text >aged.text || exit 4
grep -A 9 app /sys/kernel/debug/lru_gen >kernel.text
isotherm lru report --engine kernel --pid $workload >table || exit 5
isotherm lru evict --engine kernel --cgroup app --min-gen 0 >evict 2>&1; echo $? >evict.status
isotherm lru evict --engine kernel --cgroup app --min-gen 99 >young 2>&1; echo $? >young.status
isotherm lru run --engine kernel --cgroup app --limit 32M --duration 3s >run 2>&1; echo $? >run.status
isotherm lru run --engine kernel --cgroup app --limit 32M --duration 2s --swappiness 0 --min-ttl 1s --on-thrash kill --stats stats >files 2>&1
echo $? >files.status
cat /sys/kernel/mm/lru_gen/min_ttl_ms >ttl
isotherm lru run --engine kernel --cgroup app --limit 32M --swappiness 0 --min-ttl 1s --on-thrash kill >killed 2>&1 &
run=$!
for _ in $(seq 600); do [ "$(cat /sys/kernel/mm/lru_gen/min_ttl_ms)" = 1000 ] && break; sleep 0.1; done
cat /sys/kernel/mm/lru_gen/min_ttl_ms >ttl.held
kill -9 $run; wait $run || true
for _ in $(seq 600); do [ "$(cat /sys/kernel/mm/lru_gen/min_ttl_ms)" = 0 ] && break; sleep 0.1; done
cat /sys/kernel/mm/lru_gen/min_ttl_ms >ttl.killed
isotherm lru report --engine user --pid $workload --duration 6s --interval 2s --json >user.json || exit 6
kill -s TERM $workload; wait $workload || true
"""


def generations(text):
    """The generations of the only line, the oldest first, and the bytes in all of them."""
    (line,) = [json.loads(line) for line in text.splitlines()]
    return line["generations"], sum(g["anon_bytes"] for g in line["generations"])


def judge(name, files, results):
    """Compares what was seen with what must be."""
    check = results.check
    if "off" in files:
        check(files["off.status"].strip() == "3" and "echo y" in files["off"], f"{name}: switched off is reported with the remedy")
    first, _ = generations(files["first.json"])
    aged, size = generations(files["aged.json"])
    check(2 <= len(first) <= 4 and 2 <= len(aged) <= 4, f"{name}: {len(first)} and {len(aged)} generations")
    newer = aged[-1]["seq"] - first[-1]["seq"]
    check(newer >= 3, f"{name}: three ageings create {newer} generations")
    check(size >> 20 >= SIZE_MIB - 8, f"{name}: {size >> 20} MiB in them")
    old = sum(g["anon_bytes"] for g in aged[:-2]) >> 20
    check(old >= SIZE_MIB // 2, f"{name}: {old} MiB are old; a quarter is in use")
    check("app" in files["aged.text"] and " node     0" in files["aged.text"], f"{name}: the kernel's text form")
    check("generation" in files["table"], f"{name}: a process stands for its group")
    check(files["evict.status"].strip() == "0", f"{name}: eviction is accepted: {files['evict'].strip()}")
    check(files["young.status"].strip() == "2", f"{name}: the youngest are not evicted: {files['young'].strip()}")
    check(files["run.status"].strip() == "3" and "no swap" in files["run"], f"{name}: run without swap: {files['run'].strip()}")
    check(files["files.status"].strip() == "0", f"{name}: files only: {files['files'].strip()}")
    check(files["ttl"].strip() == "0", f"{name}: min_ttl_ms is put back")
    held, killed = files["ttl.held"].strip(), files["ttl.killed"].strip()
    check((held, killed) == ("1000", "0"), f"{name}: and after kill -9 ({held}, then {killed}; {files['killed'].strip()[-100:]!r})")
    line = json.loads(files["stats"].splitlines()[-1])
    check(line["engine"] == "kernel" and line["used"] >> 20 >= SIZE_MIB - 8, f"{name}: {line['used'] >> 20} MiB used")
    own, _ = generations(files["user.json"])
    young = own[-1]["anon_bytes"] >> 20
    check(12 <= young <= 28, f"{name}: our own generations: {young} MiB of the youngest, of 16 in use")
