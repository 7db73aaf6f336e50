"""A disk with this machine's own C compiler, the sources of zstd that this workspace builds upon, and how they are built in a guest."""

import json
import os
import shutil
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../..")
# What a build runs besides the compiler.
COMMANDS = ("gcc", "as", "ld", "make", "sh", "mkdir", "sha256sum")
# What gcc runs without a path of its own.
PARTS = ("cc1", "collect2", "lto-wrapper")
PLUGIN = "liblto_plugin.so"
# What packages bring that a C program is built with, but for what only checks itself.
PACKAGES = ("libc6-dev", "linux-libc-dev", "libgcc-{}-dev", "libgcc-s1")
LEFT_OUT = ("asan", "tsan", "lsan", "ubsan", "gomp", "itm", "quadmath")
# Without the dictionary builder and the old formats: less to wait for.
SOURCES = ("common", "compress", "decompress")
SIZE = "320M"
# The library as one translation unit, as its project offers it, too: as an object and as a shared library, at the same time where two
# jobs run, which takes hundreds of MiB. Beside it the unpacking half, file by file. Each is linked with the program that checks it.
MAKEFILE = """\
CC := gcc $(FLAGS) -DZSTD_DISABLE_ASM=1 -I/src/lib
PARTS := $(patsubst /src/%.c,/out/%.o,$(wildcard /src/lib/common/*.c /src/lib/decompress/*.c))
all: /out/check /out/check-shared /out/unpack.so
/out/check: /src/check.c /out/zstd.o
\t$(CC) -o $@ $^
/out/check-shared: /src/check.c /out/libzstd.so
\t$(CC) -o $@ $^ -Wl,-rpath,/out
/out/zstd.o: /src/lib/zstd.c
\t$(CC) -c -o $@ $<
/out/libzstd.so: /src/lib/zstd.c
\t$(CC) -fPIC -shared -o $@ $<
/out/unpack.so: $(PARTS)
\t$(CC) -shared -o $@ $^
/out/%.o: /src/%.c
\t@mkdir -p $(@D)
\t$(CC) -fPIC -c -o $@ $<
"""


class Missing(Exception):
    """Something that the disk is made of is not on this machine."""


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def sources():
    """The folder of zstd's C sources, as cargo has unpacked them."""
    # Those of other systems would be fetched.
    here = next(line.split()[1] for line in output("rustc", "-vV").splitlines() if line.startswith("host:"))
    found = json.loads(output("cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", here,
                              "--manifest-path", os.path.join(ROOT, "Cargo.toml")))  # fmt: skip
    manifests = [package["manifest_path"] for package in found["packages"] if package["name"] == "zstd-sys"]
    if not manifests:
        raise Missing("this workspace does not use zstd-sys any more, whose C sources are what is built")
    return os.path.join(os.path.dirname(manifests[0]), "zstd/lib")


def copy(path, tree):
    """Copies a file, and what it is a link to, to the place in `tree` at which the guest looks for it."""
    # Folders like /lib are links to those below /usr, here as there.
    path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    to = tree + path
    if os.path.lexists(to):
        return
    os.makedirs(os.path.dirname(to), exist_ok=True)
    shutil.copy2(path, to, follow_symlinks=False)
    if os.path.islink(path):
        copy(os.path.join(os.path.dirname(path), os.readlink(path)), tree)


def programs():
    """Paths of what is run, and of the libraries that it needs."""
    run = [shutil.which(command) for command in COMMANDS]
    if None in run:
        raise Missing(f"build needs {COMMANDS[run.index(None)]}")
    run += [output("gcc", f"-print-prog-name={part}").strip() for part in PARTS]
    run.append(output("gcc", f"-print-file-name={PLUGIN}").strip())
    libraries = set()
    for path in run:
        # Lines like "libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x...)", "/lib64/ld-linux-x86-64.so.2 (0x...)".
        libraries |= {word for word in output("ldd", path).split() if word.startswith("/")}
    return [*run, *sorted(libraries)]


def fill(tree):
    """Puts everything into the folder `tree`."""
    for name in ("bin", "lib", "lib64", "sbin"):
        os.makedirs(f"{tree}/usr/{name}")
        os.symlink(f"usr/{name}", f"{tree}/{name}")
    for folder in ("dev", "proc", "tmp", "out", "src"):
        os.makedirs(f"{tree}/{folder}")
    for path in programs():
        copy(path, tree)
    release = output("gcc", "-dumpversion").strip()
    for package in PACKAGES:
        for path in output("dpkg", "-L", package.format(release)).splitlines():
            if os.path.isfile(path) and not path.startswith("/usr/share/") and not any(part in os.path.basename(path) for part in LEFT_OUT):
                copy(path, tree)
    shutil.copytree(sources(), f"{tree}/src/lib")
    shutil.copy(os.path.join(HERE, "check.c"), f"{tree}/src/check.c")
    with open(f"{tree}/src/Makefile", "w") as f:
        f.write(MAKEFILE)
    library = f"{tree}/src/lib"
    with open(f"{library}/zstd.c", "w") as f:
        for part in SOURCES:
            f.writelines(f'#include "{part}/{name}"\n' for name in sorted(os.listdir(f"{library}/{part}")) if name.endswith(".c"))


def image(path):
    """Makes the disk's image."""
    with tempfile.TemporaryDirectory(prefix="isotherm-toolchain-") as work:
        tree = os.path.join(work, "root")
        fill(tree)
        subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-d", tree, path, SIZE], check=True, stdout=subprocess.DEVNULL)
