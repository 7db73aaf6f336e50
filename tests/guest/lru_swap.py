"""`isotherm lru run --engine kernel` at work: redis with half the memory that it needs, and swap.

The client compares every value that it reads. The figures for all of the machine in /proc/vmstat tell apart who reclaimed: what is
reclaimed because a group met its limit counts for the group alone, what is evicted by command for the whole machine as well.
"""

import os

import overcommit

RECORDS = 20_000
WARM_UP_S, SECONDS = 1.0, 3.0
MACHINE = {"memory_mib": overcommit.MEMORY_MIB, **overcommit.COUNTED}
MIB = 1 << 20


contents = overcommit.contents


def programs(isotherm):
    """What it needs in the guest's /bin."""
    return {"isotherm": isotherm, "ycsb_client": os.path.join(os.path.dirname(isotherm), "ycsb_client")}


def script():
    """The guest's script."""
    knobs = "cat /sys/kernel/mm/lru_gen/enabled /sys/kernel/mm/lru_gen/min_ttl_ms >knobs"
    run = overcommit.run_text("run", "isotherm-kernel", "zipfian", RECORDS, 1, WARM_UP_S, SECONDS, "--min-ttl 1ms --on-thrash kill")
    return f"{overcommit.SETUP}\n{knobs}.before\n{run}\n{knobs}.after\n"


def youngest(text):
    """The number of the youngest generation of the group; one that was removed has the number 0."""
    (block,) = [b for b in text.split("memcg ")[1:] if not b.split()[0] == "0" and b.split()[1] == "/store"]
    return max(int(line.split()[0]) for line in block.splitlines()[2:] if len(line.split()) == 4)


def judge(name, files, results):
    """Compares what was seen with what must be."""
    check = results.check
    run = overcommit.Run("run", files)
    check(run.operations > 0 and run.text("errors") == "", f"{name}: {run.operations} requests, every value as written last")
    check(run.status == "0", f"{name}: lru run --engine kernel ends well: {run.text('log').strip()}")
    last = run.stats[-1]
    check(last["engine"] == "kernel" and last["walks"] > 0, f"{name}: it created {last['walks']} generations")
    first, now = (youngest(run.text(f"{when}.gens")) for when in ("before", "after"))
    check(now > 0 and now >= first, f"{name}: the youngest was {first}, is {now}")
    check(last["evicted"] > MIB and last["evict_ns"] > 0, f"{name}: it evicted {last['evicted'] // MIB} MiB")
    commanded, all_of_it = run.moved("vmstat", "pgsteal_direct"), run.moved("memory.stat", "pgsteal_direct")
    check(commanded > 0, f"{name}: {commanded} pages went by command")
    check(all_of_it - commanded < commanded, f"{name}: {all_of_it - commanded} pages were reclaimed at the limit")
    check(run.moved("memory.stat", "pgmajfault") > 0, f"{name}: {run.moved('memory.stat', 'pgmajfault')} pages came back from swap")
    needs, limit = int(run.text("needs")), int(run.text("max"))
    check(abs(limit - needs // 2) <= 4096, f"{name}: memory.max is what it was, {limit // MIB} MiB of the {needs // MIB} needed")
    check(last["used"] <= limit, f"{name}: {last['used'] // MIB} MiB in use at the end")
    check(files["knobs.before"] == files["knobs.after"], f"{name}: knobs are put back: {' '.join(files['knobs.after'].split())}")
