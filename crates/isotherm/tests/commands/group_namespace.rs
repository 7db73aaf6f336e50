//! Control groups are called as outside, also where we are in a namespace of control groups. Needs root.

use crate::common::grouped::{Ending, Group, group, mounting, within};
use crate::common::{Done, Running, command, isotherm, run, start};
use serde_json::Value;
use std::process::Command;

/// Three sleepers: in a group that becomes a namespace's root, in one below, and in one beside. Ends them at last.
struct Groups {
    sleepers: Vec<Running>,
    paths: [String; 3],
    /// The last is below the first, so that it goes first.
    folders: [Ending; 3],
}

fn groups(name: &str) -> Option<Groups> {
    let (root, path) = group(name)?;
    let (beside, beside_path) = group(&format!("{name}-beside"))?;
    let below = Group::new(root.0.join("below"));
    let paths = [path.clone(), beside_path, format!("{path}/below")];
    let folders = [below, root, beside].map(Ending);
    let sleepers = [&folders[1], &folders[2], &folders[0]]
        .map(|folder| start(&mut within(&folder.0, Command::new("sleep").arg("300"))));
    Some(Groups { sleepers: sleepers.into(), paths, folders })
}

impl Groups {
    fn arguments(&self) -> Vec<String> {
        let pids = self.sleepers.iter().flat_map(|sleeper| ["--pid".to_owned(), sleeper.pid().to_string()]);
        ["ps", "--json", "--duration", "1s"].map(str::to_owned).into_iter().chain(pids).collect()
    }

    /// `ps` in a namespace of control groups whose root is one of these groups, after these shell commands.
    fn within_namespace(&self, folder: usize, before: &str) -> Done {
        let isotherm = command(self.arguments());
        let mut unshare = Command::new("unshare");
        unshare.args(["--cgroup", "--mount", "sh", "-ec", &format!("{before}\nexec \"$@\""), "sh"]);
        unshare.arg(isotherm.get_program()).args(isotherm.get_args());
        run(&mut within(&self.folders[folder].0, &unshare))
    }

    /// The groups of the three processes, as processes' lines and groups' lines tell them.
    fn reported(&self, done: &Done) -> (Vec<Value>, Vec<Value>) {
        let lines = done.json_lines();
        let processes = self.sleepers.iter().map(|sleeper| {
            lines.iter().find(|l| l["kind"] == "process" && l["pid"] == sleeper.pid()).unwrap()["cgroup"].clone()
        });
        let mut groups: Vec<Value> =
            lines.iter().filter(|l| l["kind"] == "cgroup").map(|l| l["cgroup"].clone()).collect();
        groups.sort_by_key(Value::to_string);
        (processes.collect(), groups)
    }
}

#[test]
fn root_groups_are_called_as_outside_of_the_namespace() {
    let Some(groups) = groups("ns") else { return };
    let outside = isotherm(groups.arguments());
    outside.expect(0, &[]);
    let (processes, listed) = groups.reported(&outside);
    assert_eq!(processes, groups.paths.clone().map(Value::String));
    for (folder, what) in [(1, "the first group is the root"), (0, "the group below is")] {
        let inside = groups.within_namespace(folder, "");
        inside.expect(0, &[]);
        assert_eq!(groups.reported(&inside), (processes.clone(), listed.clone()), "{what}: {inside:#?}");
        assert!(!inside.stderr.contains("is not known"), "{inside:#?}");
        let cached =
            inside.json_lines().iter().filter(|l| l["kind"] == "cgroup" && l["page_cache"].is_object()).count();
        assert_eq!(cached, 3, "and figures are found by them: {inside:#?}");
    }
}

#[test]
fn root_a_group_that_cannot_be_named_is_unknown_which_is_said_once() {
    let Some(groups) = groups("ns-part") else { return };
    let (mount, how) = mounting().unwrap();
    // As in a container that has only its own part of the hierarchy.
    let own_part = format!("umount {0}; mount {how} {0}", mount.display());
    let inside = groups.within_namespace(0, &own_part);
    inside.expect(0, &["mount the host's /sys/fs/cgroup", "'/.."]);
    assert_eq!(inside.stderr.matches("is not known").count(), 1, "{inside:#?}");
    let (processes, listed) = groups.reported(&inside);
    assert_eq!(processes, [Value::Null, Value::Null, "/".into()], "two lie outside: {inside:#?}");
    assert_eq!(listed, ["/".into(), Value::Null]);
    let lines = inside.json_lines();
    let unknown = lines.iter().find(|l| l["kind"] == "cgroup" && l["cgroup"].is_null()).unwrap();
    assert_eq!((&unknown["name"], &unknown["processes"]), (&"unknown".into(), &2.into()));
}

#[test]
fn root_the_host_s_hierarchy_may_be_mounted_elsewhere_and_read_only() {
    let Some(groups) = groups("ns-host") else { return };
    let (mount, how) = mounting().unwrap();
    let host = tempfile::tempdir().unwrap();
    let (mount, host) = (mount.display(), host.path().display());
    let before =
        format!("mount --bind {mount} {host}; mount -o remount,bind,ro {host}; umount {mount}; mount {how} {mount}");
    let inside = groups.within_namespace(1, &before);
    inside.expect(0, &[]);
    assert_eq!(groups.reported(&inside).0, groups.paths.clone().map(Value::String), "{inside:#?}");
}
