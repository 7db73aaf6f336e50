"""One script that ages and evicts through the control file alone, on three of them: the kernel's own, the same passed through by
`isotherm mount`, and one with Isotherm's generations behind it. What is refused must be refused alike by all three."""

import os

import kernels

MACHINE = {"memory_mib": 1024}
SIZE_MIB = 64
WORKLOAD = f"isotherm workload hotspot --size {SIZE_MIB}M --hot 25% --seed 7 --rate 250000 --tick 20ms --duration 10m --thp no"
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lru_gen/age_and_evict")
WAYS = ("kernel", "passed", "own")
# ID stands for the group's number, NOW for its youngest generation's.
REFUSED = (
    "+ ID 0 99999", "+ ID 7 NOW", "+ 64999 0 NOW", "+ ID 0", "x ID 0 NOW", "junk", "", " ; ,", "+ ID 0 NOW 1 1 1",
    "+ ID 0 NOW 100 0", "- ID 0 NOW", "- ID 0 99999", "- ID 7 0", "- ID 0 0 201", "- ID 0 0 60 x",
)  # fmt: skip
TAKEN = ("+ ID 0 0", "- ID 0 0", "- ID 0 0 60 0", "+ ID 0 0;- ID 0 0", "+ID 0 0 100 1")


def contents(kernel):
    """Its modules and the script."""
    with open(SCRIPT, "rb") as f:
        return {**kernel.modules("zram"), **kernel.modules("fuse"), "bin/age_and_evict": f.read()}


def script():
    """The guest's script."""
    commands = "\n".join(f"answer '{command}'" for command in REFUSED + TAKEN)
    return f"""
set -e
{kernels.zram_swap(256)}
mount -t debugfs none /sys/kernel/debug
echo y >/sys/kernel/mm/lru_gen/enabled
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir /tmp/passed /tmp/own
isotherm mount /tmp/passed >passed.log 2>&1 & passed=$!
isotherm mount --own-lru-gen /tmp/own >own.log 2>&1 & own=$!
until [ -e /tmp/passed/sys/kernel/debug/lru_gen ] && [ -e /tmp/own/sys/kernel/debug/lru_gen ]; do
  kill -0 $passed; kill -0 $own; sleep 0.2
done

# What becomes of a command: the number is the group's, the generation its youngest.
answer() {{
  now=$(awk -v id=$id '$1 == "memcg" {{ ours = ($2 == id); next }} ours && NF == 4 {{ seq = $1 }} END {{ print seq }}' $file)
  text=$(echo "$1" | sed "s/ID/$id/g; s/NOW/$now/g")
  if echo "$text" 2>/tmp/why >$file; then echo "$1: taken"; else echo "$1: $(sed 's/.*: //' /tmp/why)"; fi
}}

try() {{
  name=$1 file=$2/kernel/debug/lru_gen
  mkdir /sys/fs/cgroup/$name
  sh -c "echo \\$\\$ >/sys/fs/cgroup/$name/cgroup.procs; exec {WORKLOAD}" >/dev/null & workload=$!
  sleep 4
  grep -A 5 " /$name\\$" $file >$name.before
  age_and_evict $file /$name >$name.said 2>$name.errors && echo 0 >$name.status || echo $? >$name.status
  grep -A 5 " /$name\\$" $file >$name.after
  cat /proc/$workload/status >$name.memory
  id=$(awk -v path=/$name '$1 == "memcg" && $3 == path {{ print $2 }}' $file)
  for _ in 1 2 3; do answer '+ ID 0 NOW' >/dev/null; done
  ( {commands} ) >$name.answers
  grep -A 30 " /$name\\$" ${{file}}_full >$name.full
  for text in n 0x5 y maybe 7; do
    if echo $text 2>/dev/null >$2/kernel/mm/lru_gen/enabled; then cat $2/kernel/mm/lru_gen/enabled; else echo "$text refused"; fi
  done >$name.enabled
  for text in 1000 0x10 y 0; do
    if echo $text 2>/dev/null >$2/kernel/mm/lru_gen/min_ttl_ms; then cat $2/kernel/mm/lru_gen/min_ttl_ms; else echo "$text refused"; fi
  done >$name.ttl
  kill -s TERM $workload; wait $workload || true
  until rmdir /sys/fs/cgroup/$name; do sleep 0.1; done
}}

try kernel /sys
try passed /tmp/passed/sys
try own /tmp/own/sys
awk '{{ print $1, $1 == "memcg" ? $2 $3 : NF }}' /sys/kernel/debug/lru_gen >same.kernel
awk '{{ print $1, $1 == "memcg" ? $2 $3 : NF }}' /tmp/passed/sys/kernel/debug/lru_gen >same.passed
kill -s TERM $passed $own; wait $passed; wait $own
grep -c isotherm /proc/self/mounts >left || true
"""


def kib(text, field):
    """A field of /proc/PID/status."""
    (line,) = [line for line in text.splitlines() if line.startswith(field + ":")]
    return int(line.split()[1])


def judge(name, files, results):
    """Compares what was seen with what must be."""
    check = results.check
    for way in WAYS:
        check(files[way + ".status"].strip() == "0", f"{name}, {way}: the script ends well {files[way + '.errors'].strip()!r}")
        said = files[way + ".said"].split()
        check(len(said) == 4 and int(said[2]) - int(said[1]) >= 3, f"{name}, {way}: number, before, aged, after: {' '.join(said)}")
        swapped, resident = (kib(files[way + ".memory"], field) >> 10 for field in ("VmSwap", "VmRSS"))
        check(swapped >= SIZE_MIB * 5 // 8, f"{name}, {way}: {swapped} MiB of the cold {SIZE_MIB * 3 // 4} are out")
        check(resident >= SIZE_MIB // 4 - 2, f"{name}, {way}: the hot part stays ({resident} MiB are in memory)")
        full = files[way + ".full"].splitlines()
        check(len(full) >= 26 and [line.split()[0] for line in full[3:7]] == ["0", "1", "2", "3"], f"{name}, {way}: lru_gen_full has its lines")
    for what in ("answers", "enabled", "ttl"):
        kernel, passed, own = (files[f"{way}.{what}"].splitlines() for way in WAYS)
        check(kernel == passed, f"{name}: {what} passed through are the kernel's: {differences(kernel, passed)}")
        check(kernel == own, f"{name}: {what} of ours are the kernel's: {differences(kernel, own)}")
    check(files["same.kernel"] == files["same.passed"], f"{name}: what is read is passed through")
    check(files["left"].strip() == "0", f"{name}: nothing stays mounted")


def differences(one, other):
    """Lines that are not the same, for people."""
    return [pair for pair in zip(one, other) if pair[0] != pair[1]] or len(one)
