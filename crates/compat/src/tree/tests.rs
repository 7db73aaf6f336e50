use super::*;
use proptest::prelude::*;

const KDAMONDS: &str = "admin/kdamonds";
const CONTEXT: &str = "admin/kdamonds/0/contexts/0";

fn write(tree: &mut Tree, path: &str, text: &str) -> Result<(), Errno> {
    let inode = tree.find(ROOT, path)?;
    tree.write(inode, text)
}

fn read(tree: &Tree, path: &str) -> Result<String, Errno> {
    tree.value(tree.find(ROOT, path)?)
}

/// One kdamond with one context.
fn with_context() -> Tree {
    let mut tree = Tree::damon();
    write(&mut tree, &format!("{KDAMONDS}/nr_kdamonds"), "1").unwrap();
    write(&mut tree, &format!("{KDAMONDS}/0/contexts/nr_contexts"), "1\n").unwrap();
    tree
}

/// Mode, kind and path of everything, as `find -printf '%m %y %P'` prints it.
fn listing(tree: &Tree, inode: Inode, path: &str, out: &mut Vec<String>) {
    for entry in tree.list(inode).unwrap() {
        let attr = tree.attr(entry.inode).unwrap();
        let at = if path.is_empty() { entry.name } else { format!("{path}/{}", entry.name) };
        out.push(format!("{:o} {} {at}", attr.mode, if attr.folders.is_some() { 'd' } else { 'f' }));
        if entry.is_folder {
            listing(tree, entry.inode, &at, out);
        }
    }
}

#[test]
fn the_tree_is_that_of_a_6_18_kernel() {
    let mut tree = with_context();
    for (file, nr) in [
        ("targets/nr_targets", "1"),
        ("targets/0/regions/nr_regions", "2"),
        ("schemes/nr_schemes", "1"),
        ("schemes/0/ops_filters/nr_filters", "2"),
    ] {
        write(&mut tree, &format!("{CONTEXT}/{file}"), nr).unwrap();
    }
    let mut ours = Vec::new();
    listing(&tree, ROOT, "", &mut ours);
    // Listed on a machine with that kernel and these counts.
    let mut theirs: Vec<&str> = include_str!("linux-6.18.txt").lines().collect();
    // What later kernels added.
    let later = [
        "600 f pause",
        "755 d monitoring_attrs/probes",
        "600 f monitoring_attrs/probes/nr_probes",
        "600 f targets/0/obsolete_target",
        "600 f schemes/0/quotas/goal_tuner",
        "600 f schemes/0/quotas/fail_charge_num",
        "600 f schemes/0/quotas/fail_charge_denom",
        "400 f schemes/0/stats/nr_snapshots",
        "600 f schemes/0/stats/max_nr_snapshots",
    ];
    let later = later.map(|entry| format!("{} {CONTEXT}/{}", &entry[..5], &entry[6..]));
    theirs.extend(later.iter().map(String::as_str));
    theirs.sort_unstable();
    ours.sort_unstable();
    assert_eq!(ours, theirs);
}

#[test]
fn defaults_are_the_kernels() {
    let mut tree = with_context();
    for nr in ["targets/nr_targets", "schemes/nr_schemes"] {
        write(&mut tree, &format!("{CONTEXT}/{nr}"), "1").unwrap();
    }
    for (file, value) in [
        ("operations", "vaddr"),
        ("monitoring_attrs/intervals/sample_us", "5000"),
        ("monitoring_attrs/intervals/aggr_us", "100000"),
        ("monitoring_attrs/intervals/update_us", "60000000"),
        ("monitoring_attrs/nr_regions/min", "10"),
        ("monitoring_attrs/nr_regions/max", "1000"),
        ("targets/0/pid_target", "0"),
        ("schemes/0/action", "stat"),
        ("schemes/0/target_nid", "-1"),
        ("schemes/0/watermarks/metric", "none"),
        ("schemes/0/access_pattern/sz/max", "0"),
    ] {
        assert_eq!(read(&tree, &format!("{CONTEXT}/{file}")).as_deref(), Ok(value), "{file}");
    }
    assert_eq!(read(&tree, "admin/kdamonds/0/state").as_deref(), Ok("off"));
    assert_eq!(read(&tree, "admin/kdamonds/0/pid").as_deref(), Ok("-1"));
}

