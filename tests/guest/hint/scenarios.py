"""What is tried in a guest, each with its checks. A scenario takes a running machine."""

import json
import random
import time

from fakehost import FakeHost
from held import Held
from machine import GuestError

MIB = 1 << 20
# Emulation on a busy machine is slow: deadlines are there to end, not to measure.
PATIENCE_S = 90
# Longer than any way of isolating memory pauses between two attempts.
REST_MS = 12_000


def agent(machine, options="", log="agent.log", budget="none"):
    """Starts the agent in the guest; its pid. It goes on while the guest is busy, unless a budget is given."""
    pid = machine.start(f"isotherm hint guest --interval 200ms --stats --cpu-budget {budget} {options}", log)
    machine.wait_for(lambda: "hinting" in machine.cat(f"/tmp/{log}"), PATIENCE_S, "the agent starts")
    return pid


def check_confined(machine, check, pid, log="agent.log"):
    """It has one capability (CAP_IPC_LOCK), a filter of system calls, and Landlock, which Debian's kernels have."""
    found = machine.sh(f"grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/{pid}/status").split()
    check(found == ["CapEff:", "0000000000004000", "NoNewPrivs:", "1", "Seccomp:", "2"], f"the agent is confined {found}")
    check("no Landlock" not in machine.cat(f"/tmp/{log}"), "Landlock restricts its files")


def _lines(machine, log):
    """The whole lines of JSON that the agent printed."""
    return [line for line in machine.cat(f"/tmp/{log}").splitlines() if line.startswith("{") and line.endswith("}")]


def status(machine, log="agent.log"):
    """The last of them."""
    lines = _lines(machine, log)
    return json.loads(lines[-1]) if lines else {}


def later(machine, pause_ms=1000, log="agent.log"):
    """What the agent says of itself after another `pause_ms`."""
    since = status(machine, log)["ms"]
    return machine.wait_for(lambda: (now := status(machine, log))["ms"] >= since + pause_ms and now, PATIENCE_S, "the agent goes on")


def rests(machine, what, log="agent.log"):
    """Waits until the agent has nothing to do: too little is new, or for some time it took none of what it must leave free."""
    seen = []

    def at_rest():
        now = status(machine, log)
        if not now.get("host"):
            return False
        if now["rest"].startswith("too little"):
            return True
        if not now["rest"].endswith("left to programs") or now["isolated"] > 0:
            seen.clear()
            return False
        seen[:] = [s for s in seen if s["counters"] == now["counters"]] + [now]
        return now["ms"] - seen[0]["ms"] >= REST_MS

    try:
        machine.wait_for(at_rest, PATIENCE_S, what)
    except GuestError as error:
        raise GuestError(f"{error}: {status(machine, log)}") from None


def terminate(machine, pid):
    machine.sh(f"kill -s TERM {pid}")
    machine.wait_exit(pid, PATIENCE_S)


def stop(machine, pid, check, log="agent.log"):
    """SIGTERM; everything must be as it was."""
    terminate(machine, pid)
    check_restored(machine, check, "after SIGTERM")


def check_restored(machine, check, when):
    check(machine.sh("pidof isotherm || true").strip() == "", f"{when}: no process is left")
    check(offline_blocks(machine) == [], f"{when}: all memory blocks are online")
    pool = machine.sh("cd /sys/kernel/mm/hugepages/hugepages-2048kB; cat nr_hugepages nr_overcommit_hugepages resv_hugepages")
    check(pool.split() == ["0", "0", "0"], f"{when}: the pool of huge pages is as it was {pool.split()}")
    check(len(machine.sh("cat /proc/sysvipc/shm").splitlines()) == 1, f"{when}: no shared memory segment is left")
    policy = machine.sh("cat /proc/sys/vm/overcommit_memory").strip()
    check(policy == "0", f"{when}: vm.overcommit_memory is as it was ({policy})")
    check(machine.sh("ls /run/isotherm/hint-guest").strip() == "", f"{when}: the ledger is empty")


