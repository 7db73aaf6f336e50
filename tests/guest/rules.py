"""Rules of `isotherm node` over control groups of version 2: what rests goes to swap, and files that were read once leave memory, neither
below what `memory.low` protects, and nothing of what no rule names. Where memory.reclaim does not take `swappiness=0` (6.1), files stay as long as
there is swap."""

import json

import kernels

MIB = 1 << 20
SIZE, HOT, LOW = 64 * MIB, 16 * MIB, 48 * MIB
WORKLOAD = f"isotherm workload hotspot --size {SIZE} --hot 25% --seed 7 --rate 100000 --tick 20ms --duration 10m --thp no"
GROUPS = "/sys/fs/cgroup"
# Groups with a program that uses all of its memory, and with page cache: of a block device, since the guest has no disk.
USED, FILE, CACHE_LOW = 16 * MIB, 24 * MIB, 32 * MIB
USER = f"isotherm workload scan --size {USED} --rate 100000 --tick 20ms --duration 10m --thp no"
CACHED = ("cache", "cachelow", "beside")
PATIENCE_S = 120
# Two nodes may take all of their patience.
MACHINE = {"timeout_s": 480}
# What the names of the files of a run without swap end with.
NO_SWAP = ".no_swap"


def contents(kernel):
    """The modules that it needs."""
    return kernel.modules("zram")


def script(takes_swappiness):
    """The guest's script. `takes_swappiness`: whether the kernel's memory.reclaim does, as it does since Linux 6.9."""
    gone = f"$(cat {GROUPS}/free/memory.swap.current) -ge {SIZE - HOT - 4 * MIB} ] && [ $(cat {GROUPS}/low/memory.current) -le {LOW + MIB}"
    dropped = f"$(sed -n 's/^inactive_file //p' {GROUPS}/cache/memory.stat) -le {FILE // 4}"
    if takes_swappiness:
        acts = _act("", "node.toml", f"[ {gone} ] && [ {dropped} ]")
    else:
        acts = _act("", "node.toml", f"[ {gone} ]") + "swapoff /dev/zram0" + _act(NO_SWAP, "cache.toml", f"[ {dropped} ]")
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
cat >cache.toml <<END
pace = "64M/s"
[[rule]]
groups = ["/cache", "/cachelow"]
action = "reclaim"
min_age = "5s"
goal = "stall=5%"
page_cache = true
END
cat cache.toml - >node.toml <<END
[[rule]]
groups = ["/free", "/low"]
action = "reclaim"
min_age = "5s"
goal = "none"
END
{acts}
kill -s TERM $workloads
wait $workloads || true
"""


def _act(suffix, config, done):
    """Lines in which a node acts, and what is seen then goes into files whose names end like this."""
    return f"""
isotherm node -c {config} --cpu-budget 20% --socket /tmp/node.sock >node.log{suffix} 2>&1 & node=$!
# So many seconds at most until what rests has gone; then some more, in which the other group's could go.
for i in $(seq {PATIENCE_S}); do
  kill -0 $node
  if {done}; then break; fi
  sleep 1
done
sleep 15
isotherm ctl status --json --socket /tmp/node.sock >status.json{suffix}
for group in free low {" ".join(CACHED)}; do
  for file in memory.current memory.swap.current memory.pressure memory.stat; do cat {GROUPS}/$group/$file >$group.$file{suffix}; done
done
kill -s TERM $node
wait $node && echo 0 >node.status{suffix} || echo $? >node.status{suffix}
"""


def _rules(files, suffix=""):
    """What the node said of its rules, by group."""
    return {group["cgroup"]: group.get("rule") or {} for group in json.loads(files[f"status.json{suffix}"])["groups"]}


def judge(name, files, results, takes_swappiness):
    """Compares what was seen with what must be."""
    check = results.check
    rules = _rules(files)

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
    if takes_swappiness:
        judge_cache(name, files, "", check)
    else:
        kept = _cached(files["cache.memory.stat"])
        check(kept >= FILE - MIB, f"{name}: with swap page cache stays, {kept // MIB} MiB, since anonymous memory would go as well")
        reported = rules["/cache"]["page_cache"]
        check(reported["idle_code"] == "anonymous_too", f"{name}: which the status says: {reported['idle_reason']}")
        judge_cache(name, files, NO_SWAP, check)
    for group in CACHED:
        swapped = int(files[f"{group}.memory.swap.current"])
        # The little of a program that it does not use is paged out by the rule, which counts that.
        paged = rules[f"/{group}"].get("reclaimed_out") or 0
        check(
            swapped <= MIB and swapped <= paged + 64 * 1024,
            f"{name}: files alone go by memory.reclaim in {group}: of {swapped} bytes in swap pages have brought {paged} there",
        )
    for log in [file for file in files if file.startswith("node.log")]:
        status = files[log.replace("log", "status")].strip()
        check(status == "0", f"{name}: the node ends well: {files[log].strip()[-200:]}")


def _cached(text):
    """Page cache of a group by its memory.stat, bytes."""
    stat = dict(line.split() for line in text.splitlines())
    return int(stat["inactive_file"]) + int(stat["active_file"])


def judge_cache(name, files, suffix, check):
    """What has become of page cache by the end of a run of the node."""
    rules = _rules(files, suffix)
    before = {group: _cached(files[f"{group}.before"]) for group in CACHED}
    after = {group: _cached(files[f"{group}.memory.stat{suffix}"]) for group in CACHED}
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
    left = int(files[f"cachelow.memory.current{suffix}"])
    check(left >= CACHE_LOW - MIB, f"{name}: {left // MIB} MiB are left where memory.low protects {CACHE_LOW // MIB}, page cache included")
    check(after["cachelow"] <= before["cachelow"] - 2 * MIB, f"{name}: and of the rest {(before['cachelow'] - after['cachelow']) // MIB} MiB went")
