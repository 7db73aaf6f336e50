//! The files of lru_gen in a mounted folder, on real processes. Needs root, FUSE and eBPF.

use crate::common::grouped::{self, Group, within};
use crate::common::{self, Running, command, resident, run, start, status_bytes, text, wait_until, workload};
use crate::zram::ZramSwap;
use isotherm_core::keeper::lru_gen::{KernelMemcg, parse};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/lru_gen/age_and_evict");

/// Served files.
struct Served {
    folder: TempDir,
    server: Running,
}

impl Served {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = start(&mut command(["mount", "--own-lru-gen", text(folder.path())]));
        let served = Self { folder, server };
        wait_until("it is mounted", || served.lru_gen().exists());
        served
    }

    fn file(&self, path: &str) -> PathBuf {
        self.folder.path().join("sys/kernel").join(path)
    }

    fn lru_gen(&self) -> PathBuf {
        self.file("debug/lru_gen")
    }

    fn groups(&self) -> Vec<KernelMemcg> {
        parse(&fs::read_to_string(self.lru_gen()).unwrap()).unwrap()
    }

    fn group(&self, path: &str) -> Option<KernelMemcg> {
        self.groups().into_iter().find(|group| group.path == path)
    }

    /// The number of a group's youngest generation.
    fn youngest(&self, path: &str) -> u64 {
        self.group(path).unwrap().nodes[0].1.last().unwrap().seq
    }

    fn write(&self, text: &str) -> Result<(), i32> {
        fs::write(self.lru_gen(), text).map_err(|e| e.raw_os_error().unwrap())
    }

    fn end(self) {
        self.server.signal("TERM");
        self.server.finish().expect(0, &[]);
        assert_eq!(fs::read_dir(self.folder.path()).unwrap().count(), 0, "unmounted");
    }
}

fn group(name: &str) -> Option<(Group, String)> {
    grouped::group(&format!("gen-{name}"))
}

/// Ends with its test.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn root_a_script_for_the_kernels_file_ages_and_evicts() {
    let Some((group, path)) = group("script") else { return };
    let Some(_swap) = ZramSwap::new(512 * MIB) else { return };
    let served = Served::new();
    let hot = workload("hotspot --size 64M --hot 25% --thp no --seed 7");
    let target = start(&mut within(&group, &hot));
    wait_until("its memory is there", || resident(target.pid()) >= 64 * MIB);
    let done = run(Command::new("sh").args([SCRIPT, text(&served.lru_gen()), &path]));
    done.expect(0, &[]);
    let words: Vec<u64> = done.stdout.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(words[1..], [3, 6, 6], "{done:?}");
    let pid = target.pid();
    wait_until("the cold part is out", || status_bytes(pid, "VmSwap") >= 44 * MIB);
    assert!(resident(pid) >= 15 * MIB, "the hot part stays: {}", resident(pid));
    let left = served.group(&path).unwrap();
    // What it maps of its own file is as large as that was built.
    assert!(left.nodes[0].1.iter().map(|g| g.anon_bytes).sum::<u64>() < 24 * MIB, "{left:?}");
    assert_eq!(left.nodes[0].1.iter().map(|g| g.seq).collect::<Vec<_>>(), [5, 6]);
    let full = fs::read_to_string(served.file("debug/lru_gen_full")).unwrap();
    assert_eq!(parse(&full).unwrap().len(), served.groups().len());
    target.signal("KILL");
    target.finish();
    served.end();
}

/// A child that shares all of its parent's memory, as after a fork.
#[test]
fn root_memory_that_others_map_as_well_stays() {
    let Some((group, path)) = group("fork") else { return };
    let Some(_swap) = ZramSwap::new(512 * MIB) else { return };
    let served = Served::new();
    let script = "import os, time\nheld = bytearray(b'x' * (32 << 20))\nos.fork()\ntime.sleep(300)\n";
    let parent = Ending(within(&group, Command::new("python3").args(["-c", script])).spawn().unwrap());
    let members = || fs::read_to_string(group.0.join("cgroup.procs")).unwrap_or_default().lines().count();
    wait_until("it has forked", || members() == 2 && resident(parent.0.id()) >= 32 * MIB);
    let id = served.group(&path).unwrap().id;
    for seq in 3..6 {
        served.write(&format!("+ {id} 0 {seq}")).unwrap();
    }
    served.write(&format!("- {id} 0 4 100")).unwrap();
    assert_eq!(served.youngest(&path), 6);
    assert!(status_bytes(parent.0.id(), "RssAnon") >= 32 * MIB, "the kernel does not evict it for one of them");
    let shown: u64 = served.group(&path).unwrap().nodes[0].1.iter().map(|g| g.bytes()).sum();
    assert!(shown >= 64 * MIB, "it counts for each: {}", shown / MIB);
    for pid in fs::read_to_string(group.0.join("cgroup.procs")).unwrap().lines() {
        common::send(pid.parse().unwrap(), "KILL");
    }
    served.end();
}

