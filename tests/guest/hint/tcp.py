"""An agent that calls the real host over a network, and has to say its key."""

import os
import socket

import scenarios
from held import Held
from realhost import RealHost, gives_back_to_both

MIB = 1 << 20
KEY, WRONG = "0123456789abcdef-right", "0123456789abcdef-wrong"


def calls_with_a_key(machine, check, binary, folder):
    """A wrong key is refused and nothing is dropped; with the right one memory comes back, also from a host that was started anew."""
    key = os.path.join(folder, "key")
    with open(key, "w") as f:
        f.write(KEY + "\n")
    machine.sh(f"echo {KEY} >/tmp/key; echo {WRONG} >/tmp/wrong")
    port = free_port()
    connect = f"--connect tcp:10.0.2.2:{port} --key"
    held = Held(machine, 32)
    with RealHost(binary, [machine], folder, ["--listen", f"tcp:127.0.0.1:{port}"], key=key) as host:
        for what, options in {"a wrong key": f"{connect} /tmp/wrong", "no key": connect.removesuffix(" --key")}.items():
            before = machine.resident()
            text = machine.sh(f"isotherm hint guest --once {options} 2>&1; echo status $?", timeout_s=scenarios.PATIENCE_S)
            check("no guest has this key" in text and "status 1" in text, f"{what} is refused in words: {text.strip()[-120:]!r}")
            told = host.status()[machine.name]
            quiet = told["dropped"] == 0 and told["reports"] == 0 and not told["connected"] and machine.resident() >= before
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
        told = host.status()[machine.name]
        check(told["welcomes"] > 0 and told["refused"] == 0 and told["problem"] is None, f"nothing was refused {told}")
        scenarios.stop(machine, pid, check)
    held.check(check)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
