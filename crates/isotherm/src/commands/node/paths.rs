//! Which control group each process is in, without asking the kernel each time.

use std::collections::HashMap;

/// How long an answer holds, ns. Processes seldom move.
const HOLDS_NS: u64 = 60_000_000_000;

/// Control groups by process.
#[derive(Debug, Default)]
pub struct GroupPaths {
    known: HashMap<u32, (Option<String>, u64)>,
    swept_ns: u64,
}

impl GroupPaths {
    /// The group of `pid`, which `ask` tells where it is not known, or not any more.
    pub fn of(&mut self, pid: u32, now_ns: u64, ask: impl FnOnce(u32) -> Option<String>) -> Option<String> {
        if now_ns.saturating_sub(self.swept_ns) >= HOLDS_NS {
            // Those of processes that have gone go, too.
            self.known.retain(|_, (_, asked_ns)| now_ns.saturating_sub(*asked_ns) < HOLDS_NS);
            self.swept_ns = now_ns;
        }
        let (path, _) = self.known.entry(pid).or_insert_with(|| (ask(pid), now_ns));
        path.clone()
    }

    /// This number may be another process's now.
    pub fn forget(&mut self, pid: u32) {
        self.known.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_asked_once_in_a_while() {
        let mut paths = GroupPaths::default();
        let (mut asked, start) = (0, 5 * HOLDS_NS);
        let mut of = |paths: &mut GroupPaths, now_ns, path: &str| {
            let found = paths.of(7, now_ns, |_| {
                asked += 1;
                Some(path.to_owned())
            });
            (found.unwrap(), asked)
        };
        assert_eq!(of(&mut paths, start, "/a"), ("/a".to_owned(), 1));
        assert_eq!(of(&mut paths, start + 1, "/b"), ("/a".to_owned(), 1), "it moves seldom");
        assert_eq!(of(&mut paths, start + HOLDS_NS, "/b"), ("/b".to_owned(), 2));
        paths.forget(7);
        assert_eq!(of(&mut paths, start + HOLDS_NS, "/c"), ("/c".to_owned(), 3), "another process");
        paths.of(8, start + 3 * HOLDS_NS, |_| None);
        assert_eq!(paths.known.len(), 1, "what nobody asks for is not kept");
    }
}
