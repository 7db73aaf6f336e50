//! `isotherm node` on real processes that know the truth, and what other commands get from it. Needs root and eBPF.

use crate::common::grouped::{Ending, group, within};
use crate::common::metrics::metrics;
use crate::common::nodes::{asked, at};
use crate::common::{Program, isotherm, resident, run, send, start, wait_until, workload};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::Value;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;
const TEN_S: u64 = 10_000_000_000;

#[test]
fn what_makes_no_sense_is_refused() {
    isotherm(["node", "--physical", "--source", "damon"]).expect(2, &["--physical"]);
    isotherm(["node", "--", "true"]).expect(2, &["leave the command out"]);
    isotherm(["node", "--duration", "0s"]).expect(2, &["--duration"]);
    isotherm(["node", "--mode", "scan"]).expect(2, &["--mode is about regions"]);
    isotherm(["ps", "--min-regions", "50"]).expect(2, &["--min-regions is about regions"]);
    isotherm(["top", "--batch", "--algorithm", "damon"]).expect(2, &["--algorithm is about regions"]);
    isotherm(["node", "--window", "5m"]).expect(2, &["--parquet"]);
    isotherm(["node", "--parquet", "/tmp", "--window", "2h"]).expect(2, &["--window", "1h"]);
    isotherm(["node", "--parquet", "/tmp", "--window", "1500ms"]).expect(2, &["--window", "whole seconds"]);
    isotherm(["node", "--no-control", "--parquet", "/proc/self/status/x"]).expect(1, &["/proc/self/status/x"]);
}

/// A program under rights that let it look into no process but those without any.
fn confined(program: &Command) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all,+bpf,+perfmon,+sys_nice,+dac_override", "--no-new-privs"]);
    command.arg(program.get_program()).args(program.get_args());
    let set = program.get_envs().filter_map(|(name, value)| Some((name, value?)));
    command.envs(set);
    command
}

#[test]
fn root_a_node_that_may_look_into_nobody_ends_at_once_and_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let ended = run(&mut confined(&at(folder.path(), &["node", "--duration", "60s"])));
    ended.expect(3, &["none may be looked into", "CAP_SYS_PTRACE"]);
}

#[test]
fn root_a_hangup_without_a_file_to_read_again_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let sleeper = Program::sleeper();
    let node = at(folder.path(), &["node", "--pid", &sleeper.pid().to_string()]);
    // In a session of its own there is no terminal, as below a service manager.
    let mut alone = Command::new("setsid");
    alone.arg("--wait").arg(node.get_program()).args(node.get_args());
    alone.envs(node.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let alone = start(&mut alone);
    let mut pid = None;
    wait_until("it listens", || {
        let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        pid = entries.filter_map(|name| name.to_str()?.strip_suffix(".sock")?.parse::<u32>().ok()).next();
        pid.is_some()
    });
    let number = pid.unwrap().to_string();
    let status = || asked(folder.path(), &["ctl", "status", "--pid", &number]);
    wait_until("it answers", || status().status == Some(0));
    send(pid.unwrap(), "HUP");
    std::thread::sleep(std::time::Duration::from_secs(2));
    status().expect(0, &[]);
    send(pid.unwrap(), "TERM");
    alone.finish().expect(0, &["SIGHUP changes nothing"]);
}

#[test]
fn root_a_second_node_says_at_once_what_it_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let sleeper = Program::sleeper();
    let pid = sleeper.pid().to_string();
    let first = start(&mut at(folder.path(), &["node", "--pid", &pid]));
    let number = first.pid().to_string();
    wait_until("the first one answers", || {
        asked(folder.path(), &["ctl", "status", "--pid", &number]).status == Some(0)
    });
    let second = asked(folder.path(), &["node", "--pid", &pid, "--duration", "1s"]);
    second.expect(0, &["another isotherm node has the page history", "waiting up to 10.0 s"]);
    second.expect(0, &["page history cannot be kept", "another isotherm node uses it"]);
    first.signal("TERM");
    first.finish();
}

fn bytes(line: &Value, list: &str, time: &str, ns: u64) -> Option<u64> {
    line[list].as_array()?.iter().find(|entry| entry[time] == ns)?["bytes"].as_u64()
}

/// What has been cold for 10 s for certain; `None`: it is not known.
fn certain(line: &Value) -> Option<u64> {
    line["cold"].as_array()?.iter().find(|entry| entry["for_ns"] == TEN_S)?["least"].as_u64()
}

fn line_of(lines: &[Value], kind: &str, key: &str, value: &Value) -> Option<Value> {
    lines.iter().find(|line| line["kind"] == kind && line[key] == *value).cloned()
}

