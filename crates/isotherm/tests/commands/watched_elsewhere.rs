//! Two monitors of one process clear each other's accessed bits: the second one says so. Needs root.

use super::common::{self, start, workload};

/// What a record of process `pid` says of another monitor, process `other`; empty: nothing.
fn said(pid: u32, other: u32) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("record.iso");
    let done =
        common::isotherm(["record", "--pid", &pid.to_string(), "--duration", "300ms", "-o", file.to_str().unwrap()]);
    done.expect(0, &[]);
    let of_other = format!("watched by pid {other} (");
    done.stderr.lines().filter(|line| line.contains(&of_other)).collect()
}

#[test]
fn root_the_second_monitor_of_a_process_names_the_first() {
    let [watched, alone] = [(); 2].map(|()| start(&mut workload("hotspot --size 16M")));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("first.iso");
    let pid = watched.pid();
    let first = start(&mut common::command(["record", "--pid", &pid.to_string(), "-o", file.to_str().unwrap()]));
    common::wait_until("the second one has found the first", || {
        said(pid, first.pid()).contains(&format!("pid {pid} is watched by pid {} (", first.pid()))
    });
    let others = said(alone.pid(), first.pid());
    assert_eq!(others, "", "nobody else watches that one");
    let ended = first.pid();
    first.signal("INT");
    first.finish().expect(0, &[]);
    assert_eq!(said(pid, ended), "", "it has ended");
}
