"""A virtual machine whose memory the host can punch holes into, with a shell inside it."""

import os
import re
import socket
import subprocess
import tempfile
import time

import vm

PORT = "isotherm.hint"

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
for module in /modules/*.ko; do [ -e "$module" ] && insmod "$module"; done
ifconfig lo 127.0.0.1 up
[ -d /sys/class/net/eth0 ] && ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
port=$(grep -l '^test.control$' /sys/class/virtio-ports/*/name)
port=${port%/name}
exec 3<>/dev/${port##*/}
cd /tmp
echo @@READY >&3
cat <&3 | setsid sh >&3 2>&1
"""


class GuestError(Exception):
    """The guest died, hung, or a command in it failed."""


class Machine:
    """One VM. `with Machine(...) as m:` starts it and ends it."""

    def __init__(self, kernel, files, name="guest", memory_mib=800, cpus=2, append="", balloon=False, port=True, qmp=False,
                 network=False, slots=False, disk=None, boot_s=120):  # fmt: skip
        self.kernel, self.files, self.name, self.memory_mib, self.cpus = kernel, files, name, memory_mib, cpus
        self.append, self.balloon, self.port, self.boot_s = append, balloon, port, boot_s
        self.qmp, self.network, self.slots = qmp, network, slots
        # An image that is /dev/vda; what is written to it is forgotten.
        self.disk = disk
        # How long a command in the guest may take that nothing else is said of.
        self.patience_s = 120
        self.process = self._control = self._fd = None
        self._got = b""
        self._count = 0

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="isotherm-hint-")
        work = self._folder.name
        self.socket = os.path.join(work, "hint")
        self._console = os.path.join(work, "console")
        control = os.path.join(work, "control")
        modules = {path: m for path, m in self.kernel.modules("virtio").items() if self.balloon or "balloon" not in path}
        if self.network:
            # After the others, which it needs.
            modules |= {path.replace("/", "/net-"): m for path, m in self.kernel.modules("net").items()}
        if self.disk:
            modules |= {path.replace("/", "/disk-"): m for path, m in self.kernel.modules("disk").items()}
        packed = os.path.join(work, "initramfs")
        with open(packed, "wb") as f:
            f.write(vm.initramfs(INIT, modules, self.files))
        command = [
            "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
            "-name", self.name, "-accel", "tcg", "-cpu", "max,-cx16,la57=off",
            "-object", f"memory-backend-memfd,id=ram,size={self.memory_mib}M,share=on", "-M", "q35,memory-backend=ram",
            "-m", f"{self.memory_mib}{',slots=2,maxmem=2G' if self.slots else ''}", "-smp", str(self.cpus), "-serial", f"file:{self._console}",
            "-device", "virtio-serial-pci", "-chardev", f"socket,id=control,path={control},server=on,wait=off",
            "-device", "virtserialport,chardev=control,name=test.control",
            "-kernel", self.kernel.elf, "-initrd", packed,
            "-append", f"console=ttyS0 panic=-1 oops=panic quiet psi=1 {self.append}",
        ]  # fmt: skip
        if self.port:
            command += ["-chardev", f"socket,id=hint,path={self.socket},server=on,wait=off",
                        "-device", f"virtserialport,chardev=hint,name={PORT}"]  # fmt: skip
        if self.qmp:
            self.qmp = os.path.join(work, "qmp")
            command += ["-qmp", f"unix:{self.qmp},server=on,wait=off"]
        if self.network:
            # QEMU's own: the host is at 10.0.2.2, and what calls there calls this machine's loopback device.
            command += ["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="]
        if self.disk:
            command += ["-drive", f"file={self.disk},format=raw,if=none,id=disk,snapshot=on", "-device", "virtio-blk-pci,drive=disk"]
        if self.balloon:
            command += ["-device", "virtio-balloon-pci,free-page-reporting=on"]
        self.command = command
        for left in reversed(range(vm.BOOTS)):
            try:
                self._boot(command, control)
                return self
            except BaseException as error:
                self._stop()
                # Nothing of ours has run so far: it is the emulator's failure.
                if left == 0 or not isinstance(error, (GuestError, TimeoutError, OSError)):
                    self.__exit__()
                    raise
                print(f"     {self.name}: the guest did not boot, once more", flush=True)

    def _boot(self, command, control):
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self._control = self._connect(control)
        self._until(rb"@@READY\r?\n", self.boot_s)

    def _stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        if self._control is not None:
            self._control.close()
            self._control = None
        self._got = b""

    def __exit__(self, *_):
        self._stop()
        if self._fd is not None:
            os.close(self._fd)
        self._folder.cleanup()

    @property
    def pid(self):
        return self.process.pid

    def memory(self):
        """A descriptor of the guest's memory."""
        if self._fd is None:
            folder = f"/proc/{self.pid}/fd"
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                try:
                    link = os.readlink(path)
                except OSError:
                    continue
                if link.startswith("/memfd:memory-backend-memfd") and os.stat(path).st_size == self.memory_mib << 20:
                    self._fd = os.open(path, os.O_RDWR)
                    break
            else:
                raise GuestError("QEMU has no memory that could be punched into")
        return self._fd

    def resident(self):
        """Bytes of the guest's memory that the host holds."""
        return os.fstat(self.memory()).st_blocks * 512

    def sh(self, command, timeout_s=None, check=True):
        """Runs a command in the guest; its output. Output and errors are one."""
        timeout_s = timeout_s or self.patience_s
        self._count += 1
        mark = f"@@{self._count}"
        # A subshell, so that nothing it does ends or moves the shell itself.
        self._control.sendall(f"( {command}\n) </dev/null; printf '\\n{mark} %d\\n' $?\n".encode())
        text, match = self._until(rb"\r?\n" + mark.encode() + rb" (\d+)\r?\n", timeout_s)
        text = text.decode(errors="replace").replace("\r\n", "\n")
        if check and int(match[1]) != 0:
            raise GuestError(f"{self.name}: '{command}' failed with status {int(match[1])}: {text}")
        return text

    def start(self, command, log):
        """Starts a command in the guest in the background, its output in /tmp/LOG; its pid."""
        return int(self.sh(f"{command} >/tmp/{log} 2>&1 </dev/null & echo $!").split()[-1])

    def wait_for(self, condition, timeout_s, what):
        """Waits until a function says yes; what it said."""
        end = time.monotonic() + timeout_s
        while True:
            answer = condition()
            if answer:
                return answer
            if time.monotonic() >= end:
                raise GuestError(f"{self.name}: {what}: not within {timeout_s} s")
            time.sleep(0.1)

    def wait_exit(self, pid, timeout_s):
        """Waits until a process in the guest has ended."""
        self.wait_for(lambda: self.sh(f"[ -d /proc/{pid} ] && ! grep -q '^State:.Z' /proc/{pid}/status || echo gone").strip(),
                      timeout_s, f"process {pid} ends")  # fmt: skip

    def cat(self, path):
        return self.sh(f"cat {path} 2>/dev/null", check=False).strip()

    def busy_ticks(self):
        """Hundredths of seconds that the guest's CPUs were not idle since it started."""
        fields = [int(x) for x in self.cat("/proc/stat").splitlines()[0].split()[1:9]]
        return sum(fields) - fields[3] - fields[4]

    def cpu_ms(self, pid):
        """CPU time of a process in the guest, to a hundredth of a second."""
        fields = self.cat(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()
        return 10 * (int(fields[11]) + int(fields[12]))

    def troubles(self):
        """Lines on the console that tell of a kernel in trouble."""
        with open(self._console, errors="replace") as f:
            return [line.strip() for line in f if re.search(r"BUG|Oops|Bad page|panic|Call Trace|hung task", line)]

    def _connect(self, path):
        end = time.monotonic() + 20
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(path)
                return connection
            except OSError:
                connection.close()
                if self.process.poll() is not None or time.monotonic() >= end:
                    raise GuestError(f"{self.name}: QEMU did not start")
                time.sleep(0.05)

    def _until(self, pattern, timeout_s):
        """Reads until `pattern` comes; what came before it, and the match."""
        end = time.monotonic() + timeout_s
        while True:
            match = re.search(pattern, self._got)
            if match:
                before, self._got = self._got[: match.start()], self._got[match.end() :]
                return before, match
            self._control.settimeout(max(0.01, end - time.monotonic()))
            try:
                more = self._control.recv(65536)
            except TimeoutError:
                more = b""
            if not more:
                with open(self._console, errors="replace") as f:
                    tail = "".join(f.readlines()[-12:])
                raise GuestError(f"{self.name}: no answer within {timeout_s} s; it said {self._got[-500:]!r}; console:\n{tail}")
            self._got += more
