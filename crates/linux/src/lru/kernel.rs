//! The kernel's own generations: `/sys/kernel/debug/lru_gen` and the switches in `/sys/kernel/mm/lru_gen`.

use crate::roots::Roots;
use isotherm_core::keeper::kernel::KernelMemory;
use isotherm_core::keeper::lru_gen::{KernelMemcg, is_below, parse};
use std::io::{self, Write};

/// Generations, and commands to create and evict them.
pub const FILE: &str = "/sys/kernel/debug/lru_gen";
pub(crate) const ENABLED: &str = "/sys/kernel/mm/lru_gen/enabled";
/// The time for which a working set is kept, of the whole machine.
pub(crate) const MIN_TTL: &str = "/sys/kernel/mm/lru_gen/min_ttl_ms";

/// The kernel's multi-generational LRU.
#[derive(Debug, Clone)]
pub struct KernelLru {
    roots: Roots,
}

impl KernelLru {
    /// Finds it. The error is a reason and what helps.
    pub fn open(roots: &Roots) -> Result<Self, String> {
        let Some(enabled) = roots.line(ENABLED) else {
            return Err("this kernel has no multi-generational LRU (no /sys/kernel/mm/lru_gen); use a kernel with \
                 CONFIG_LRU_GEN=y (6.1 or later), or --engine user"
                .into());
        };
        let bits = enabled.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
        match bits {
            Some(bits) if bits & 1 == 1 => {}
            Some(_) => {
                return Err(format!(
                    "the kernel's multi-generational LRU is switched off ({ENABLED} is {enabled}); switch it on with \
                     `echo y >{ENABLED}`, or use --engine user"
                ));
            }
            None => return Err(format!("{ENABLED} holds {enabled:?}, which is not understood; use --engine user")),
        }
        if let Err(e) = roots.read(FILE) {
            let help = match e.kind() {
                io::ErrorKind::NotFound => "mount it with `mount -t debugfs none /sys/kernel/debug`",
                _ => "run as root; a kernel that is locked down does not show it at all",
            };
            return Err(format!("cannot read {FILE}: {e}; {help}, or use --engine user"));
        }
        Ok(Self { roots: roots.clone() })
    }

    pub fn read(&self) -> Result<Vec<KernelMemcg>, String> {
        let text = self.roots.read(FILE).map_err(|e| format!("cannot read {FILE}: {e}"))?;
        parse(&text).map_err(|e| format!("{FILE}: {e}"))
    }

    /// The memory of the control group at `path` and those below it. A group that has been removed stays in the list
    /// for as long as memory is charged to it, with its old path, but without a number by which it could be addressed:
    /// it is left out.
    pub fn of_group(&self, path: &str) -> Result<Vec<KernelMemcg>, String> {
        // Without the memory controller the only number is 0, and the path empty.
        let lives = |m: &KernelMemcg| m.id != 0 || m.path.is_empty();
        let found: Vec<KernelMemcg> =
            self.read()?.into_iter().filter(|m| is_below(&m.path, path) && lives(m)).collect();
        if found.is_empty() {
            return Err(format!("{FILE} knows no control group '{path}'; it lists those that control memory"));
        }
        Ok(found)
    }

    /// Creates a generation, of anonymous memory, too, whether there is swap or not.
    pub fn age(&self, memory: &KernelMemory) -> Result<(), String> {
        // Up to 6.12 any number but 0 means that; later it is a swappiness.
        self.command(&format!("+ {} {} {} 100 1", memory.id, memory.node, memory.max_seq()))
    }

    /// Evicts generations up to `min_seq`, at most `pages` pages.
    pub fn evict(&self, memory: &KernelMemory, min_seq: u64, swappiness: u8, pages: u64) -> Result<(), String> {
        self.command(&format!("- {} {} {min_seq} {swappiness} {pages}", memory.id, memory.node))
    }

    /// Sets for how long a working set is kept, and tells what was set before.
    pub fn set_min_ttl(&self, ms: u64) -> Result<u64, String> {
        let before = self.roots.line(MIN_TTL).and_then(|t| t.parse().ok());
        let before = before.ok_or_else(|| format!("cannot read {MIN_TTL}"))?;
        std::fs::write(self.roots.path(MIN_TTL), ms.to_string()).map_err(|e| format!("cannot write {MIN_TTL}: {e}"))?;
        Ok(before)
    }

    fn command(&self, command: &str) -> Result<(), String> {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .open(self.roots.path(FILE))
            .map_err(|e| format!("cannot write {FILE}: {e}"))?;
        file.write_all(command.as_bytes()).map_err(|e| {
            let why = match e.raw_os_error() {
                Some(libc::EINVAL) => {
                    "; no such control group, node or generation, or one of the two youngest, which are never evicted"
                }
                Some(libc::ERANGE) => "; there are four generations already: evict the oldest first",
                Some(libc::EEXIST) => "; the kernel created this generation meanwhile",
                _ => "",
            };
            format!("the kernel refuses {command:?}: {e}{why}")
        })
    }
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
        assert!(lru.of_group("/none").unwrap_err().contains("'/none'"));
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
        assert_eq!(lru.set_min_ttl(1000), Ok(0));
        assert_eq!(lru.set_min_ttl(0), Ok(1000));
    }

    #[test]
    fn what_is_missing_is_told_with_a_remedy() {
        let open = |files: &[(&str, &str)]| KernelLru::open(&tree(files).roots).unwrap_err();
        assert!(open(&[]).contains("CONFIG_LRU_GEN"));
        assert!(open(&[(&ENABLED[1..], "0x0000\n")]).contains("echo y >"));
        assert!(open(&[(&ENABLED[1..], "0x0007\n")]).contains("debugfs"));
        assert!(open(&[(&ENABLED[1..], "what\n")]).contains("not understood"));
    }
}
