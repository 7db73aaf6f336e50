//! Control groups as they are nested, each with all that is below it.

use super::{MachineBuilder, Order, Row, Sum};
use crate::summary::total::Shared;
use std::collections::{BTreeMap, BTreeSet};

/// The path of the group that all others are in.
const ROOT: &str = "/";

/// The machine's groups and, in them, processes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tree {
    /// By path; each is the sum of its processes and those of all groups below it, shared pages counted once.
    groups: BTreeMap<String, Row>,
    processes: Vec<Row>,
    /// All together.
    total: Option<Row>,
    /// How often a page that several processes map counts in groups and in the total.
    shared: Option<Shared>,
}

/// A line of the tree where some groups are open.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TreeLine<'a> {
    /// How many groups it is in, but for the outermost.
    pub depth: usize,
    /// Whether what is in it is shown; `None` for a process.
    pub is_open: Option<bool>,
    /// Its figures.
    pub row: &'a Row,
}

impl MachineBuilder {
    /// The machine as of now, by nested groups; `group_of` and `swap_of` as of [`Self::finish`]. A process without a
    /// known group stands in the outermost.
    pub fn tree(
        &self,
        mut group_of: impl FnMut(u32) -> Option<String>,
        swap_of: impl FnMut(&str) -> Option<u64>,
    ) -> Tree {
        let mut paths = BTreeMap::new();
        let group_of = |pid| {
            let path = group_of(pid);
            paths.insert(pid, path.clone());
            path
        };
        let machine = self.finish(group_of, swap_of).extended();
        let own_ages = self.own_ages();
        let mut sums: BTreeMap<&str, Sum<'_>> = BTreeMap::new();
        for (target, known) in &self.processes {
            let own = own_ages.get(target);
            let path = paths.get(&known.pid).and_then(Option::as_deref).unwrap_or(ROOT);
            for group in with_those_above(path) {
                sums.entry(group).or_default().add(known, own);
            }
        }
        sums.values_mut().for_each(|sum| sum.swap = None);
        for row in &machine.groups {
            let Some(swap) = row.swap else { continue };
            for group in with_those_above(row.cgroup.as_deref().unwrap_or(ROOT)) {
                if let Some(sum) = sums.get_mut(group) {
                    *sum.swap.get_or_insert(0) += swap;
                }
            }
        }
        let groups = sums.into_iter().map(|(path, sum)| {
            let name = path.rsplit('/').next().unwrap_or(path).to_owned();
            let mut row = sum.row(name, Some(path.to_owned()));
            row.extend_as(&machine.total);
            (path.to_owned(), row)
        });
        Tree {
            groups: groups.collect(),
            processes: machine.processes,
            total: Some(machine.total),
            shared: Some(machine.shared),
        }
    }
}

impl Tree {
    /// All together; `None` before anything is known.
    pub const fn total(&self) -> Option<&Row> {
        self.total.as_ref()
    }

    /// How often a page that several processes map counts.
    pub const fn shared(&self) -> Option<Shared> {
        self.shared
    }

    /// What stands on the screen where the groups in `open` are.
    pub fn lines(&self, open: &BTreeSet<String>, order: Order) -> Vec<TreeLine<'_>> {
        let mut lines = Vec::new();
        self.push(ROOT, 0, open, (order, self.longest_ns().unwrap_or(0)), &mut lines);
        lines
    }

    /// See [`Machine::longest_ns`](super::Machine::longest_ns).
    pub fn longest_ns(&self) -> Option<u64> {
        self.total.as_ref()?.pages()?.longest_ns(None)
    }

    fn push<'a>(
        &'a self,
        parent: &str,
        depth: usize,
        open: &BTreeSet<String>,
        order: (Order, u64),
        lines: &mut Vec<TreeLine<'a>>,
    ) {
        let groups = self.groups.iter().filter(|(path, _)| parent_of(path) == Some(parent)).map(|(_, row)| row);
        let here = |row: &&Row| row.cgroup.as_deref().unwrap_or(ROOT) == parent;
        let mut rows: Vec<&Row> = groups.chain(self.processes.iter().filter(here)).collect();
        rows.sort_by(|a, b| order.0.compare(a, b, order.1));
        for row in rows {
            let path = row.cgroup.as_deref().filter(|_| row.pid.is_none());
            let is_open = path.map(|path| open.contains(path));
            lines.push(TreeLine { depth, is_open, row });
            if let (Some(path), Some(true)) = (path, is_open) {
                self.push(path, depth + 1, open, order, lines);
            }
        }
    }
}

/// `/a/b`, `/a`: all but the outermost.
fn with_those_above(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| parent_of(path)).filter(|path| *path != ROOT)
}

/// `/a` of `/a/b`; `/` of `/a`.
fn parent_of(path: &str) -> Option<&str> {
    let (above, _) = path.rsplit_once('/').filter(|_| path != ROOT)?;
    Some(if above.is_empty() { ROOT } else { above })
}

#[cfg(test)]
mod tests {
    use super::super::tests::two;
    use super::*;

    fn shown(tree: &Tree, open: &[&str]) -> Vec<(usize, String, Option<bool>)> {
        let open = open.iter().map(|path| (*path).to_owned()).collect();
        let lines = tree.lines(&open, Order::Cold);
        lines.iter().map(|line| (line.depth, line.row.name.clone(), line.is_open)).collect()
    }

    fn line(depth: usize, name: &str, is_open: Option<bool>) -> (usize, String, Option<bool>) {
        (depth, name.to_owned(), is_open)
    }

    #[test]
    fn groups_open_and_hold_what_is_below_them() {
        let path = |pid| Some(if pid == 100 { "/slice/a".to_owned() } else { "/slice".to_owned() });
        let tree = two().tree(path, |_| None);
        assert_eq!(shown(&tree, &[]), [line(0, "slice", Some(false))]);
        assert_eq!(
            shown(&tree, &["/slice"]),
            [line(0, "slice", Some(true)), line(1, "a", Some(false)), line(1, "nginx", None)]
        );
        assert_eq!(shown(&tree, &["/slice", "/slice/a"])[2], line(2, "redis", None));
        assert_eq!(shown(&tree, &["/slice/a"]).len(), 1, "what it is in is closed");
        let of = |path: &str| tree.groups[path].rss;
        assert_eq!(of("/slice"), tree.total().unwrap().rss, "each page once");
        assert!(of("/slice/a") < of("/slice"));
        assert_eq!(tree.shared(), Some(Shared::CountedOnce));
    }

    #[test]
    fn who_has_no_known_group_stands_outside() {
        assert_eq!(shown(&two().tree(|_| None, |_| None), &[]), [line(0, "redis", None), line(0, "nginx", None)]);
        assert_eq!(
            shown(&two().tree(|_| Some("/".into()), |_| None), &[]),
            [line(0, "redis", None), line(0, "nginx", None)]
        );
        assert_eq!(Tree::default().lines(&BTreeSet::new(), Order::Name), []);
    }

    #[test]
    fn paths_above() {
        assert_eq!(with_those_above("/a/b/c").collect::<Vec<_>>(), ["/a/b/c", "/a/b", "/a"]);
        assert_eq!(with_those_above("/").count(), 0);
        assert_eq!(parent_of("relative"), None);
    }
}
