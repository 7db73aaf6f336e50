"""Boots a kernel under QEMU's emulation, runs one shell script in it as root, brings its result files back."""

import io
import os
import re
import stat
import subprocess
import tarfile
import tempfile

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mkdir -p /sys/fs/cgroup /out
mount -t cgroup2 cgroup /sys/fs/cgroup
cd /out
stty -F /dev/ttyS1 raw -echo
echo @BEGIN >/dev/ttyS1
sh /script >/out/script.log 2>&1 </dev/null
rc=$?
tar -C /out -cz -f /tmp/out.tgz .
printf '@RESULT %d %d\\n' "$rc" "$(stat -c %s /tmp/out.tgz)" >/dev/ttyS1
cat /tmp/out.tgz >/dev/ttyS1
sync
poweroff -f
"""


# QEMU's emulation kills or hangs a kernel now and then while that boots (double faults while it patches its own code).
BOOTS = 3


class GuestFailed(Exception):
    """The guest hung or died before it reported."""


class BootFailed(GuestFailed):
    """It did so before anything of ours ran in it."""


# What the console says when it ran into an instruction that was just being changed.
EMULATORS_DEATHS = ("double fault", "int3: 0000", "invalid opcode: 0000")


class EmulatorFailed(GuestFailed):
    """It died in the midst of code: so far always the emulator's doing while the kernel patched its own code, which it also does
    when somebody begins or ends to trace. If it is more than that, it comes again."""


def run(*args, **options):
    """`run_once`, again where the kernel does not come up, and once more where the emulator lets it down later."""
    died = False
    for left in reversed(range(BOOTS)):
        try:
            return run_once(*args, **options)
        except (BootFailed, EmulatorFailed) as error:
            if left == 0 or died:
                raise
            died = isinstance(error, EmulatorFailed)
            print(f"     a guest {'died' if died else 'did not boot'}, once more: {str(error).splitlines()[0]}", flush=True)


def run_once(image, script, files, cpu="", memory_mib=768, cpus=2, timeout_s=240, options=(), texts=None, init=INIT):
    """Boots `image` and runs `script` (shell text) in it; `files` maps names in the guest's /bin to files here, `texts` maps paths
    from its root to contents; `options` are more of QEMU's; `init` is what boots and runs `/script`.

    Returns (exit status of the script, {name: bytes} of what it left in /out). The guest has no network, and no disk but of `options`.
    """
    with tempfile.TemporaryDirectory(prefix="isotherm-guest-") as work:
        packed = os.path.join(work, "initramfs")
        with open(packed, "wb") as f:
            f.write(initramfs(init, {"script": script.encode(), **(texts or {})}, files))
        console, result = os.path.join(work, "console"), os.path.join(work, "result")
        command = [
            "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
            # cx16 off: QEMU 7.2 now and then corrupts its state after an emulated cmpxchg16b.
            "-M", "q35", "-accel", "tcg", "-cpu", "max,-cx16" + cpu, "-m", str(memory_mib), "-smp", str(cpus),
            "-serial", f"file:{console}", "-serial", f"file:{result}", "-kernel", image, "-initrd", packed,
            "-append", "console=ttyS0 panic=-1 oops=panic quiet psi=1",
            *options,
        ]  # fmt: skip
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise failed(result, console)(f"no result within {timeout_s} s; last lines of its console:\n{_tail(console)}")
        except subprocess.CalledProcessError as error:
            raise GuestFailed(f"QEMU ended with status {error.returncode}")
        with open(result, "rb") as f:
            answer = f.read()
        match = re.search(rb"@RESULT (\d+) (\d+)\n", answer)
        if match is None:
            raise failed(result, console)(f"the guest died; last lines of its console:\n{_tail(console)}")
        archive = answer[match.end() : match.end() + int(match[2])]
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            found = {os.path.normpath(m.name): tar.extractfile(m).read() for m in tar if m.isfile()}
        return int(match[1]), found


def failed(result, console):
    """What has failed, as the file of results and the console tell."""
    with open(result, "rb") as f, open(console, errors="replace") as text:
        if b"@BEGIN" not in f.read():
            return BootFailed
        said = text.read()
        return EmulatorFailed if any(death in said for death in EMULATORS_DEATHS) else GuestFailed


def _tail(path):
    with open(path, errors="replace") as f:
        return "".join(f.readlines()[-15:])


def initramfs(init, texts, files):
    """An initramfs as a cpio archive in the "newc" format (the kernel's buffer-format.rst): the script `init`, files of the
    contents `texts`, copies of `files` below /bin."""
    out = io.BytesIO()

    def add(name, mode, content=b""):
        name = name.encode() + b"\0"
        inode = out.tell()
        fields = [inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0]
        out.write(b"070701" + b"".join(b"%08X" % f for f in fields) + name)
        out.write(b"\0" * (-out.tell() % 4) + content)
        out.write(b"\0" * (-out.tell() % 4))

    folders = {"bin", "dev", "proc", "sys", "tmp", "out", "run", "modules"}
    for path in texts:
        while path := os.path.dirname(path):
            folders.add(path)
    # Sorted, a folder comes before what is in it.
    for folder in sorted(folders):
        add(folder, stat.S_IFDIR | 0o755)
    add("init", stat.S_IFREG | 0o755, init.encode())
    for name, content in texts.items():
        add(name, stat.S_IFREG | 0o755, content)
    for name, path in {"busybox": "/bin/busybox", **files}.items():
        with open(path, "rb") as f:
            add(f"bin/{name}", stat.S_IFREG | 0o755, f.read())
    add("bin/sh", stat.S_IFLNK | 0o777, b"busybox")
    add("TRAILER!!!", 0)
    return out.getvalue()