#[test]
fn root_writes_end_as_in_the_kernel() {
    let Some((group, path)) = group("errors") else { return };
    let served = Served::new();
    let id = served.group(&path).expect("a group without processes is there, too").id;
    assert_eq!(served.youngest(&path), 3);
    let (invalid, range) = (Err(22), Err(34));
    for text in
        ["\n", "junk", "+", &format!("+ {id} 0 4"), &format!("+ {id} 1 3"), &format!("- {id} 0 2"), "+ 4294967295 0 3"]
    {
        assert_eq!(served.write(text), invalid, "{text:?}");
    }
    assert_eq!(served.write(&format!("+ {id} 0 3 100 0")), range);
    assert_eq!(served.write(&format!("+ {id} 0 3;+ {id} 0 4\n")), Ok(()));
    assert_eq!(served.youngest(&path), 5);
    let (enabled, min_ttl) = (served.file("mm/lru_gen/enabled"), served.file("mm/lru_gen/min_ttl_ms"));
    assert_eq!(fs::read_to_string(&enabled).unwrap(), "0x0007\n");
    fs::write(&enabled, "n").unwrap();
    assert_eq!(fs::read_to_string(&enabled).unwrap(), "0x0000\n");
    fs::write(&min_ttl, "1000\n").unwrap();
    assert_eq!(fs::read_to_string(&min_ttl).unwrap(), "1000\n");
    assert_eq!(fs::write(&min_ttl, "soon").unwrap_err().raw_os_error(), Some(22));
    let full = fs::OpenOptions::new().write(true).open(served.file("debug/lru_gen_full"));
    assert_eq!(full.unwrap_err().raw_os_error(), Some(13));
    // A group that goes away between a read and a write.
    drop(group);
    assert_eq!(served.write(&format!("+ {id} 0 5")), invalid);
    assert!(served.group(&path).is_none());
    served.end();
}

/// 150 processes, of which some end and some come while they are aged; descriptors of those that went are closed.
#[test]
fn root_processes_that_come_and_go_leave_nothing_behind() {
    let Some((group, path)) = group("many") else { return };
    let served = Served::new();
    let sleeper = |count: usize| -> Vec<Ending> {
        (0..count).map(|_| Ending(within(&group, Command::new("sleep").arg("300")).spawn().unwrap())).collect()
    };
    let mut running = sleeper(150);
    let members = || fs::read_to_string(group.0.join("cgroup.procs")).unwrap_or_default().lines().count();
    wait_until("all are there", || members() == 150);
    let id = served.group(&path).unwrap().id;
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", served.server.pid())).unwrap().count();
    served.write(&format!("+ {id} 0 3")).unwrap();
    let full = descriptors();
    assert!(full >= 150, "{full}");
    for seq in 4..12 {
        // Those killed are there for a while yet, as zombies; those started may not run their program yet.
        running.drain(..20).for_each(|mut ending| _ = ending.0.kill());
        running.extend(sleeper(20));
        served.write(&format!("+ {id} 0 {seq}")).unwrap();
        assert_eq!(served.youngest(&path), seq + 1);
    }
    wait_until("all are there again", || members() == 150);
    served.write(&format!("+ {id} 0 12")).unwrap();
    assert!(descriptors() <= full + 8, "{} after {full}", descriptors());
    running.clear();
    wait_until("all are gone", || members() == 0);
    served.write(&format!("+ {id} 0 13")).unwrap();
    assert!(descriptors() + 150 <= full, "{} after {full}", descriptors());
    let shown = served.group(&path).unwrap();
    assert_eq!(shown.nodes[0].1.iter().map(|g| g.bytes()).sum::<u64>(), 0, "{shown:?}");
    served.end();
}

#[test]
fn root_a_thousand_groups_are_listed_and_aged() {
    let Some((top, path)) = group("thousand") else { return };
    let served = Served::new();
    let groups: Vec<Group> = (0..1000).map(|i| Group::new(top.0.join(format!("{i}")))).collect();
    let sleeper = Ending(within(&groups[0], Command::new("sleep").arg("300")).spawn().unwrap());
    let below = format!("{path}/");
    let ours = || served.groups().into_iter().filter(|group| group.path.starts_with(&below)).collect::<Vec<_>>();
    assert_eq!(ours().len(), 1000);
    let commands: String = ours().iter().map(|group| format!("+ {} 0 3\n", group.id)).collect();
    served.write(&commands).unwrap();
    assert!(ours().iter().all(|group| group.nodes[0].1.last().unwrap().seq == 4));
    assert!(resident(served.server.pid()) < 128 * MIB, "{}", resident(served.server.pid()));
    drop(sleeper);
    drop(groups);
    assert_eq!(ours().len(), 0);
    drop(top);
    served.end();
}

#[test]
fn root_own_generations_stand_at_the_usual_places_of_a_command() {
    let files = ["/sys/kernel/mm/lru_gen/enabled", "/sys/kernel/debug/lru_gen"];
    let output = command(["mount", "--own-lru-gen", "--exec", "cat", files[0], files[1]]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("0x0007\nmemcg"), "{text} {}", String::from_utf8_lossy(&output.stderr));
}
