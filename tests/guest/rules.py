"""Rules of `isotherm node` over control groups of version 2: what rests goes to swap, and files that were read once leave memory, neither
below what `memory.low` protects, and nothing of what no rule names."""

import json

import kernels

MIB = 1 << 20
SIZE, HOT, LOW = 64 * MIB, 16 * MIB, 48 * MIB
WORKLOAD = f"isotherm workload hotspot --size {SIZE} --hot 25% --seed 7 --rate 100000 --duration 10m --thp no"
GROUPS = "/sys/fs/cgroup"
# Groups with a program that uses all of its memory, and with page cache: of a block device, since the guest has no disk.
USED, FILE, CACHE_LOW = 16 * MIB, 24 * MIB, 32 * MIB
USER = f"isotherm workload scan --size {USED} --rate 100000 --duration 10m --thp no"
CACHED = ("cache", "cachelow", "beside")
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
for group in {" ".join(CACHED)}; do
  mkdir {GROUPS}/$group
  sh -c 'echo $$ >{GROUPS}/'$group'/cgroup.procs; exec {USER}' >/dev/null &
  workloads="$workloads $!"
  device=$(cat /sys/class/zram-control/hot_add)
  echo {FILE} >/sys/block/zram$device/disksize
  [ -e /dev/zram$device ] || mknod /dev/zram$device b $(tr : ' ' </sys/block/zram$device/dev)
  # What a device has in memory goes when nobody has it open any more.
  sleep 600 </dev/zram$device & workloads="$workloads $!"
  sh -c 'echo $$ >{GROUPS}/'$group'/cgroup.procs; exec cat /dev/zram'$device >/dev/null
  cat {GROUPS}/$group/memory.stat >$group.before
done
echo {CACHE_LOW} >{GROUPS}/cachelow/memory.low
cat >node.toml <<END
pace = "64M/s"
[[rule]]
groups = ["/free", "/low"]
action = "reclaim"
min_age = "5s"
goal = "none"
[[rule]]
groups = ["/cache", "/cachelow"]
action = "reclaim"
min_age = "5s"
goal = "stall=5%"
page_cache = true
END
isotherm node -c node.toml --cpu-budget 20% --socket /tmp/node.sock >node.log 2>&1 & node=$!
# So many seconds at most until what rests has gone; then some more, in which the other group's could go.
for i in $(seq {PATIENCE_S}); do
  kill -0 $node
  left=$(sed -n 's/^inactive_file //p' {GROUPS}/cache/memory.stat)
  [ $(cat {GROUPS}/free/memory.swap.current) -lt {SIZE - HOT - 4 * MIB} ] || [ $left -gt {FILE // 4} ] || break
  sleep 1
done
sleep 15
isotherm ctl status --json --socket /tmp/node.sock >status.json
for group in free low {" ".join(CACHED)}; do
  for file in memory.current memory.swap.current memory.pressure memory.stat; do cat {GROUPS}/$group/$file >$group.$file; done
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
    reported = rules["/free"]
    check(abs(reported["reclaimed_out"] - swapped) <= 4 * MIB, f"{name}: the node tells of {reported['reclaimed_out'] // MIB} MiB that are out")
    check(reported["refaulted"][1] <= 2 * MIB, f"{name}: {reported['refaulted'][1] // MIB} MiB came back within a minute")
    left, swapped = figure("low", "memory.current"), figure("low", "memory.swap.current")
    check(left >= LOW - MIB, f"{name}: {left // MIB} MiB are left where memory.low protects {LOW // MIB}")
    check(swapped > 4 * MIB, f"{name}: and what it does not protect has gone, {swapped // MIB} MiB")
    reported = rules["/low"]
    check(reported["idle_code"] == "protected", f"{name}: the status says why no more goes: {reported['idle_reason']}")
    judge_cache(name, files, rules, check)
    check(files["node.status"].strip() == "0", f"{name}: the node ends well: {files['node.log'].strip()[-200:]}")


def judge_cache(name, files, rules, check):
    """What has become of page cache."""

    def cached(text):
        stat = dict(line.split() for line in text.splitlines())
        return int(stat["inactive_file"]) + int(stat["active_file"])

    before = {group: cached(files[f"{group}.before"]) for group in CACHED}
    after = {group: cached(files[f"{group}.memory.stat"]) for group in CACHED}
    check(min(before.values()) >= FILE - MIB, f"{name}: {before} bytes of page cache to begin with")
    check(after["cache"] <= FILE // 4 + MIB, f"{name}: what was read once has gone: {after['cache'] // MIB} of {FILE // MIB} MiB left")
    check(after["beside"] >= FILE - MIB, f"{name}: the group beside keeps all: {after['beside'] // MIB} MiB")
    reported = {group: rules[f"/{group}"].get("page_cache") for group in CACHED}
    gone = before["cache"] - after["cache"]
    check(
        abs(reported["cache"]["page_cache_reclaimed"] - gone) <= 3 * MIB,
        f"{name}: the node tells of {reported['cache']['page_cache_reclaimed'] // MIB} MiB of page cache that went, {gone // MIB} did",
    )
    check(reported["cache"]["page_cache_refaulted"] <= MIB, f"{name}: {reported['cache']['page_cache_refaulted'] // MIB} MiB were read again")
    check(reported["beside"] is None, f"{name}: no rule is for the group beside")
    left = int(files["cachelow.memory.current"])
    check(left >= CACHE_LOW - MIB, f"{name}: {left // MIB} MiB are left where memory.low protects {CACHE_LOW // MIB}, page cache included")
    check(after["cachelow"] <= before["cachelow"] - 2 * MIB, f"{name}: and of the rest {(before['cachelow'] - after['cachelow']) // MIB} MiB went")
    for group in CACHED:
        swapped = int(files[f"{group}.memory.swap.current"])
        # The little of a program that it does not use is paged out by the rule, which counts that.
        paged = rules[f"/{group}"].get("reclaimed_out") or 0
        check(
            swapped <= MIB and swapped <= paged + 64 * 1024,
            f"{name}: files alone go by memory.reclaim in {group}: of {swapped} bytes in swap pages have brought {paged} there",
        )
