"""An agent that calls the real host over a network, and has to prove that it knows its key."""

import os
import socket
import time

import scenarios
import wire
from held import Held
from line import Line, checked
from ports import free_port
from realhost import RealHost, gives_back_to_both

MIB = 1 << 20
KEY, WRONG = "0123456789abcdef-right", "0123456789abcdef-wrong"


def calls_with_a_key(machine, check, binary, folder):
    """A wrong key is refused and nothing is dropped; with the right one memory comes back, also from a host that was started anew.
    Whoever sits on the line can neither use what was said before, nor change it, nor have memory in use dropped."""
    key = os.path.join(folder, "key")
    with os.fdopen(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
        f.write(KEY + "\n")
    machine.sh(f"umask 077; echo {KEY} >/tmp/key; echo {WRONG} >/tmp/wrong; cp /tmp/key /tmp/open; chmod 644 /tmp/open")
    port = free_port()
    connect = f"--connect tcp:10.0.2.2:{port} --key"
    held = Held(machine, 32)
    with RealHost(binary, [machine], folder, ["--listen", f"tcp:127.0.0.1:{port}"], key=key) as host:
        refused = {
            "a wrong key": (f"{connect} /tmp/wrong", "no guest has this key", 1),
            "no key": (connect.removesuffix(" --key"), "--key FILE", 2),
            "a key that all can read": (f"{connect} /tmp/open", "chmod 600", 2),
        }
        for what, (options, word, status) in refused.items():
            before = machine.resident()
            text = machine.sh(f"isotherm hint guest --once {options} 2>&1; echo status $?", timeout_s=scenarios.PATIENCE_S)
            check(word in text and f"status {status}" in text, f"{what} is refused in words: {text.strip()[-120:]!r}")
            reported = host.status()[machine.name]
            quiet = reported["dropped"] == 0 and reported["reports"] == 0 and not reported["connected"] and machine.resident() >= before
            check(quiet, f"{what}: nothing was dropped")
            scenarios.check_restored(machine, check, what)
        pid = scenarios.agent(machine, f"{connect} /tmp/key")
        scenarios.rests(machine, "the first pass ends")
        gives_back_to_both(host, machine, check, 300, "over TCP")
        host.kill()
        machine.wait_for(lambda: not scenarios.status(machine)["host"], scenarios.PATIENCE_S, "the agent sees that the host is gone")
        churners = scenarios.start_churn(machine, 2, 40)
        scenarios.check_churn(machine, check, churners, "host killed")
        host.start()
        machine.wait_for(lambda: scenarios.status(machine)["host"], scenarios.PATIENCE_S, "the agent calls again")
        scenarios.rests(machine, "all is reported to the next host")
        gives_back_to_both(host, machine, check, 300, "over TCP to the next host")
        reported = host.status()[machine.name]
        check(reported["welcomes"] > 0 and reported["refused"] == 0 and reported["problem"] is None, f"nothing was refused {reported}")
        scenarios.stop(machine, pid, check)
        with Line(port) as line:
            on_a_hostile_line(host, machine, check, line)
    held.check(check)


def at_rest(host, machine):
    """What the host tells, once that stays the same."""
    before = host.status()[machine.name]
    time.sleep(1)
    reported = host.status()[machine.name]
    return reported if reported["reports"] == before["reports"] else None


def on_a_hostile_line(host, machine, check, line):
    pid = scenarios.agent(machine, f"--connect tcp:10.0.2.2:{line.port} --key /tmp/key")
    scenarios.rests(machine, "the first pass ends")
    gives_back_to_both(host, machine, check, 300, "through a line")
    try:
        said, answered = checked(line.calls[-1], KEY.encode())
        reports = said.count(wire.REPORT)
        check(said[0] == wire.HELLO and reports > 0 and answered.count(wire.ACK) > 0, f"{len(said)} messages, {reports} of them reports, are sealed as described")
    except ValueError as error:
        check(False, f"not sealed as described: {error}")
    check(KEY.encode() not in b"".join(bytes(part) for call in line.calls for part in call), "the key was never said")

    # So that what is dropped meanwhile is not its own doing.
    machine.sh(f"kill -s STOP {pid}")
    recorded = bytes(line.calls[-1][0])
    before = machine.wait_for(lambda: at_rest(host, machine), scenarios.PATIENCE_S, "the host has answered")
    with socket.create_connection(("127.0.0.1", line.host_port)) as again:
        answer = b""
        again.settimeout(20)
        try:
            again.sendall(recorded)
            while more := again.recv(65536):
                answer += more
        except (BrokenPipeError, ConnectionResetError):
            pass
    reported = host.status()[machine.name]
    same = all(reported[what] == before[what] for what in ("dropped", "reports", "welcomes"))
    check(b"no guest has this key" in answer and same, f"a recorded session is refused, and nothing dropped {answer[-60:]!r}")
    machine.sh(f"kill -s CONT {pid}")

    line.manner = "change"
    base = machine.resident()
    machine.sh("guest_load hog 200", timeout_s=scenarios.PATIENCE_S)
    machine.wait_for(lambda: host.status()[machine.name]["forged"] == 1, scenarios.PATIENCE_S, "a changed report is noticed")
    gives_back_to_both(host, machine, check, 200, "after a report was changed on its way", base)
    reported = host.status()[machine.name]
    check(reported["forged"] == 1 and reported["refused"] == 0, f"the change was seen, and nothing of it done {reported['forged']} {reported['refused']}")

    # The worst: the guest is made to believe that its host has gone, and the host gets the report much later.
    line.manner = "keep"
    machine.sh("guest_load hog 300", timeout_s=scenarios.PATIENCE_S)
    if not line.kept.wait(scenarios.PATIENCE_S):
        check(False, "no report came to be kept")
        return
    # Its last line may still be from before the report.
    at_end = lambda s: not s["host"] and s["isolated"] > 0  # noqa: E731
    machine.wait_for(lambda: at_end(scenarios.status(machine)), scenarios.PATIENCE_S, "the agent sees an end, and keeps what it has reported")
    churners = scenarios.start_churn(machine, 6, 100)
    before = host.status()[machine.name]["dropped"]
    check(at_end(scenarios.later(machine)), "what was reported stays isolated: an end that nobody has sealed is none")
    line.deliver()
    machine.wait_for(lambda: host.status()[machine.name]["dropped"] > before, scenarios.PATIENCE_S, "the late report is acted upon")
    scenarios.check_churn(machine, check, churners, "a report is kept on the line and comes late")
    line.open = True
    machine.wait_for(lambda: scenarios.status(machine)["host"], scenarios.PATIENCE_S, "the agent reaches its host again")
    scenarios.stop(machine, pid, check)
