"""Control groups such as kubelet makes, with a container in one, and the links that kubelet keeps."""

import os
import signal
import subprocess
import time


# As most programs in pods, not root's.
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--pdeathsig=KILL"]


def mount_of_memory():
    """Where memory is controlled, v2 or v1, and the file of a group's limit."""
    v1 = None
    for line in open("/proc/self/mountinfo"):
        left, right = line.split(" - ")
        point, (kind, _, options) = left.split()[4], right.split()
        if kind == "cgroup2" and "memory" in open(f"{point}/cgroup.controllers").read().split():
            return point, "memory.max"
        if kind == "cgroup" and "memory" in options.split(","):
            v1 = point, "memory.limit_in_bytes"
    if v1 is None:
        raise RuntimeError("no memory controller is mounted")
    return v1


class Groups:
    """A container `app` of a pod that runs `program`, one of another pod for the node, and a service of the machine. All are
    removed at last, and what runs in them ends."""

    def __init__(self, folder, program):
        self.mount, limit = mount_of_memory()
        self.top = f"isotherm-test-{os.getpid()}.slice"
        pods = f"/{self.top}/kubepods-burstable.slice"
        self.paths = {
            "app": f"{pods}/kubepods-burstable-pod1.slice/cri-containerd-{'a1' * 32}.scope",
            "node": f"{pods}/kubepods-burstable-pod2.slice/cri-containerd-{'b2' * 32}.scope",
            "service": f"/{self.top}/some.service",
        }
        self.running = []
        for path in self.paths.values():
            self._make(path)
        self.limit = os.path.join(self.mount, limit)
        with open(f"{self.mount}{self.paths['app']}/{limit}", "w") as f:
            f.write(str(256 << 20))
        links = f"{folder}/host/var/log/containers"
        os.makedirs(links)
        for name, identity in (("web-0_shop_app", "a1"), ("isotherm-node-x7_isotherm_node", "b2")):
            os.symlink("/var/log/pods/nowhere", f"{links}/{name}-{identity * 32}.log")
        self.start("app", [*NOBODY, *program], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        # 32 MiB that two processes share, and rest.
        shared = "import mmap, os, time; m = mmap.mmap(-1, 32 << 20); m.write(b'x' * (32 << 20)); os.fork(); sum(m[::4096]); time.sleep(600)"
        self.start("service", [*NOBODY, "/usr/bin/python3", "-c", shared])
        # The node does not watch itself.
        self.start("node", ["sleep", "600"])

    def _make(self, path):
        """With the memory controller in each, where they are of version 2."""
        folder = self.mount
        for part in path.strip("/").split("/"):
            control = f"{folder}/cgroup.subtree_control"
            if os.path.exists(control) and folder != self.mount:
                with open(control, "w") as f:
                    f.write("+memory")
            folder = f"{folder}/{part}"
            os.makedirs(folder, exist_ok=True)

    def start(self, name, command, **options):
        """A program that is in this group from its first page on."""
        inside = ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', self.mount + self.paths[name], *command]
        process = subprocess.Popen(inside, **options)
        self.running.append(process)
        return process

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.wait()
        # What they have forked.
        for path in self.paths.values():
            for pid in open(f"{self.mount}{path}/cgroup.procs").read().split():
                os.kill(int(pid), signal.SIGKILL)
        for folder, _, _ in os.walk(f"{self.mount}/{self.top}", topdown=False):
            for _ in range(100):
                try:
                    os.rmdir(folder)
                    break
                except OSError:
                    time.sleep(0.05)
