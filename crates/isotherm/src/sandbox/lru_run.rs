//! What `lru run` needs.

use super::LOOKS_INTO_PROCESSES;
use isotherm_linux::cgroup::CgroupSetup;
use isotherm_linux::confine::{Calls, CapabilitySet, Files, Needs};
use isotherm_linux::roots::Roots;
use std::path::{Path, PathBuf};

/// With generations of our own. `signals`: processes are killed, or ended with us.
pub fn by_walks(signals: bool) -> Needs {
    let needs = Needs::new(Files::Any(LOOKS_INTO_PROCESSES))
        .capabilities(
            CapabilitySet::BPF | CapabilitySet::SYS_PTRACE | CapabilitySet::SYS_NICE | CapabilitySet::DAC_OVERRIDE,
        )
        .calls([Calls::Serve, Calls::Processes, Calls::RunBpf, Calls::Advise]);
    if signals { needs.capabilities(CapabilitySet::KILL) } else { needs }
}

/// With the kernel's: its control files, and those of control groups. `socket`: the control socket, whose file goes at
/// the end.
pub fn by_kernel(socket: Option<&Path>, roots: &Roots) -> Needs {
    let groups = CgroupSetup::read(roots);
    let read: Vec<PathBuf> =
        ["/proc", "/sys"].map(PathBuf::from).into_iter().chain(groups.v2).chain(groups.v1_memory).collect();
    let write = vec!["/sys/kernel/debug/lru_gen".into(), "/sys/kernel/mm/lru_gen".into()];
    let own = socket.and_then(Path::parent).map(PathBuf::from).into_iter().collect();
    Needs::new(Files::Only { read, write, own }).calls([Calls::Serve])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_signalled_only_by_who_is_to() {
        let (quiet, loud) = (by_walks(false).wanted_capabilities(), by_walks(true).wanted_capabilities());
        assert_eq!(loud.difference(quiet), CapabilitySet::KILL);
        assert!(!loud.intersects(CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_RESOURCE));
        assert!(!by_walks(true).wanted_calls().contains(&Calls::Inject));
    }

    #[test]
    fn the_kernels_engine_needs_no_capability_and_few_files() {
        let needs = by_kernel(Some(Path::new("/run/isotherm/7.sock")), &Roots::captured("/no/such/tree"));
        assert!(needs.wanted_capabilities().is_empty());
        assert_eq!(needs.wanted_calls().iter().collect::<Vec<_>>(), [&Calls::Basic, &Calls::Serve]);
        let Files::Only { read, write, own } = needs.files() else { panic!("all files") };
        assert!(read.contains(&"/proc".into()) && !write.contains(&"/proc".into()));
        assert_eq!((write.len(), own), (2, &vec![PathBuf::from("/run/isotherm")]));
    }
}