/// All rows of the only file, by time.
fn rows(folder: &Path) -> Vec<Row> {
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    // More than one if an hour has just ended.
    let mut rows: Vec<Row> = files
        .iter()
        .flat_map(|path| {
            assert!(path.extension().is_some_and(|end| end == "parquet"), "{path:?}");
            let reader = SerializedFileReader::new(std::fs::File::open(path).unwrap()).unwrap();
            reader.get_row_iter(None).unwrap().map(Result::unwrap).collect::<Vec<_>>()
        })
        .collect();
    let start = |row: &Row| match field(row, "window_start") {
        Field::TimestampMicros(us) => *us,
        other => panic!("{other:?}"),
    };
    rows.sort_by_key(start);
    rows
}

fn field<'a>(row: &'a Row, name: &str) -> &'a Field {
    row.get_column_iter().find(|(column, _)| *column == name).unwrap().1
}

fn text_of(row: &Row, name: &str) -> Option<String> {
    match field(row, name) {
        Field::Str(text) => Some(text.clone()),
        _ => None,
    }
}

fn list_of(row: &Row, name: &str) -> Vec<Option<u64>> {
    let Field::ListInternal(list) = field(row, name) else { panic!("{name} is no list") };
    let number = |entry: &Field| match entry {
        Field::Long(n) => u64::try_from(*n).ok(),
        _ => None,
    };
    list.elements().iter().map(number).collect()
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn root_a_node_ps_top_and_metrics_say_the_same_and_the_truth() {
    let Some((there, path)) = group("node") else { return };
    let there = Ending(there);
    let folder = tempfile::tempdir().unwrap();
    // Not the file that the commands below run from: they would access its pages, and these are the group's.
    let own = folder.path().join("program");
    std::fs::copy(env!("CARGO_BIN_EXE_isotherm"), &own).unwrap();
    let program = start(&mut within(
        &there.0,
        Command::new(&own).args(workload("hotspot --size 64M --hot 25% --thp no").get_args()),
    ));
    // What it has just filled would not be idle for 10 s when the node first knows of 10 s.
    wait_until("its memory is there", || resident(program.pid()) >= 64 * MIB);
    let port = free_port();
    let windows = folder.path().join("windows");
    let (port_text, windows_text) = (port.to_string(), windows.to_str().unwrap());
    let node = start(&mut at(
        folder.path(),
        &[
            "node",
            "--metrics",
            &port_text,
            "--parquet",
            windows_text,
            "--window",
            "5s",
            "--cluster",
            "tests",
            "--host",
            "n1",
        ],
    ));
    let pid = Value::from(program.pid());
    let mut lines = Vec::new();
    let (truth, slack) = (48 * MIB, 64 * MIB / 20);
    wait_until("the node knows of 10 s", || {
        if !folder.path().join(format!("{}.sock", node.pid())).exists() {
            return false;
        }
        // `ps` would wait until it knows something of anybody: the status tells of whom.
        let status = asked(folder.path(), &["ctl", "status", "--json", "--pid", &node.pid().to_string()]);
        let status = status.json_lines().first().cloned().unwrap_or_default();
        let idle = |group: &Value| group["ages"]["idle"].as_array().map_or(0, Vec::len);
        let groups = status["groups"].as_array().cloned().unwrap_or_default();
        if !groups.iter().any(|group| group["cgroup"] == *path && idle(group) >= 4) {
            return false;
        }
        let done = asked(folder.path(), &["ps", "--json"]);
        done.expect(0, &[]);
        lines = done.json_lines();
        // Before the second walk after these 10 s it is estimated, and says so by its bounds. What is in use stays estimated: its
        // bits are cleared ever more seldom.
        line_of(&lines, "process", "pid", &pid).is_some_and(|l| certain(&l).is_some_and(|bytes| bytes + slack >= truth))
    });
    let process = line_of(&lines, "process", "pid", &pid).unwrap();
    let cold = bytes(&process, "cold", "for_ns", TEN_S).unwrap();
    // What the program has beside its pattern, above all its binary, rests.
    let more = process["rss_bytes"].as_u64().unwrap().saturating_sub(64 * MIB);
    assert!(cold + slack >= truth && cold <= truth + slack + more, "{process}");
    let of_group = line_of(&lines, "cgroup", "cgroup", &path.clone().into()).unwrap();
    let reported = bytes(&of_group, "cold", "for_ns", TEN_S).unwrap();
    let samples = metrics(port).unwrap();
    let metric = |name: &str, more: &str| samples.get(&format!("isotherm_{name}{{cgroup=\"{path}\"{more}}}")).copied();
    let measured = metric("memory_idle_bytes", ",min_age_seconds=\"10\"").unwrap();
    assert!((measured - reported as f64).abs() <= slack as f64, "{measured} at /metrics, {reported} by ps");
    let used = metric("memory_working_set_bytes", ",window_seconds=\"10\"").unwrap();
    assert!((used - (16 * MIB) as f64).abs() <= (slack + MIB) as f64, "{used}");
    assert_eq!(metric("memory_idle_bytes", ",min_age_seconds=\"28800\""), None, "nobody has watched for 8 h");
    assert!(samples["isotherm_monitor_cpu_seconds_total"] > 0.0);
    let top = asked(folder.path(), &["top", "--batch", "--json", "--duration", "500ms"]);
    top.expect(0, &[]);
    let seen = line_of(&top.json_lines(), "process", "pid", &pid).unwrap();
    assert!(bytes(&seen, "cold", "for_ns", TEN_S).unwrap().abs_diff(cold) <= slack, "{seen}");
    let table = asked(folder.path(), &["ps", "--by", "cgroup"]);
    table.expect(0, &[&format!("watched by isotherm node (pid {})", node.pid())]);
    let status = asked(folder.path(), &["ctl", "status", "--pid", &node.pid().to_string()]);
    status.expect(0, &[]);
    assert!(status.stdout.contains("all together"), "{status:#?}");
    asked(folder.path(), &["ctl", "stop", "--pid", &node.pid().to_string()]).expect(0, &[]);
    node.finish().expect(0, &["watching all processes", "wrote"]);
    let rows = rows(&windows);
    let of_group: Vec<&Row> = rows.iter().filter(|row| text_of(row, "cgroup") == Some(path.clone())).collect();
    assert!(of_group.len() > 1, "{} rows", rows.len());
    let last = of_group.last().unwrap();
    // 10 s is the fifth of the times.
    let written = list_of(last, "cold_bytes")[4].unwrap();
    assert!((written as f64 - measured).abs() <= slack as f64, "{written} in Parquet, {measured} at /metrics");
    assert_eq!(list_of(last, "cold_bytes")[15], None, "nobody has watched for 8 h");
    // What is used every moment is never idle for 5 s.
    assert!(list_of(last, "promoted_bytes")[3].unwrap() < 4 * MIB, "{last:?}");
    let words = ["cluster", "host"].map(|column| text_of(last, column));
    assert_eq!(words, ["tests", "n1"].map(|word| Some(word.to_owned())));
    assert!(samples.contains_key("isotherm_node_processes_group_unknown"));
    assert_eq!(text_of(last, "source").as_deref(), Some("pagetable"));
    program.signal("KILL");
    program.finish();
}

/// Who looked by himself meanwhile would clear bits before the node sees them.
#[test]
fn root_ps_waits_for_a_node_that_has_begun_only_now() {
    let folder = tempfile::tempdir().unwrap();
    let node = start(&mut at(folder.path(), &["node", "--cpu-budget", "none"]));
    let socket = folder.path().join(format!("{}.sock", node.pid()));
    wait_until("it can be asked", || socket.exists());
    let done = asked(folder.path(), &["ps"]);
    done.expect(0, &[&format!("watched by isotherm node (pid {})", node.pid())]);
    assert!(!done.stderr.contains("looking without it"), "{done:#?}");
    asked(folder.path(), &["ctl", "stop", "--pid", &node.pid().to_string()]).expect(0, &[]);
    node.finish().expect(0, &[]);
}

/// A part of the machine is not the machine.
#[test]
fn root_a_node_of_one_process_is_not_asked_about_all() {
    let folder = tempfile::tempdir().unwrap();
    let program = start(&mut workload("hotspot --size 4M --hot 25%"));
    let manager = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    manager.set_nonblocking(true).unwrap();
    let reported = || -> String {
        let mut buffer = [0; 64];
        let next =
            || manager.recv(&mut buffer).ok().map(|length| String::from_utf8_lossy(&buffer[..length]).into_owned());
        std::iter::from_fn(next).collect::<Vec<_>>().join(" ")
    };
    let mut node = at(folder.path(), &["node", "--pid", &program.pid().to_string()]);
    node.env("NOTIFY_SOCKET", folder.path().join("notify")).env("WATCHDOG_USEC", "16000000");
    let node = start(&mut node);
    let mut heard = String::new();
    wait_until("the service manager hears that it is ready and alive", || {
        heard += &reported();
        heard.starts_with("READY=1") && heard.contains("WATCHDOG=1")
    });
    let done = asked(folder.path(), &["ps", "--json", "--pid", &std::process::id().to_string()]);
    done.expect(0, &[]);
    let lines = done.json_lines();
    assert_eq!(line_of(&lines, "process", "pid", &program.pid().into()), None, "{lines:?}");
    let status = asked(folder.path(), &["ctl", "status", "--pid", &node.pid().to_string()]);
    status.expect(0, &[]);
    // Who ends the only target ends the node, too.
    program.signal("KILL");
    program.finish();
    node.finish().expect(0, &["every target has ended"]);
    assert!(reported().ends_with("STOPPING=1"));
}
