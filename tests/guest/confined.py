"""`isotherm schemes` with sources that few kernels have, confined as it is by default: it watches, acts, and puts back what it has
switched on."""

import json

import kernels

MIB = 1 << 20
SIZE, HOT = 64 * MIB, 16 * MIB
WORKLOAD = f"isotherm workload hotspot --size {SIZE} --hot 25% --seed 7 --rate 250000 --duration 20m --thp no"
# Emulation is slow: few regions and long intervals leave it time to keep them.
WATCH = "--sample 50ms --aggr 1s --update 2s --max-regions 100 --cpu-budget 100%"
# Hot memory is only counted, cold memory goes. Neither source flushes the TLB, so hot memory may go now and then, too.
SCHEMES = '--scheme "4K max 5 max min max stat" --scheme "4K max 0 0 3s max pageout"'
KDAMONDS = "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds"
PATIENCE_S = 120
# By their numbers in linux/capability.h.
EVERY = {"CAP_DAC_OVERRIDE": 1, "CAP_SYS_PTRACE": 19, "CAP_SYS_NICE": 23}
CAPABILITIES = {"damon": {**EVERY, "CAP_IPC_LOCK": 14, "CAP_PERFMON": 38}, "idle": {**EVERY, "CAP_SYS_ADMIN": 21}}


_WITHOUT_IDLE = f"""
# Neither Debian's kernels nor most others track idle pages: it says so, confined or not.
isotherm workload hotspot --size 4M --duration 10m >/dev/null & workload=$!
isotherm schemes --pid $workload --source idle {SCHEMES} --no-control --duration 1s >idle.log 2>&1 && echo 0 >idle.ended || echo $? >idle.ended
kill -s TERM $workload
wait $workload || true
"""


def contents(kernel):
    """The modules that it needs."""
    return kernel.modules("zram")


def script(source):
    """The guest's script, for `source`; with `damon` the kernel tracks no idle pages."""
    without_idle = _WITHOUT_IDLE if source == "damon" else ""
    return f"""
set -e
{kernels.zram_swap(256)}
{WORKLOAD} >/dev/null & workload=$!
sleep 2
run() {{
  isotherm schemes --pid $workload {WATCH} --source {source} {SCHEMES} --socket /tmp/$1.sock >$1.log 2>&1 & schemes=$!
  for i in $(seq {PATIENCE_S}); do
    kill -0 $schemes
    isotherm ctl status --json --socket /tmp/$1.sock >$1.json 2>$1.why || true
    swapped=$(sed -n 's/^VmSwap:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$workload/status)
    [ $swapped -lt {SIZE // 1024 // 4} ] || ! grep -q '"sz_applied":[1-9]' $1.json || break
    sleep 1
  done
  echo $swapped >$1.swapped
  for task in /proc/$schemes/task/*; do grep -h -e ^Cap -e ^NoNewPrivs -e ^Seccomp: $task/status; done | sort | uniq -c >$1.threads
  ls /proc/$schemes/task | wc -l >$1.count
  cat {KDAMONDS} >$1.on 2>/dev/null || true
  kill -s $2 $schemes
  wait $schemes && echo 0 >$1.ended || echo $? >$1.ended
  for i in $(seq 60); do ! grep -qs 1 {KDAMONDS} || sleep 1; done
  cat {KDAMONDS} >$1.off 2>/dev/null || true
}}
run ended TERM
run killed KILL
kill -s TERM $workload
wait $workload || true
{without_idle}"""


def judge(name, files, results, source):
    """Compares what was seen with what must be."""
    check = results.check
    capabilities = CAPABILITIES[source]
    mask = f"{sum(1 << number for number in capabilities.values()):016x}"
    for run, status in (("ended", "0"), ("killed", "137")):
        said = json.loads(files[run + ".json"])
        sandbox = said["sandbox"]
        check(sandbox["on"] and set(sandbox["capabilities"]) == set(capabilities), f"{name}, {run}: confined, with {sandbox['capabilities']}")
        threads = int(files[run + ".count"])
        lines = {key: (int(count), value) for count, key, value in (line.split() for line in files[run + ".threads"].splitlines())}
        expected = {"NoNewPrivs:": "1", "Seccomp:": "2", "CapEff:": mask, "CapPrm:": mask, "CapBnd:": mask}
        wrong = {key: lines.get(key) for key, value in expected.items() if lines.get(key) != (threads, value)}
        check(threads > 1 and not wrong, f"{name}, {run}: the kernel says so of all {threads} threads {wrong or ''}")
        hot = said["schemes"][0]["sz_tried"]
        check(said["monitor"]["source"] == source and hot > 0, f"{name}, {run}: {source} has seen {hot / MIB:.0f} MiB in use")
        swapped = int(files[run + ".swapped"])
        check(swapped * 1024 >= SIZE // 4, f"{name}, {run}: {swapped >> 10} MiB went out: {files[run + '.log'].strip()}")
        ended, on, off = (files[f"{run}.{what}"].strip() for what in ("ended", "on", "off"))
        if source == "damon":
            check((on, off) == ("1", "0"), f"{name}, {run}: it leaves {off} of {on} kdamonds switched on")
        check(ended == status, f"{name}, {run}: status {ended}")
    if "idle.log" in files:
        said = files["idle.log"]
        check(files["idle.ended"].strip() == "3" and "CONFIG_IDLE_PAGE_TRACKING" in said, f"{name}: idle is not there: {said.strip()}")
