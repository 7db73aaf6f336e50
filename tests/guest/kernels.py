"""Debian's kernels: fetched once, never installed, also as the uncompressed ELF image, which boots faster, and the
modules that guests need."""

import glob
import json
import os
import re
import struct
import subprocess

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Debian 12's stock kernel, and the newer one that it offers for cloud machines (the latter has DAMON); the oldest that we claim
# to run on, and a newer one. Each by the distribution of Debian that has it.
PACKAGES = {
    "5.10": ("bullseye", re.compile(r"linux-image-5\.10\.\d+-\d+-amd64")),
    "6.1": ("bookworm", re.compile(r"linux-image-6\.1\.\d+-\d+-amd64")),
    "6.12": ("bookworm", re.compile(r"linux-image-6\.12\.\d+\+\w+-cloud-amd64")),
    "6.18": ("trixie", re.compile(r"linux-image-6\.18\.\d+\+\w+-cloud-amd64")),
    # From 6.19 on a kernel and its modules are packages of their own.
    **{release: ("trixie", re.compile(rf"linux-binary-{re.escape(release)}\.\d+\+\w+-cloud-amd64")) for release in ("6.19", "7.0", "7.1", "7.2", "7.3")},
}
SUITES = {
    "bullseye": ["bullseye"],
    "bookworm": ["bookworm", "bookworm-backports"],
    "trixie": ["trixie", "trixie-backports"],
}


# What is kept of a package's modules: sets, each loaded in its order; what a kernel has built in is absent from its package.
MODULES = {
    "virtio": ["drivers/virtio/virtio_ring", "drivers/virtio/virtio", "drivers/virtio/virtio_pci_legacy_dev",
               "drivers/virtio/virtio_pci_modern_dev", "drivers/virtio/virtio_pci", "drivers/char/virtio_console",
               "drivers/virtio/virtio_balloon"],
    "net": ["net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net"],
    "fuse": ["fs/fuse/fuse"],
    # For a root file system on a disk.
    "disk": ["drivers/block/virtio_blk", "lib/crc16", "crypto/crc32c_generic", "fs/mbcache", "fs/jbd2/jbd2", "fs/ext4/ext4"],
    "zram": ["mm/zsmalloc", "lib/lz4/lz4_compress", "lib/lz4/lz4hc_compress", "drivers/block/zram/zram"],
}  # fmt: skip


class KernelsUnavailable(Exception):
    """This machine knows no mirror that has Debian's kernels."""


class Kernel:
    """One kernel, as two files that QEMU can boot."""

    def __init__(self, bzimage, elf, modules):
        # The usual image. Only its own start-up code can switch 5-level page tables on.
        self.bzimage = bzimage
        # The kernel proper, entered directly: saves the emulated unpacking, always has 4-level page tables.
        self.elf = elf
        self._modules = modules

    def modules(self, name):
        """The set of modules of this name, as {path in a guest: content}; sorted by path they are in the order of loading."""
        folder = os.path.join(self._modules, name)
        found = {}
        for module in os.listdir(folder):
            with open(os.path.join(folder, module), "rb") as f:
                found[f"modules/{module}"] = f.read()
        return found


def kernel(release, cache):
    """Kernel `release` (a key of PACKAGES), fetched into the folder `cache` if need be."""
    cache = os.path.abspath(cache)
    image, elf, modules = (os.path.join(cache, f"{part}-{release}") for part in ("bzimage", "vmlinux", "modules"))
    # Written last, so that whatever is older than this list, or was interrupted, is made anew.
    stamp = os.path.join(cache, f"stamp-{release}")
    if not holds(stamp, _wanted()) or not all(map(os.path.exists, (image, elf, modules))):
        os.makedirs(cache, exist_ok=True)
        subprocess.run(["rm", "-f", stamp], check=True)
        packages = _download(release, cache)
        tree = os.path.join(cache, f"tree-{release}")
        for package in packages:
            subprocess.run(["dpkg-deb", "-x", package, tree], check=True)
        # Beside its modules from 7.x on.
        (packed,) = glob.glob(os.path.join(tree, "boot", "vmlinuz-*")) or glob.glob(os.path.join(tree, "usr/lib/modules/*/vmlinuz"))
        os.replace(packed, image)
        _keep_modules(tree, modules)
        with open(image, "rb") as f:
            unpacked = unpack(f.read())
        replace(elf, unpacked)
        subprocess.run(["rm", "-rf", tree, *packages], check=True)
        replace(stamp, _wanted())
    return Kernel(image, elf, modules)


def _wanted():
    """What a stamp holds if the cache has what is wanted now."""
    return json.dumps(MODULES, indent=1).encode()


def holds(path, content):
    """Whether the file is there with this content."""
    try:
        with open(path, "rb") as f:
            return f.read() == content
    except FileNotFoundError:
        return False


def replace(path, content):
    """Writes the file, all of it or nothing."""
    with open(path + ".new", "wb") as f:
        f.write(content)
    os.replace(path + ".new", path)


