//! Programs in control groups of their own.

#[path = "../../../../linux/tests/common/group.rs"]
mod group;

pub use group::Group;
use std::path::PathBuf;
use std::process::Command;

/// Where groups for memory are made here, v1 or v2; `None` where there are none.
fn hierarchy() -> Option<PathBuf> {
    let setup = isotherm_linux::cgroup::CgroupSetup::read(&isotherm_linux::roots::Roots::system());
    setup.memory_mount().map(|(mount, _)| mount.to_path_buf())
}

/// Ends what is left in the group, which its folder waits for.
pub struct Ending(pub Group);

impl Drop for Ending {
    fn drop(&mut self) {
        let pids = std::fs::read_to_string(self.0.0.join("cgroup.procs")).unwrap_or_default();
        pids.lines().filter_map(|pid| pid.parse().ok()).for_each(|pid| super::send(pid, "KILL"));
    }
}

/// Where groups for memory are made here, and what mounts that anew.
pub fn mounting() -> Option<(PathBuf, &'static str)> {
    let setup = isotherm_linux::cgroup::CgroupSetup::read(&isotherm_linux::roots::Roots::system());
    let (mount, v2) = setup.memory_mount()?;
    Some((mount.to_path_buf(), if v2 { "-t cgroup2 none" } else { "-t cgroup -o memory none" }))
}

/// A group of its own, and its path; `None` where there are no groups for memory.
pub fn group(name: &str) -> Option<(Group, String)> {
    let name = format!("isotherm-test-{name}-{}", std::process::id());
    Some((Group::new(hierarchy()?.join(&name)), format!("/{name}")))
}

/// A program in a group from its first page on.
pub fn within(group: &Group, program: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "echo $$ >\"$0/cgroup.procs\" && exec \"$@\""]).arg(&group.0);
    shell.arg(program.get_program()).args(program.get_args());
    shell
}
