"""Memory that is plugged in while the agent runs: its host follows where the VMM tells, and keeps its hands off where it does not."""

import json
import os
import socket

import scenarios
from held import Held
from machine import GuestError
from realhost import RealHost

MIB = 1 << 20
# As much as there is, so that sizes tell nothing about which file is which.
PLUGGED_MIB = 512
# Where QEMU puts it: from 4 GiB on, in memory blocks of 128 MiB.
BLOCKS = range(32, 36)


def follows(machine, check, binary, folder):
    """A host that cannot ask the VMM refuses from then on; one that can takes memory of both."""
    with RealHost(binary, [machine], folder) as host:
        pid = scenarios.agent(machine)
        scenarios.rests(machine, "the first pass ends")
        memory = Plugged(machine)
        reported = machine.wait_for(lambda: refusal(host, machine), scenarios.PATIENCE_S, "the host refuses")
        check("2 shared files" in reported["problem"] and "qmp=PATH" in reported["problem"], f"refused in words: {reported['problem']!r}")
        held = Held(machine, 100)
        base = memory.resident()
        machine.sh("guest_load hog 300", timeout_s=scenarios.PATIENCE_S)
        later = host.status()[machine.name]
        check(later["dropped"] == reported["dropped"] and later["closed"] >= 1, f"nothing more is dropped ({reported['dropped'] // MIB} MiB before)")
    with RealHost(binary, [machine], folder, qmp=True) as host:
        machine.wait_for(lambda: host.status()[machine.name]["dropped"] > 0, scenarios.PATIENCE_S, "a host that can ask is reported to")
        reported = host.status()[machine.name]
        check(reported["ram"] == (machine.memory_mib + PLUGGED_MIB) * MIB, f"the host knows of {reported['ram'] // MIB} MiB")
        large = Held(machine, 450)
        peak = memory.plugged()
        check(peak >= 64 * MIB, f"{peak // MIB} MiB of the new memory are in use")
        large.check(check, "memory in it is intact")
        # The 300 MiB that were used while the host refused, and these.
        took = scenarios.settled(memory, base + 75 * MIB, 60)
        left = f"{(memory.resident() - base) // MIB} MiB more than before, of the new memory {memory.plugged() // MIB} MiB"
        check(took is not None and memory.plugged() < peak, f"of 750 MiB in both {left} are left")
        reported = host.status()[machine.name]
        check(reported["refused"] == 0 and reported["problem"] is None, f"nothing was refused {reported['refused']} {reported['problem']}")
        churners = scenarios.start_churn(machine, 4, 150)
        scenarios.check_churn(machine, check, churners, "with memory plugged in")
        held.check(check)
        welcomes = host.status()[machine.name]["welcomes"]
        machine.wait_for(lambda: stopped_empty_handed(machine, pid), scenarios.PATIENCE_S, "the agent holds nothing")
        check(memory.zones() == {"Movable"}, f"the new memory is still in the zone that it was put in {memory.zones()}")
        memory.unplug()
        machine.sh(f"kill -s CONT {pid}")
        # (QEMU 7.2 keeps the file open for longer than its object, so that its host side does as well.)
        machine.wait_for(lambda: host.status()[machine.name]["welcomes"] > welcomes, scenarios.PATIENCE_S, "the agent says so")
        dropped = host.status()[machine.name]["dropped"]
        machine.sh("guest_load hog 200", timeout_s=scenarios.PATIENCE_S)
        machine.wait_for(lambda: host.status()[machine.name]["dropped"] > dropped, scenarios.PATIENCE_S, "hints go on")
        reported = host.status()[machine.name]
        check(reported["connected"] and reported["problem"] is None and reported["refused"] == 0, f"unplugged, and hints go on {reported['problem']}")
        scenarios.stop(machine, pid, check)


def refusal(host, machine):
    reported = host.status()[machine.name]
    return reported if reported["problem"] and not reported["connected"] else None


def stopped_empty_handed(machine, pid):
    """Stops the agent where it holds nothing: the kernel gives up to unplug a block that it puts online in the middle of it."""
    machine.sh(f"kill -s STOP {pid}")
    pool = machine.sh("cat /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages").strip()
    if scenarios.offline_blocks(machine) == [] and pool == "0":
        return True
    machine.sh(f"kill -s CONT {pid}")
    return False


class Plugged:
    """Plugs memory in, puts it online, and measures all of the guest's memory from then on."""

    def __init__(self, machine):
        self.machine = machine
        machine.memory()  # while there is only one
        with Qmp(machine) as talk:
            memory = {"qom-type": "memory-backend-memfd", "id": "more", "size": PLUGGED_MIB * MIB, "share": True}
            talk.ask("object-add", **memory)
            talk.ask("device_add", driver="pc-dimm", id="dimm", memdev="more")
        for block in BLOCKS:
            state = f"/sys/devices/system/memory/memory{block}/state"
            machine.wait_for(lambda: machine.cat(state), scenarios.PATIENCE_S, "the guest sees the new memory")  # noqa: B023
            # For movable memory alone, out of which it can be unplugged.
            machine.sh(f"echo online_movable >{state}")
        self.path = self._other()

    def zones(self):
        """The zones that the new memory blocks are in."""
        return {self.machine.cat(f"/sys/devices/system/memory/memory{block}/valid_zones") for block in BLOCKS}

    def unplug(self):
        """Asks the guest to do without it; waits until QEMU has let go of it."""
        with Qmp(self.machine) as talk:
            talk.ask("device_del", id="dimm")
        self.machine.wait_for(self._is_deleted, scenarios.PATIENCE_S, "QEMU lets go of the memory")

    def _is_deleted(self):
        with Qmp(self.machine) as talk:
            try:
                talk.ask("object-del", id="more")
                return True
            except GuestError:
                # Until the guest has said that it does without.
                return False

    def _other(self):
        first = os.fstat(self.machine.memory()).st_ino
        others = [path for path in memory_files(self.machine.pid) if os.stat(path).st_ino != first]
        if len(others) != 1:
            raise GuestError(f"QEMU has {len(others)} memories more")
        return others[0]

    def plugged(self):
        """Bytes of the new memory that the host holds."""
        return os.stat(self.path).st_blocks * 512

    def resident(self):
        return self.machine.resident() + self.plugged()


def memory_files(pid):
    """The descriptors that a process has of guests' memory."""
    folder, found = f"/proc/{pid}/fd", []
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        try:
            if os.readlink(path).startswith("/memfd:memory-backend-memfd"):
                found.append(path)
        except OSError:
            pass
    return found


class Qmp:
    """QEMU's machine protocol; it talks to one at a time, and to the host as well."""

    def __init__(self, machine):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(machine.qmp)
        self.talk = self.socket.makefile("rw")

    def __enter__(self):
        self.talk.readline()
        self.ask("qmp_capabilities")
        return self

    def __exit__(self, *_):
        self.talk.close()
        self.socket.close()

    def ask(self, command, **arguments):
        """A command and its answer."""
        self.talk.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.talk.flush()
        while True:
            answer = json.loads(self.talk.readline())
            if "error" in answer:
                raise GuestError(f"QEMU refuses {command}: {answer['error']}")
            if "return" in answer:
                return answer["return"]
