//! The kernel's own generations: `/sys/kernel/debug/lru_gen` and the switches in `/sys/kernel/mm/lru_gen`.

use super::error::KernelLruError;
use super::files::{ENABLED, FILE, MIN_TTL};
use crate::guard::Guard;
use crate::knob::Knob;
use crate::roots::Roots;
use isotherm_core::keeper::kernel::KernelMemory;
use isotherm_core::keeper::lru_gen::{KernelMemcg, parse};
use isotherm_core::memcg::is_below;
use std::io::{self, Write};

/// The kernel's multi-generational LRU.
#[derive(Debug, Clone)]
pub struct KernelLru {
    roots: Roots,
}

impl KernelLru {
    /// Finds it.
    pub fn open(roots: &Roots) -> Result<Self, KernelLruError> {
        let enabled = roots.line(ENABLED).ok_or(KernelLruError::Absent)?;
        match enabled.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok()) {
            Some(bits) if bits & 1 == 1 => {}
            Some(_) => return Err(KernelLruError::Off(enabled)),
            None => return Err(KernelLruError::Switch(enabled)),
        }
        roots.read(FILE).map_err(KernelLruError::Hidden)?;
        Ok(Self { roots: roots.clone() })
    }

    /// All memories.
    pub fn read(&self) -> Result<Vec<KernelMemcg>, KernelLruError> {
        let text = self.roots.read(FILE).map_err(failed("read", FILE))?;
        Ok(parse(&text)?)
    }

    /// The memory of the control group at `path` and those below it. A group that has been removed stays in the list
    /// for as long as memory is charged to it, with its old path, but without a number by which it could be addressed:
    /// it is left out.
    pub fn of_group(&self, path: &str) -> Result<Vec<KernelMemcg>, KernelLruError> {
        // Without the memory controller the only number is 0, and the path empty.
        let lives = |m: &KernelMemcg| m.id != 0 || m.path.is_empty();
        let found: Vec<KernelMemcg> =
            self.read()?.into_iter().filter(|m| is_below(&m.path, path) && lives(m)).collect();
        if found.is_empty() {
            return Err(KernelLruError::NoGroup(path.to_owned()));
        }
        Ok(found)
    }

    /// Creates a generation, of anonymous memory, too, whether there is swap or not.
    pub fn age(&self, memory: &KernelMemory) -> Result<(), KernelLruError> {
        // Up to 6.12 any number but 0 means that; later it is a swappiness.
        self.command(&format!("+ {} {} {} 100 1", memory.id, memory.node, memory.max_seq()))
    }

    /// Evicts generations up to `min_seq`, at most `pages` pages.
    pub fn evict(&self, memory: &KernelMemory, min_seq: u64, swappiness: u8, pages: u64) -> Result<(), KernelLruError> {
        self.command(&format!("- {} {} {min_seq} {swappiness} {pages}", memory.id, memory.node))
    }

    /// Sets for how long a working set is kept, until what this gives is dropped. Fails while another process has set
    /// it so. `guard` starts a guard of settings.
    pub fn set_min_ttl(&self, ms: u64, guard: impl FnOnce() -> io::Result<Guard>) -> Result<Knob, KernelLruError> {
        Knob::set(&self.roots, MIN_TTL, &ms.to_string(), guard).map_err(failed("change", MIN_TTL))
    }

    fn command(&self, command: &str) -> Result<(), KernelLruError> {
        let file = std::fs::OpenOptions::new().write(true).open(self.roots.path(FILE));
        let refused = |source| KernelLruError::Refused { command: command.to_owned(), source };
        file.map_err(failed("write", FILE))?.write_all(command.as_bytes()).map_err(refused)
    }
}

fn failed(what: &'static str, file: &'static str) -> impl FnOnce(io::Error) -> KernelLruError {
    move |source| KernelLruError::File { what, file, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    const TEXT: &str = "memcg     1 /\n node     0\n          0      99000        100         20 \n\
        \x20         1       9000        300         40 \nmemcg     7 /app\n node     0\n          5        800         10          0 \n\
        \x20         6         10         20          0 \nmemcg     8 /app/worker\n node     0\n          5        800          1          0 \n\
        memcg     9 /apple\n";

    #[test]
    fn groups_are_found_with_those_below() {
        let t = tree(&[(&ENABLED[1..], "0x0007\n"), (&FILE[1..], TEXT)]);
        let lru = KernelLru::open(&t.roots).unwrap();
        assert_eq!(lru.read().unwrap().len(), 4);
        let ids = |path| lru.of_group(path).unwrap().iter().map(|m| m.id).collect::<Vec<_>>();
        assert_eq!(ids("/app"), [7, 8]);
        assert_eq!(ids("/"), [1, 7, 8, 9]);
        assert!(lru.of_group("/none").unwrap_err().to_string().contains("'/none'"));
        assert_eq!(lru.of_group("/app").unwrap()[0].nodes[0].1[1].anon_bytes, 20 << 12);
    }

    #[test]
    fn groups_that_are_gone_are_left_out() {
        let gone = TEXT.replace("memcg     7 /app\n", "memcg     0 /app\n");
        let t = tree(&[(&ENABLED[1..], "0x0007\n"), (&FILE[1..], &gone)]);
        let lru = KernelLru::open(&t.roots).unwrap();
        let ids = |path| lru.of_group(path).unwrap().iter().map(|m| m.id).collect::<Vec<_>>();
        assert_eq!(ids("/app"), [8]);
        let none = "memcg     0 \n node     0\n          0      99000        100         20 \n";
        let t = tree(&[(&ENABLED[1..], "0x0007\n"), (&FILE[1..], none)]);
        assert_eq!(KernelLru::open(&t.roots).unwrap().of_group("/").unwrap().len(), 1);
    }

    #[test]
    fn commands_have_the_kernels_form() {
        let t = tree(&[(&ENABLED[1..], "0x0001\n"), (&FILE[1..], TEXT), (&MIN_TTL[1..], "0\n")]);
        let lru = KernelLru::open(&t.roots).unwrap();
        // A command overwrites the beginning of what is only a file here.
        let app = lru.of_group("/app").unwrap().remove(0).into_memories().next().unwrap();
        lru.age(&app).unwrap();
        assert!(std::fs::read_to_string(t.roots.path(FILE)).unwrap().starts_with("+ 7 0 6 100 1"));
        lru.evict(&app, 5, 60, 1000).unwrap();
        assert!(std::fs::read_to_string(t.roots.path(FILE)).unwrap().starts_with("- 7 0 5 60 1000"));
        let guard = || Guard::run(std::process::Command::new("sh").args(["-c", "echo; exec cat"]));
        let held = lru.set_min_ttl(1000, guard).unwrap();
        assert_eq!(t.roots.line(MIN_TTL).as_deref(), Some("1000"));
        drop(held);
        assert_eq!(t.roots.line(MIN_TTL).as_deref(), Some("0"));
    }

    #[test]
    fn what_is_missing_is_told_with_a_remedy() {
        let open = |files: &[(&str, &str)]| KernelLru::open(&tree(files).roots).unwrap_err().to_string();
        assert!(open(&[]).contains("CONFIG_LRU_GEN"));
        assert!(open(&[(&ENABLED[1..], "0x0000\n")]).contains("echo y >"));
        assert!(open(&[(&ENABLED[1..], "0x0007\n")]).contains("debugfs"));
        assert!(open(&[(&ENABLED[1..], "what\n")]).contains("not understood"));
    }
}
