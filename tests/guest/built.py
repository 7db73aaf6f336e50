"""A kernel with idle page tracking, which Debian builds none of its own with: made from Debian's sources, with little else in it."""

import glob
import os
import re
import subprocess

import kernels

# Version of Debian's package of sources.
RELEASE = "6.1"
# On top of the smallest configuration there is. What a guest boots with, then what Isotherm looks for.
OPTIONS = """
64BIT SMP PRINTK BINFMT_ELF BINFMT_SCRIPT BLK_DEV_INITRD TTY SERIAL_8250 SERIAL_8250_CONSOLE PROC_FS PROC_SYSCTL SYSFS TMPFS SHMEM DEVTMPFS
EPOLL FUTEX SIGNALFD EVENTFD TIMERFD POSIX_TIMERS FILE_LOCKING MULTIUSER MEMFD_CREATE ADVISE_SYSCALLS MEMBARRIER NET UNIX INET EXPERT
HIGH_RES_TIMERS NO_HZ_IDLE HYPERVISOR_GUEST PARAVIRT PVH ACPI PCI PM NAMESPACES BLOCK BLK_DEV SWAP ZSMALLOC ZRAM CRYPTO CRYPTO_LZO
CGROUPS MEMCG PSI TRANSPARENT_HUGEPAGE COMPACTION
PROC_PAGE_MONITOR PAGE_IDLE_FLAG IDLE_PAGE_TRACKING CROSS_MEMORY_ATTACH CHECKPOINT_RESTORE SECCOMP SECCOMP_FILTER SECURITY SECURITYFS SECURITY_PATH
SECURITY_LANDLOCK BPF_SYSCALL PERF_EVENTS
"""


def kernel(cache):
    """The kernel, built below the folder `cache` if need be. Takes some minutes of two processors."""
    cache = os.path.abspath(cache)
    image, elf, modules, stamp = (os.path.join(cache, f"{part}-idle") for part in ("bzimage", "vmlinux", "modules", "stamp"))
    wanted = (RELEASE + OPTIONS).encode()
    if not kernels.holds(stamp, wanted):
        os.makedirs(modules, exist_ok=True)
        tree = _sources(cache)
        _configure(tree)
        with open(os.path.join(cache, "build-idle.log"), "w") as log:
            subprocess.run(["nice", "make", "-s", f"-j{os.cpu_count()}", "bzImage"], cwd=tree, check=True, stdout=log, stderr=log)
        with open(os.path.join(tree, "arch/x86/boot/bzImage"), "rb") as f:
            packed = f.read()
        kernels.replace(image, packed)
        kernels.replace(elf, kernels.unpack(packed))
        subprocess.run(["rm", "-rf", tree], check=True)
        kernels.replace(stamp, wanted)
    return kernels.Kernel(image, elf, modules)


def _sources(cache):
    """Debian's, unpacked."""
    apt = kernels.apt_options(cache, "bookworm")
    package = kernels.fetch(f"linux-source-{RELEASE}", apt, cache)
    tree = os.path.join(cache, "tree-idle")
    subprocess.run(["rm", "-rf", tree], check=True)
    subprocess.run(["dpkg-deb", "-x", package, tree], check=True)
    (packed,) = glob.glob(os.path.join(tree, "usr/src/linux-source-*.tar.xz"))
    subprocess.run(["tar", "-xf", packed, "-C", tree], check=True)
    subprocess.run(["rm", packed, package], check=True)
    (sources,) = (path for path in glob.glob(os.path.join(tree, "linux-source-*")) if os.path.isdir(path))
    return sources


def _configure(tree):
    """Writes its configuration; every option must have been taken."""
    fragment = os.path.join(tree, "wanted.config")
    options = OPTIONS.split()
    with open(fragment, "w") as f:
        f.writelines(f"CONFIG_{option}=y\n" for option in options)
        f.write('CONFIG_LSM="landlock"\n')
    for command in (["make", "-s", "tinyconfig"], ["scripts/kconfig/merge_config.sh", "-m", ".config", fragment], ["make", "-s", "olddefconfig"]):
        subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(os.path.join(tree, ".config")) as f:
        taken = set(re.findall(r"^CONFIG_(\w+)=y$", f.read(), re.M))
    if missing := set(options) - taken:
        raise RuntimeError(f"options that this kernel does not take: {', '.join(sorted(missing))}")