def kib(machine, field):
    return int(machine.sh(f"awk '/^{field}:/ {{print $2}}' /proc/meminfo"))


def offline_blocks(machine):
    return machine.sh("grep -l offline /sys/devices/system/memory/memory*/state || true").split()


def hog(machine, mib):
    """A program takes memory and ends; what the host holds more afterwards."""
    before = machine.resident()
    machine.sh(f"guest_load hog {mib}", timeout_s=PATIENCE_S)
    return machine.resident() - before


def settled(machine, limit, patience_s):
    """Waits until the host holds at most `limit` bytes; the seconds that it took, or None."""
    begin = time.monotonic()
    while time.monotonic() < begin + patience_s:
        if machine.resident() <= limit:
            return time.monotonic() - begin
        time.sleep(0.05)
    return None


def gives_back(machine, check, mib, options="", patience_s=60):
    """At least nine tenths of what a program used come back, and the rest of the guest is untouched."""
    machine.sh("dd if=/dev/urandom of=/tmp/file bs=1M count=16 2>/dev/null; sha256sum /tmp/file >/tmp/file.sum")
    held = Held(machine, 32)
    with FakeHost(machine) as host:
        pid = agent(machine, options)
        check_confined(machine, check, pid)
        # What was free from the beginning goes first, so that the program's memory can be distinguished.
        rests(machine, "the first pass ends")
        base = machine.resident()
        ticks = machine.busy_ticks()
        machine.sh(f"guest_load hog {mib}", timeout_s=PATIENCE_S)
        # While it ran, little of it can have gone.
        peak = base + mib * MIB
        took = settled(machine, peak - 0.9 * mib * MIB, patience_s)
        got = (peak - machine.resident()) / (mib * MIB)
        check(took is not None, f"{100 * got:.0f} % of {mib} MiB are back "
              + (f"{took:.1f} s after the program's end" if took is not None else f"within {patience_s} s, 90 % are asked for"))  # fmt: skip
        now = status(machine)
        check(host.bad == [], f"every report was well-formed, isolated and in RAM {host.bad[:3]}")
        print(f"     {machine.name}: by {now['way']}, agent {now['rss'] / MIB:.1f} MiB, {now['cpu_us'] / 1000:.0f} ms CPU, "
              f"guest busy {10 * (machine.busy_ticks() - ticks)} ms, longest step {now['longest_step_us'] / 1000:.0f} ms", flush=True)  # fmt: skip
        stop(machine, pid, check)
    held.check(check)
    check("OK" in machine.sh("sha256sum -c /tmp/file.sum"), "a file in tmpfs is intact", damage=True)
    machine.sh("rm -f /tmp/file /tmp/file.sum")


def start_churn(machine, seconds, mib, how_many=3):
    """Programs that allocate, check and free all the time."""
    return [machine.start(f"guest_load churn {mib} {seconds} {seed + 11}", f"churn{seed}.log") for seed in range(how_many)]


def check_churn(machine, check, churners, what):
    for seed, pid in enumerate(churners):
        machine.wait_exit(pid, PATIENCE_S + 60)
        text = machine.cat(f"/tmp/churn{seed}.log")
        check(text.startswith("intact"), f"{what}: churning program {seed}: {text[-120:]!r}", damage=True)
    check(machine.troubles() == [], f"{what}: the kernel is fine {machine.troubles()[:2]}", damage=True)


def churn(machine, check, seconds, mib, options=""):
    """Nothing is lost while programs allocate and free and hints go on."""
    with FakeHost(machine) as host:
        pid = agent(machine, options)
        churners = start_churn(machine, seconds, mib)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            # Free memory that was reported once is new again once it was used.
            machine.sh(f"guest_load hog {mib}", timeout_s=PATIENCE_S)
        check_churn(machine, check, churners, f"{seconds} s of churn")
        check(host.dropped > 0 and host.bad == [], f"{host.dropped // MIB} MiB were dropped in {host.batches} batches meanwhile")
        stop(machine, pid, check)


