//! What a confined process can no longer do. It cannot be undone, so that a process of its own does it: this program,
//! run anew.

use isotherm_linux::confine::{Calls, CapabilitySet, Files, Landlock, Needs, confine};
use isotherm_linux::proc::PidFd;
use std::io::{ErrorKind, Read, Write};
use std::process::Command;

const ROLE: &str = "ISOTHERM_TEST_CONFINED";

/// Whether a call failed for want of permission.
fn refused<T>(result: std::io::Result<T>) -> bool {
    result.is_err_and(|e| e.kind() == ErrorKind::PermissionDenied)
}

#[test]
fn what_was_not_declared_is_refused_and_what_was_works() {
    if std::env::var_os(ROLE).is_some() {
        return;
    }
    let this = std::env::current_exe().unwrap();
    let done = Command::new(this).args(["--exact", "child", "--nocapture"]).env(ROLE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && text.contains("child: all checked"), "{text}");
}

#[test]
fn child() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let read = vec!["/proc".into(), "/usr".into(), "/lib".into(), "/lib64".into(), "/etc".into()];
    let files = Files::Only { read, write: Vec::new(), own: vec![folder.path().into()] };
    let needs = Needs::new(files).capabilities(CapabilitySet::KILL).calls([Calls::Processes]);
    let confined = confine(&needs).unwrap();
    assert!(CapabilitySet::KILL.contains(confined.capabilities));

    // What a program must not do any more.
    assert!(refused(Command::new("/bin/true").status()), "execve");
    assert!(refused(std::net::TcpListener::bind("127.0.0.1:0")), "socket");
    assert!(refused(std::os::unix::net::UnixStream::pair()), "socketpair");
    assert!(
        refused(rustix::mount::unmount("/proc", rustix::mount::UnmountFlags::DETACH).map_err(Into::into)),
        "umount"
    );
    assert!(refused(rustix::process::chroot("/").map_err(Into::into)), "chroot");
    assert!(refused(rustix::thread::set_thread_gid(rustix::process::getgid()).map_err(Into::into)), "setgid");
    let us = rustix::process::getpid();
    assert!(refused(rustix::process::test_kill_process(us).map_err(Into::into)), "kill");
    let executable = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::EXEC;
    // SAFETY: a new mapping at an address of the kernel's choice, which is not used.
    let mapped =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), 4096, executable, rustix::mm::MapFlags::PRIVATE) };
    assert!(refused(mapped.map_err(Into::into)), "mmap that can be executed");
    // SAFETY: integers only; both fail, as there is no such program, map or process.
    let (load, trace) =
        unsafe { (libc::syscall(libc::SYS_bpf, 5, 0, 0), libc::syscall(libc::SYS_ptrace, 16, 1, 0, 0)) };
    assert_eq!((load, trace), (-1, -1));
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EPERM), "ptrace");
    let new_namespace = rustix::thread::UnshareFlags::NEWUSER;
    // SAFETY: refused before anything is unshared.
    assert!(refused(unsafe { rustix::thread::unshare_unsafe(new_namespace) }.map_err(Into::into)), "unshare");
    assert!(refused(
        rustix::thread::set_secure_computing_mode(rustix::thread::SecureComputingMode::Strict).map_err(Into::into)
    ));
    if confined.landlock != Landlock::Absent {
        assert!(refused(std::fs::read_dir("/sys")), "a folder that was not declared");
        assert!(refused(std::fs::write("/tmp/isotherm-must-not-be-there", "x")));
    }

    // What it does all the time.
    std::fs::write(folder.path().join("own"), "x").unwrap();
    std::fs::remove_file(folder.path().join("own")).unwrap();
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let of = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap().trim().to_owned();
    assert_eq!((of("NoNewPrivs:").as_str(), of("Seccomp:").as_str()), ("1", "2"));
    assert!(u64::from_str_radix(&of("CapEff:"), 16).unwrap() & !(1 << 5) == 0);
    let in_thread = std::thread::spawn(move || {
        writer.write_all(b"hello").unwrap();
        refused(Command::new("/bin/true").status())
    });
    let mut hello = [0; 5];
    reader.read_exact(&mut hello).unwrap();
    assert!(in_thread.join().unwrap(), "threads are confined, too");
    assert!(!PidFd::open(std::process::id()).unwrap().has_exited());
    println!("child: all checked");
}