def _keep_modules(tree, folder):
    """Unpacks the modules of the package in `tree` into `folder`, a folder for each set."""
    # Below /usr from Debian 13 on. A mirror may have a kernel, but not its modules any more: then there are none.
    found = glob.glob(os.path.join(tree, "lib/modules/*/kernel")) + glob.glob(os.path.join(tree, "usr/lib/modules/*/kernel"))
    kernel = found[0] if found else tree
    new = folder + ".new"
    subprocess.run(["rm", "-rf", new, folder], check=True)
    for name, modules in MODULES.items():
        os.makedirs(os.path.join(new, name))
        for number, module in enumerate(modules):
            kept = os.path.join(new, name, f"{number:02}-{os.path.basename(module)}.ko")
            packed = os.path.join(kernel, module + ".ko.xz")
            if os.path.exists(packed):
                with open(kept, "wb") as f:
                    subprocess.run(["xz", "-dc", packed], check=True, stdout=f)
            elif os.path.exists(os.path.join(kernel, module + ".ko")):
                os.replace(os.path.join(kernel, module + ".ko"), kept)
    os.replace(new, folder)


def _download(release, cache):
    """The packages of the newest kernel of this release: one, or two where modules are in one of their own."""
    distribution, package = PACKAGES[release]
    apt = apt_options(cache, distribution)
    available = subprocess.run(
        ["apt-cache", *apt, "dumpavail"], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    names = re.findall(r"^Package: (\S+)$", available, re.M)
    kernels = [name for name in names if package.fullmatch(name)]
    if not kernels:
        raise KernelsUnavailable(f"the Debian mirrors of this machine have no package of kernel {release}")
    newest = max(kernels, key=lambda n: [int(x) for x in re.findall(r"\d+", n)])
    modules = newest.replace("linux-binary-", "linux-modules-")
    return [fetch(name, apt, cache) for name in sorted({newest, modules} & set(names))]


def fetch(name, apt, cache):
    """The path of the downloaded package."""
    for old in glob.glob(os.path.join(cache, name + "_*.deb")):
        os.unlink(old)
    subprocess.run(["apt-get", *apt, "-q", "download", name], check=True, cwd=cache, stdout=subprocess.DEVNULL)
    (package,) = glob.glob(os.path.join(cache, name + "_*.deb"))
    return package


def apt_options(cache, distribution):
    """Options that make apt use a distribution's suites from this machine's own mirrors, and lists of our own."""
    sources = os.path.join(cache, f"{distribution}.list")
    lists = os.path.join(cache, f"lists-{distribution}")
    options = ["-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=/dev/null",
               "-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={cache}/apt", "-o", "APT::Sandbox::User="]
    if not os.path.exists(sources):
        mirror, security = mirrors()
        if mirror is None:
            raise KernelsUnavailable("this machine's apt sources name no Debian mirror to fetch kernels from")
        trust = f"[signed-by={KEYRING}] " if os.path.exists(KEYRING) else ""
        lines = [f"deb {trust}{mirror} {suite} main\n" for suite in SUITES[distribution]]
        if security is not None:
            lines.append(f"deb {trust}{security} {distribution}-security main\n")
        os.makedirs(os.path.join(lists, "partial"), exist_ok=True)
        os.makedirs(os.path.join(cache, "apt", "archives", "partial"), exist_ok=True)
        with open(sources + ".new", "w") as f:
            f.writelines(lines)
        os.replace(sources + ".new", sources)
        subprocess.run(["apt-get", *options, "-q", "update"], check=True, stdout=subprocess.DEVNULL)
    return options


def mirrors():
    """Addresses of the Debian mirror and of its security archive, as this machine's apt is set up; None if absent."""
    mirror = security = None
    files = ["/etc/apt/sources.list", *sorted(glob.glob("/etc/apt/sources.list.d/*"))]
    for path in files:
        if not os.path.isfile(path):
            continue
        with open(path) as f:
            text = f.read()
        if path.endswith(".sources"):
            pairs = re.findall(r"^URIs:\s*(\S+).*?^Suites:\s*([^\n]+)", text, re.M | re.S)
        else:
            pairs = re.findall(r"^deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)", text, re.M)
        for uri, suites in pairs:
            if not re.search(r"/debian(-security)?/?$", uri):
                continue
            if "-security" in suites:
                security = security or uri
            else:
                mirror = mirror or uri
    return mirror, security


def zram_swap(mib):
    """Lines of a guest's script that load all modules it has, zram among them, and swap to so much of it."""
    return f"""for module in /modules/*.ko; do [ ! -e $module ] || insmod $module; done
echo {mib}M >/sys/block/zram0/disksize
mkswap /dev/zram0 >/dev/null
swapon /dev/zram0"""


def unpack(bzimage):
    """The ELF kernel inside a bzImage (layout: the kernel's Documentation/arch/x86/boot.rst)."""
    setup_sectors = bzimage[0x1F1] or 4
    offset, length = struct.unpack_from("<II", bzimage, 0x248)
    begin = (setup_sectors + 1) * 512 + offset
    payload = bzimage[begin : begin + length]
    for magic, command in (
        (b"\xfd7zX", ["xz", "-dcq", "--single-stream"]),
        (b"\x28\xb5\x2f\xfd", ["zstd", "-dcq"]),
        (b"\x1f\x8b", ["gzip", "-dcq"]),
    ):
        if payload.startswith(magic):
            # The payload is followed by its unpacked size, at which the tools complain after writing everything.
            elf = subprocess.run(command, input=payload, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
            break
    else:
        elf = payload
    if not elf.startswith(b"\x7fELF"):
        raise RuntimeError("cannot unpack this kernel image: unknown compression or layout")
    return elf