#[test]
fn folders_come_new_with_each_count() {
    let mut tree = with_context();
    let (nr, pid) = (format!("{CONTEXT}/targets/nr_targets"), format!("{CONTEXT}/targets/1/pid_target"));
    write(&mut tree, &nr, "2").unwrap();
    write(&mut tree, &pid, "42\n").unwrap();
    assert_eq!(read(&tree, &nr).as_deref(), Ok("2"));
    let inode = tree.find(ROOT, &pid).unwrap();
    // As in the kernel: the same count makes all of them anew.
    write(&mut tree, &nr, "2").unwrap();
    assert_eq!(read(&tree, &pid).as_deref(), Ok("0"));
    assert_eq!(tree.value(inode), Err(Errno::Gone), "an old file that is still open");
    assert_eq!(tree.write(inode, "7"), Err(Errno::Gone));
    write(&mut tree, &nr, "0").unwrap();
    assert_eq!(read(&tree, &pid), Err(Errno::NoEntry));
    write(&mut tree, &format!("{KDAMONDS}/nr_kdamonds"), "0").unwrap();
    let mut left = Vec::new();
    listing(&tree, ROOT, "", &mut left);
    assert_eq!(left, ["755 d admin", "755 d admin/kdamonds", "600 f admin/kdamonds/nr_kdamonds"]);
    assert_eq!(tree.nodes.len(), left.len() + 1, "nothing is left behind");
}

#[test]
fn counts_have_limits() {
    let mut tree = with_context();
    let contexts = format!("{KDAMONDS}/0/contexts/nr_contexts");
    for (text, error) in
        [("2", Errno::Invalid), ("-1", Errno::Invalid), ("x", Errno::Invalid), ("3000000000", Errno::Range)]
    {
        assert_eq!(write(&mut tree, &contexts, text), Err(error), "{text}");
    }
    assert_eq!(read(&tree, &contexts).as_deref(), Ok("1"), "a refused count changes nothing");
    assert_eq!(write(&mut tree, &format!("{CONTEXT}/targets/nr_targets"), "2147483647"), Err(Errno::NoMemory));
}

#[test]
fn core_and_ops_filters_take_their_own_types_only() {
    let mut tree = with_context();
    write(&mut tree, &format!("{CONTEXT}/schemes/nr_schemes"), "1").unwrap();
    let scheme = format!("{CONTEXT}/schemes/0");
    for (folder, kind, allowed) in [
        ("core_filters", "addr", true),
        ("core_filters", "young", false),
        ("ops_filters", "young", true),
        ("ops_filters", "target", false),
        ("filters", "addr", true),
        ("filters", "anon", true),
    ] {
        write(&mut tree, &format!("{scheme}/{folder}/nr_filters"), "1").unwrap();
        let written = write(&mut tree, &format!("{scheme}/{folder}/0/type"), kind);
        assert_eq!(written, if allowed { Ok(()) } else { Err(Errno::Invalid) }, "{folder} {kind}");
    }
}

#[test]
fn every_folder_leads_back_up() {
    let tree = Tree::damon();
    let kdamonds = tree.find(ROOT, KDAMONDS).unwrap();
    assert_eq!(tree.find(kdamonds, "../.."), Ok(ROOT));
    assert_eq!(tree.lookup(ROOT, ".."), Ok(ROOT));
    assert_eq!(tree.attr(kdamonds), Ok(Attr { mode: 0o755, folders: Some(0), size: 0 }));
    assert_eq!(tree.find(kdamonds, "nr_kdamonds/x"), Err(Errno::NotDir));
}

/// Files that make and remove folders, and some that do not.
const FILES: [&str; 8] = [
    "nr_kdamonds",
    "0/contexts/nr_contexts",
    "0/contexts/0/targets/nr_targets",
    "0/contexts/0/targets/0/regions/nr_regions",
    "0/contexts/0/schemes/nr_schemes",
    "0/contexts/0/schemes/0/quotas/goals/nr_goals",
    "1/contexts/0/schemes/0/filters/nr_filters",
    "0/contexts/0/monitoring_attrs/intervals/sample_us",
];

proptest! {
    #[test]
    fn every_folder_has_as_many_as_its_count_says(writes in prop::collection::vec((0..FILES.len(), 0u32..4), 1..60)) {
        let mut tree = Tree::damon();
        for (file, nr) in writes {
            let path = format!("{KDAMONDS}/{}", FILES[file]);
            match write(&mut tree, &path, &nr.to_string()) {
                Ok(()) => prop_assert_eq!(read(&tree, &path), Ok(nr.to_string())),
                Err(error) => prop_assert!(matches!(error, Errno::NoEntry | Errno::Invalid)),
            }
            let mut all = Vec::new();
            listing(&tree, ROOT, "", &mut all);
            prop_assert_eq!(all.len() + 1, tree.nodes.len(), "each node is in exactly one folder");
        }
    }
}
