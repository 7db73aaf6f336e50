//! Which processes calls may be injected into, as far as `/proc` tells.

use crate::roots::Roots;

/// Why calls must not be injected into process `pid`, with what helps. `None`: nothing speaks against it so far.
pub(crate) fn ineligible(roots: &Roots, pid: u32) -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("only x86-64 is supported".into());
    }
    let Ok(status) = roots.read(format!("/proc/{pid}/status")) else {
        return Some(format!("pid {pid} has exited, or /proc/{pid}/status may not be read"));
    };
    let field = |name: &str| {
        status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map(str::trim).unwrap_or_default()
    };
    let why = match field("State").chars().next() {
        Some('Z' | 'X') => "its main thread has exited, and only that is used".to_owned(),
        Some('T') => "it is stopped; let it go on (SIGCONT)".into(),
        Some('t') => "it is stopped by a debugger; end that".into(),
        _ if field("VmSize").is_empty() => "it is a kernel thread".into(),
        _ if !matches!(field("TracerPid"), "" | "0") => {
            format!("pid {} traces it (a debugger or strace); end that", field("TracerPid"))
        }
        _ if !matches!(field("Seccomp"), "" | "0") => {
            "its system calls are filtered (seccomp), so that a new one could kill it; run it without the filter \
             (systemd: SystemCallFilter=)"
                .into()
        }
        _ if field("x86_Thread_features").split_whitespace().any(|f| f == "shstk") => {
            "it uses a shadow stack; start it with GLIBC_TUNABLES=glibc.cpu.x86_shstk=off".into()
        }
        _ => match class(roots, pid) {
            Some((2, 62)) | None => return None,
            Some(_) => "its program is not 64-bit x86; only that is supported".into(),
        },
    };
    Some(format!("the kernel takes this advice only from pid {pid} itself, and it cannot be made to give it: {why}"))
}

/// Class and machine of the program, from its ELF header.
fn class(roots: &Roots, pid: u32) -> Option<(u8, u16)> {
    use std::io::Read;
    let mut head = [0; 20];
    std::fs::File::open(roots.path(format!("/proc/{pid}/exe"))).ok()?.read_exact(&mut head).ok()?;
    head.starts_with(b"\x7fELF").then(|| (head[4], u16::from_le_bytes([head[18], head[19]])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    fn answer(status: &str) -> Option<String> {
        ineligible(&tree(&[("proc/42/status", status)]).roots, 42)
    }

    #[test]
    fn anything_unusual_is_refused_with_its_reason() {
        let plain = "State:\tS (sleeping)\nVmSize:\t100 kB\nTracerPid:\t0\nSeccomp:\t0\nx86_Thread_features:\t\n";
        assert_eq!(answer(plain), None);
        let with = |from: &str, to: &str| answer(&plain.replace(from, to)).unwrap();
        assert!(with("S (sleeping)", "Z (zombie)").contains("main thread has exited"));
        assert!(with("S (sleeping)", "T (stopped)").contains("SIGCONT"));
        assert!(with("S (sleeping)", "t (tracing stop)").contains("debugger"));
        assert!(with("VmSize:\t100 kB\n", "").contains("kernel thread"));
        assert!(with("TracerPid:\t0", "TracerPid:\t77").contains("pid 77 traces it"));
        assert!(with("Seccomp:\t0", "Seccomp:\t2").contains("seccomp"));
        assert!(with("features:\t", "features:\tshstk wrss").contains("shadow stack"));
        assert!(ineligible(&tree(&[]).roots, 42).unwrap().contains("has exited"));
    }

    #[test]
    fn programs_of_other_machines_are_refused() {
        let with = |class: u8, machine: u16| {
            let t = tree(&[("proc/42/status", "State:\tR\nVmSize: 1 kB\n"), ("proc/42/exe", "")]);
            let mut head = b"\x7fELF".to_vec();
            head.resize(64, 0);
            (head[4], head[18]) = (class, machine as u8);
            std::fs::write(t.roots.path("/proc/42/exe"), head).unwrap();
            ineligible(&t.roots, 42)
        };
        assert_eq!(with(2, 62), None);
        assert!(with(1, 3).unwrap().contains("64-bit"));
        assert!(with(1, 62).unwrap().contains("64-bit"), "x32");
    }
}
