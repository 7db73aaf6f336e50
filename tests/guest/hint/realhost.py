"""The real host with two guests, one of which means ill."""

import json
import os
import subprocess
import time

import scenarios
from held import Held
from machine import PORT, GuestError

MIB = 1 << 20


class RealHost:
    """`isotherm hint host` for some machines."""

    def __init__(self, binary, machines, folder, options=(), qmp=False, key=None):
        self.binary, self.machines, self.options, self.qmp, self.key = binary, machines, options, qmp, key
        self.socket, self.log = os.path.join(folder, "status.sock"), os.path.join(folder, "host.log")
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def start(self):
        guests = [arg for m in self.machines for arg in ("--guest", self.spec(m))]
        with open(self.log, "a") as log:
            command = [self.binary, "hint", "host", "--socket", self.socket, *guests, *self.options]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + 30
        while not os.path.exists(self.socket):
            if self.process.poll() is not None or time.monotonic() > end:
                with open(self.log) as log:
                    raise GuestError(f"the host does not start: {log.read()[-500:]}")
            time.sleep(0.05)

    def spec(self, machine):
        """How the command line names a guest."""
        socket = f",socket={machine.socket}" if machine.port else ""
        qmp = f",qmp={machine.qmp}" if self.qmp else ""
        key = f",key={self.key}" if self.key else ""
        return f"name={machine.name},pid={machine.pid}{socket}{qmp}{key}"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def status(self):
        """What `isotherm hint status` tells, by guest."""
        text = subprocess.run([self.binary, "hint", "status", "--json", "--socket", self.socket], check=True, stdout=subprocess.PIPE).stdout
        return {guest["name"]: guest for guest in json.loads(text)["guests"]}

    def rss(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS:"))


def gives_back_to_both(host, machine, check, mib, what, base=None):
    """A program uses memory and ends; the real host has it back, and what was used since `base` was with the guest."""
    base = machine.resident() if base is None else base
    machine.sh(f"guest_load hog {mib}", timeout_s=scenarios.PATIENCE_S)
    limit = max(base, 0) + 0.1 * mib * MIB
    took = scenarios.settled(machine, limit, 60)
    check(took is not None, f"{what}: of {mib} MiB {(machine.resident() - base) // MIB} MiB more than before are with the guest"
          + (f" {took:.1f} s after the program's end" if took is not None else f"; agent {scenarios.status(machine)}, {host.status()[machine.name]}"))  # fmt: skip


def run(good, bad, check, binary, folder):
    """`good` has an agent; in `bad` a program sends whatever it likes."""
    held = Held(good, 48)
    with RealHost(binary, [good, bad], folder) as host:
        pid = scenarios.agent(good)
        scenarios.rests(good, "the first pass ends")
        gives_back_to_both(host, good, check, 300, "real host")
        host.kill()
        good.wait_for(lambda: not scenarios.status(good)["host"], scenarios.PATIENCE_S, "the agent sees that the host is gone")
        host.start()
        scenarios.rests(good, "all is reported to the next host")
        gives_back_to_both(host, good, check, 300, "after kill -9 of the host")
        reported = host.status()[good.name]
        check(reported["ram"] == good.memory_mib * MIB and reported["returned"] > 0, f"status tells of {reported['returned'] // MIB} MiB returned")
        check(abs(reported["resident"] - good.resident()) < 64 * MIB, "status tells how much is resident")

        port = bad.sh(f"grep -l '^{PORT}$' /sys/class/virtio-ports/*/name").strip().split("/")[-2]
        churners = scenarios.start_churn(good, 10, 40)
        attack = bad.start(f"guest_load hostile /dev/{port} 10", "hostile.log")
        most = 0
        end = time.monotonic() + 10
        while time.monotonic() < end:
            most = max(most, host.rss())
            time.sleep(0.2)
        check(host.process.poll() is None, "the host lives through a hostile guest")
        check(most < 48 * MIB, f"the host takes {most / MIB:.1f} MiB meanwhile")
        scenarios.check_churn(good, check, churners, "beside a hostile guest")
        gives_back_to_both(host, good, check, 200, "beside a hostile guest")
        # It may have dropped its own memory; all the same it ends, with its kernel or without.
        bad.patience_s = 20
        try:
            bad.wait_exit(attack, 20)
            print(f"     the hostile guest: {bad.cat('/tmp/hostile.log')[-60:]!r}", flush=True)
        except (GuestError, OSError):
            print("     the hostile guest harmed itself", flush=True)
        print(f"     {json.dumps(host.status()[bad.name])[:400]}", flush=True)
        scenarios.stop(good, pid, check)
    held.check(check, "memory of the good guest is intact")


def finds_zeros(machine, check, binary, folder):
    """A guest without an agent whose kernel clears what is freed."""
    held = Held(machine, 100)
    machine.sh("guest_load hog 300", timeout_s=scenarios.PATIENCE_S)
    before = machine.resident()
    churners = scenarios.start_churn(machine, 15, 40)
    with RealHost(binary, [machine], folder, ["--scan-zero", "--scan-every", "1s"]) as host:
        scenarios.check_churn(machine, check, churners, "while it is scanned")
        took = scenarios.settled(machine, before - 0.9 * 300 * MIB, 60)
        check(took is not None, f"of {before // MIB} MiB {machine.resident() // MIB} MiB are left")
        reported = host.status()[machine.name]
        scan = reported["scan"] or {}
        print(f"     {json.dumps(scan)} {reported['problem']}", flush=True)
        check(scan.get("dropped", 0) >= 270 * MIB, "status tells what was dropped")
        # The limit is 2 ms and the block under way; an emulator on a busy machine takes its time to stop.
        mean = scan.get("paused_ns", 0) / max(scan.get("pauses", 0), 1) / 1e6
        check(0 < mean < 10, f"{scan.get('pauses')} pauses of {mean:.2f} ms, the longest {scan.get('longest_pause_ns', 0) / 1e6:.1f} ms")
    held.check(check, "its memory is intact")


def knows_where_memory_is(machine, check, binary, folder):
    """A guest with memory above 4 GiB: the host's step from its addresses to the file, from the guest's map and from QEMU's."""
    # More than what lies below 4 GiB, so that some of it lies above.
    held = Held(machine, 1300, 3 * scenarios.PATIENCE_S)
    for qmp in (False, True):
        what = "QEMU's map" if qmp else "the guest's map"
        with RealHost(binary, [machine], folder, qmp=qmp) as host:
            pid = scenarios.agent(machine)
            scenarios.rests(machine, "the first pass ends")
            gives_back_to_both(host, machine, check, 1000, what)
            reported = host.status()[machine.name]
            check(reported["refused"] == 0 and reported["problem"] is None, f"{what}: nothing was refused {reported['refused']} {reported['problem']}")
            scenarios.stop(machine, pid, check)
    held.check(check, "memory on both sides of 4 GiB is intact")
