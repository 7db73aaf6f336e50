"""The negative control: a host that drops memory which is not isolated any more, and the checks that must notice.

That everything is intact says something only if the same checks can say otherwise.
"""

import scenarios
from fakehost import FakeHost
from held import Held
from machine import GuestError

MIB = 1 << 20
# What is left to do once memory was taken from under the guest. A kernel that hangs has noticed, too.
PATIENCE_S = 15


def is_noticed(machine, check, mib):
    """What programs hold is dropped under them, as by a host that answers first and drops afterwards."""
    with FakeHost(machine) as host:
        host.answer_first = True
        pid = scenarios.agent(machine)
        machine.sh(f"guest_load hog {mib}", timeout_s=scenarios.PATIENCE_S)
        overdue = lambda: sum(end - start for start, end in host.overdue)  # noqa: E731
        host.wait_for(lambda: overdue() >= 3 * mib * MIB // 4, scenarios.PATIENCE_S, "reports come")
        # No further reports: whatever is overdue now was answered for, and is in the guest's hands again once nothing is isolated.
        machine.sh(f"kill -s TERM {pid}")
        machine.wait_exit(pid, scenarios.PATIENCE_S)
        scenarios.check_restored(machine, check, "before anything is dropped")
        machine.sh(f"dd if=/dev/urandom of=/tmp/file bs=1M count={mib // 5} 2>/dev/null; sha256sum /tmp/file >/tmp/file.sum")
        # Nearly all that is left, so that the allocator has no choice but to give away what is overdue.
        churned = mib // 12
        left = int(machine.sh("awk '/MemAvailable/ {print $2}' /proc/meminfo")) // 1024 - 3 * churned - 24
        held = Held(machine, left)
        churners = scenarios.start_churn(machine, 3, churned)
        machine.patience_s = PATIENCE_S
        # Not all of it, so that the kernel's own pages are seldom among it and the checks of data get to speak.
        dropped = host.drop_overdue(4)
        check(dropped >= mib * MIB // 8 and host.bad == [], f"{dropped // MIB} MiB are dropped that are in use again {host.bad[:3]}")
        try:
            _look(machine, check, held, churners)
        except (GuestError, OSError) as error:
            check(True, f"the guest has died of it: {str(error)[:200]}")


def _look(machine, check, held, churners):
    """The checks of the other scenarios, which must fail here."""
    intact, said = held.let_go(PATIENCE_S)
    check(not intact, f"it shows in a process's memory: {said}")
    sums = machine.sh("sha256sum -c /tmp/file.sum", check=False)
    check("OK" not in sums, f"it shows in a file in tmpfs: {sums.strip()[:60]!r}")
    failed = []
    scenarios.check_churn(machine, lambda ok, text, damage: ok or failed.append(text), churners, "an unsound host")
    # They hold little, so that it is no wonder if all of them are lucky.
    print(f"     {machine.name}: {len(failed)} of 3 churning programs and the kernel notice: {failed[:2]}", flush=True)
