"""A small Debian 12 that boots systemd, as the image of a disk: made once, from the mirror that this machine's apt uses."""

import os
import subprocess
import tempfile

import kernels

# What makes the image anew when it changes.
PACKAGES = "systemd-sysv"
SIZE = "600M"


class Unavailable(Exception):
    """This machine knows no mirror to make it from."""


def image(cache):
    """The path of the image, made below the folder `cache` if need be."""
    mirror, _ = kernels.mirrors()
    if mirror is None:
        raise Unavailable("this machine's apt sources name no Debian mirror to make a root file system from")
    path = os.path.join(cache, "root.ext4")
    stamp = os.path.join(cache, "root.stamp")
    wanted = f"{PACKAGES} {SIZE}"
    if os.path.exists(path) and os.path.exists(stamp) and open(stamp).read() == wanted:
        return path
    os.makedirs(cache, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="isotherm-root-") as work:
        tree = os.path.join(work, "root")
        trust = f"[signed-by={kernels.KEYRING}] " if os.path.exists(kernels.KEYRING) else ""
        # "essential" has dpkg and no apt; documents are left out.
        subprocess.run(
            ["mmdebstrap", "--quiet", "--mode=root", "--variant=essential", f"--include={PACKAGES}", "--format=directory",
             "--dpkgopt=path-exclude=/usr/share/doc/*", "bookworm", tree, f"deb {trust}{mirror} bookworm main"],
            check=True,
        )  # fmt: skip
        subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-d", tree, path + ".new", SIZE], check=True, stdout=subprocess.DEVNULL)
    os.replace(path + ".new", path)
    with open(stamp, "w") as f:
        f.write(wanted)
    return path