def killed_agent(machine, check, mib, options=""):
    """The agent dies between isolating and releasing; the host acts later, while others want memory."""
    with FakeHost(machine) as host:
        host.hold = True
        pid = agent(machine, options)
        hog(machine, mib)
        host.wait_for(lambda: host.held, PATIENCE_S, "a report comes")
        way = status(machine).get("way")
        machine.sh(f"kill -9 {pid}")
        machine.wait_exit(pid, PATIENCE_S)
        # Whoever allocates now must not get what the host is about to drop.
        churners = start_churn(machine, 6, mib // 8)
        time.sleep(2)
        host.let_go()
        check(host.dropped > 0, f"the host dropped {host.dropped // MIB} MiB, isolated by {way}, after the agent's death")
        check_churn(machine, check, churners, f"agent killed with {way}")
        pid = agent(machine, options, "agent2.log")
        machine.wait_for(lambda: "back in use" in machine.cat("/tmp/agent2.log"), PATIENCE_S, "the next agent puts things back")
        machine.wait_for(lambda: status(machine, "agent2.log").get("isolated") == 0, PATIENCE_S, "nothing is isolated")
        stop(machine, pid, check)


def late_host(machine, check, mib, options=""):
    """The host answers for some reports and is late with one: what is given back meanwhile is nothing of that report."""
    with FakeHost(machine) as host:
        hog(machine, mib)
        pid = agent(machine, options)
        for turn in range(3):
            answered = host.batches
            host.wait_for(lambda: host.batches >= answered + 3, PATIENCE_S, "some reports are answered")  # noqa: B023
            host.hold = True
            host.wait_for(lambda: host.held, PATIENCE_S, "a report comes")
            # Takes what is free while the report waits, and still has it when the host acts upon that.
            churners = start_churn(machine, 6, mib // 4)
            time.sleep(3)
            segments = len(machine.sh("cat /proc/sysvipc/shm").splitlines()) - 1
            check(segments > 0, f"a report is answered late, {turn}: what it is about is held, in {segments} segments")
            host.let_go()
            check_churn(machine, check, churners, f"a report is answered late, {turn}")
            hog(machine, mib)
        check(host.bad == [] and host.dropped > 0, f"nothing wrong was said; {host.dropped // MIB} MiB were dropped {host.bad[:3]}")
        stop(machine, pid, check)


def busy(machine, check, seconds, options=""):
    """A guest without a processor to spare is left alone, and hinted as soon as it has one."""
    with FakeHost(machine) as host:
        churners = start_churn(machine, seconds, 20)
        pid = agent(machine, options, budget="0.1%")
        waits = "the guest is busy"
        machine.wait_for(lambda: status(machine).get("rest", "").startswith(waits), PATIENCE_S, "the agent sees that the guest is busy")
        check_churn(machine, check, churners, "busy")
        states = map(json.loads, _lines(machine, "agent.log"))
        passes = [s["counters"]["passes"] for s in states if s["rest"].startswith(waits)]
        check(len(passes) > 1 and passes[-1] == 0, f"no pass begins while it is: {passes}")
        host.wait_for(lambda: host.dropped > 0, PATIENCE_S, "memory is dropped once the guest is calm")
        check(host.bad == [], f"nothing wrong was said {host.bad[:3]}")
        stop(machine, pid, check)


def killed_host(machine, check, mib, options=""):
    """The host goes away before it answers: nothing is dropped, what was isolated is free again, and the next host gets it."""
    with FakeHost(machine) as host:
        host.hold = True
        pid = agent(machine, options)
        hog(machine, mib)
        host.wait_for(lambda: host.held, PATIENCE_S, "a report comes")
        held = machine.resident()
        host.disconnect()
        machine.wait_for(lambda: status(machine).get("isolated") == 0, PATIENCE_S, "what was isolated is returned")
        check(not status(machine)["host"], "the agent knows that its host is gone")
        churners = start_churn(machine, 4, mib // 8)
        check_churn(machine, check, churners, "host gone")
        host.hold = False
        host.connect()
        took = settled(machine, held - 0.8 * mib * MIB, PATIENCE_S)
        check(took is not None, f"the next host gets the memory ({(held - machine.resident()) // MIB} of {mib} MiB)")
        check(host.bad == [], f"nothing wrong was said {host.bad[:3]}")
        stop(machine, pid, check)


def bad_line(machine, check, seconds, mib, options=""):
    """Reports and answers are lost and come twice."""
    with FakeHost(machine) as host:
        host.lose_ack, host.lose_report, host.double = 0.15, 0.15, 0.3
        pid = agent(machine, options)
        churners = start_churn(machine, seconds, mib // 8)
        before = machine.resident()
        hog(machine, mib)
        check_churn(machine, check, churners, "a bad line")
        host.lose_ack = host.lose_report = 0
        machine.wait_for(lambda: host.dropped > mib * MIB / 2, PATIENCE_S, "memory is dropped all the same")
        check(host.bad == [], f"nothing wrong was said; {host.reports} reports, {host.repeated} again, {host.stale} stale")
        print(f"     {machine.name}: from {before // MIB} to {machine.resident() // MIB} MiB", flush=True)
        stop(machine, pid, check)


def silent_host(machine, check, mib, options=""):
    """SIGTERM while the host does not answer: what it may still drop stays isolated, and the next start puts it back."""
    with FakeHost(machine) as host:
        host.hold = True
        pid = agent(machine, options)
        hog(machine, mib)
        host.wait_for(lambda: host.held, PATIENCE_S, "a report comes")
        machine.sh(f"kill -s TERM {pid}")
        machine.wait_exit(pid, PATIENCE_S)
        check("stays isolated" in machine.cat("/tmp/agent.log"), "the agent says that memory stays isolated, and why")
        churners = start_churn(machine, 3, mib // 8)
        host.let_go()
        check_churn(machine, check, churners, "host that answers after the agent's end")
        machine.sh(f"isotherm hint guest --once {options} >/tmp/once.log 2>&1", timeout_s=PATIENCE_S)
        check("back in use" in machine.cat("/tmp/once.log"), "the next agent puts it back")
        check_restored(machine, check, "after --once")


def killed_often(machine, check, times, mib, options=""):
    """`kill -9` at any moment, again and again."""
    moments = random.Random(3)
    with FakeHost(machine) as host:
        churners = start_churn(machine, 2 * times, mib // 8)
        for _ in range(times):
            pid = agent(machine, options)
            machine.start(f"guest_load hog {mib // 3}", "hog.log")
            time.sleep(moments.uniform(0.1, 1.2))
            machine.sh(f"kill -9 {pid}")
            machine.wait_exit(pid, PATIENCE_S)
        check_churn(machine, check, churners, f"agent killed {times} times")
        check(host.bad == [], f"nothing wrong was said, {host.dropped // MIB} MiB were dropped in {host.batches} batches {host.bad[:3]}")
        pid = agent(machine, options)
        rests(machine, "the last agent comes to rest")
        stop(machine, pid, check)


def balloon(machine, check, mib):
    """The balloon's free page reporting, for comparison; the agent leaves the work to it."""
    log = machine.sh("isotherm hint guest --once --connect unix:/nowhere 2>&1", check=False)
    check("only watching" in log, f"the agent leaves the work to the balloon: {log.strip()[:120]!r}")
    time.sleep(4)  # what is free from the beginning is reported
    base, ticks = machine.resident(), machine.busy_ticks()
    machine.sh(f"guest_load hog {mib}", timeout_s=PATIENCE_S)
    took = settled(machine, base + 0.1 * mib * MIB, 60)
    busy = 10 * (machine.busy_ticks() - ticks)
    back = 100 * (base + mib * MIB - machine.resident()) / (mib * MIB)
    print(f"     {machine.name}, the balloon: {back:.0f} % of {mib} MiB are back "
          + (f"{took:.1f} s after the program's end" if took is not None else "after 60 s") + f", guest busy {busy} ms", flush=True)  # fmt: skip


def check_oom(machine, check):
    """The kernel may have ended the agent's own holder, and nobody else."""
    killed = machine.sh("dmesg | grep 'Killed process' || true").splitlines()
    others = [line for line in killed if "(isotherm)" not in line]
    check(others == [], f"no program was ended for want of memory, the agent's holder {len(killed)} times {others[:1]}")


def burst(machine, check, times, part, options=""):
    """A program wants nearly all memory in the very moment in which most of it is isolated."""
    with FakeHost(machine) as host:
        free = kib(machine, "MemAvailable") // 1024
        mib = int(free * part)
        for turn in range(times):
            pid = agent(machine, options, f"burst{turn}.log")
            machine.wait_for(lambda: "reporting to" in machine.cat(f"/tmp/burst{turn}.log"), PATIENCE_S, "the host is there")  # noqa: B023
            text = machine.sh(f"guest_load hog {mib}", timeout_s=PATIENCE_S, check=False)
            check(text.startswith("hog"), f"burst {turn}: a program gets {mib} of {free} MiB at once: {text.strip()[-60:]!r}")
            stop(machine, pid, check, f"burst{turn}.log")
        check_oom(machine, check)
        check(host.bad == [] and host.dropped > 0, f"{host.dropped // MIB} MiB were dropped meanwhile {host.bad[:3]}")


def set_overcommit(machine, policy):
    machine.sh(f"echo {policy} >/proc/sys/vm/overcommit_memory")


def map_beside(machine, check, seconds, mib, hog_mib, way):
    """A program maps `mib` at once, again and again, while memory is isolated."""
    with FakeHost(machine) as host:
        pid = agent(machine, f"--isolate {way}")
        mapper = machine.start(f"guest_load map {mib} {seconds}", "map.log")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            machine.sh(f"guest_load hog {hog_mib}", timeout_s=PATIENCE_S)
        machine.wait_exit(mapper, PATIENCE_S + seconds)
        text = machine.cat("/tmp/map.log").strip()
        check(text.startswith("mapped"), f"a program maps {mib} MiB at any time: {text!r}")
        check(host.dropped > 0 and status(machine)["way"] == way, f"{host.dropped // MIB} MiB were dropped meanwhile by {way}")
        terminate(machine, pid)


def maps_nearly_all(machine, check, seconds, part, hog_mib):
    """A memory block that is offline is not missed by who maps nearly all memory; where the kernel would miss it, none goes."""
    map_beside(machine, check, seconds, int(kib(machine, "MemTotal") * part) // 1024, hog_mib, "offline")
    check_restored(machine, check, "after SIGTERM")
    set_overcommit(machine, 2)
    text = machine.sh("isotherm hint guest --once --isolate offline 2>&1", timeout_s=PATIENCE_S, check=False)
    check("overcommit_memory is 2" in text, f"where the kernel keeps account of what it promises, no block goes: {text.strip()[-160:]!r}")
    set_overcommit(machine, 0)


def maps_what_it_may(machine, check, seconds, part, hog_mib):
    """Where the kernel keeps account of what it promises, `part` of the rest can be mapped at any time beside huge pages that are isolated."""
    set_overcommit(machine, 2)
    left = kib(machine, "CommitLimit") - kib(machine, "Committed_AS")
    map_beside(machine, check, seconds, int(left * part) // 1024 - hog_mib, hog_mib, "touch")
    set_overcommit(machine, 0)
    check_restored(machine, check, "after SIGTERM")


def pressure(machine, check, mib, options=""):
    """The guest needs all of its memory while memory is isolated."""
    with FakeHost(machine) as host:
        pid = agent(machine, options)
        hog(machine, mib)
        # More than is free without what may be isolated: an agent that holds on to it would have somebody killed.
        free = kib(machine, "MemAvailable") // 1024
        for _ in range(3):
            machine.sh(f"guest_load hog {free - 48}", timeout_s=PATIENCE_S)
        check(True, f"a program could use {free - 48} of {free} MiB")
        check_oom(machine, check)
        check(host.bad == [], f"nothing wrong was said {host.bad[:3]}")
        stop(machine, pid, check)
