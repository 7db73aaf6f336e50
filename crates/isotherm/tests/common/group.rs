//! Control groups of our own.

use std::path::PathBuf;

/// A control group that is removed when the test ends.
pub struct Group(pub PathBuf);

impl Group {
    pub fn new(dir: PathBuf) -> Self {
        std::fs::create_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        Self(dir)
    }

    pub fn add(&self, pid: u32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group is busy until the exit of its last process is complete.
        for _ in 0..1000 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        eprintln!("could not remove {}", self.0.display());
    }
}
