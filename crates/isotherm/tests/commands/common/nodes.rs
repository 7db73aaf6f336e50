//! Nodes whose sockets lie in a folder of the test's.

use super::{Done, Running, command, run};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// `isotherm ARGUMENTS` where instances have their sockets in this folder, and are looked for there.
pub fn at(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command(arguments);
    command.env("RUNTIME_DIRECTORY", folder);
    command
}

/// Runs that to its end.
pub fn asked(folder: &Path, arguments: &[&str]) -> Done {
    run(&mut at(folder, arguments))
}

/// A group's part of a node's status; null as long as it has none.
pub fn of_group(folder: &Path, node: &Running, path: &str) -> Value {
    let done = asked(folder, &["ctl", "status", "--json", "--pid", &node.pid().to_string()]);
    let status = done.json_lines().first().cloned().unwrap_or_default();
    let groups = status["groups"].as_array().cloned().unwrap_or_default();
    groups.into_iter().find(|group| group["cgroup"] == path).unwrap_or_default()
}
