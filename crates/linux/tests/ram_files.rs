//! Which files a process may have emptied through us: those that it could empty itself.

use isotherm_linux::hostmem::ram_file::of_process;
use isotherm_linux::hostmem::shared::SharedMemory;
use isotherm_linux::mm::mapping::Mapping;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const SIZE: u64 = 4 << 20;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn inodes_found() -> Vec<(u64, u64)> {
    of_process(std::process::id(), SIZE).unwrap().iter().map(|f| f.identity).collect()
}

fn identity(file: &File) -> (u64, u64) {
    let meta = file.metadata().unwrap();
    (meta.dev(), meta.ino())
}

/// A new tmpfs on `at`, seen by this thread alone, with a file of [`SIZE`] bytes.
fn tmpfs(at: &Path) -> File {
    std::fs::create_dir(at).unwrap();
    mount("tmpfs", at, "tmpfs", MountFlags::empty(), None).unwrap();
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(at.join("file")).unwrap();
    file.set_len(SIZE).unwrap();
    file
}

#[test]
fn root_a_file_that_a_process_may_only_read_is_not_its_memory() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let at = dir.path().to_owned();
    let in_namespace = move || {
        // SAFETY: concerns this thread alone; what it mounts goes with it.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FS | libc::CLONE_NEWNS) }, 0);
        // Nothing that is mounted below is to reach the other namespaces.
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
        let (mine, victim) = (tmpfs(&at.join("mine")), tmpfs(&at.join("victim")));
        assert_eq!(identity(&mine).1, identity(&victim).1, "both are the first file of their file system");
        let _mapped = Mapping::of_file(&mine, SIZE as usize).unwrap();
        // The very attack: our file is mapped writable, and the victim, which has the same number, is open for reading.
        let reading = File::open(at.join("victim/file")).unwrap();
        let victim_id = identity(&victim);
        drop(victim);
        let found = inodes_found();
        assert!(found.contains(&identity(&mine)), "{found:?}");
        assert!(!found.contains(&victim_id), "{found:?}");
        // The right file, but open for reading only.
        let mine_id = identity(&mine);
        drop(mine);
        let reading_mine = File::open(at.join("mine/file")).unwrap();
        assert!(!inodes_found().contains(&mine_id));
        drop((reading, reading_mine));
    };
    std::thread::spawn(in_namespace).join().unwrap();
}

#[test]
fn root_a_file_on_a_disk_is_no_memory() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let memory = SharedMemory::new("memory-backend-memfd", SIZE as usize).unwrap();
    assert!(inodes_found().contains(&identity(memory.file())));
    // Beside the test's program: /tmp may be memory.
    let dir = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(dir.path().join("file")).unwrap();
    file.set_len(SIZE).unwrap();
    let _mapped = Mapping::of_file(&file, SIZE as usize).unwrap();
    assert!(!inodes_found().contains(&identity(&file)));
}
