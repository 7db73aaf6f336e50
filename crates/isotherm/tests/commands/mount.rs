//! `isotherm mount` from outside.

use crate::common::{command, isotherm, run, send, start, text, wait_until};

#[test]
fn bad_words_are_usage_errors() {
    for args in [&["mount"][..], &["mount", "a", "b"], &["mount", "--exec"], &["mount", "/does/not/exist"]] {
        isotherm(args).expect(2, &[]);
    }
    isotherm(["mount", "--exec", "--"]).expect(2, &["give a command"]);
    isotherm(["mount", "--exec", "--no-control", "true"]).expect(2, &["--no-control", "before --exec"]);
    isotherm(["mount", "/tmp", "--exec", "true"]).expect(2, &["cannot be used with"]);
}

#[test]
fn options_are_taken_behind_the_folder_and_left_to_a_command() {
    // Both come as far as the folder that is not there.
    for args in [["mount", "/does/not/exist", "--no-control"], ["mount", "--no-control", "/does/not/exist"]] {
        isotherm(args).expect(2, &["/does/not/exist"]);
    }
    isotherm(["mount", "/does/not/exist", "--no-control", "--metrics", "none"]).expect(2, &["'none'"]);
    isotherm(["mount", "/does/not/exist", "--frobnicate"]).expect(2, &["--frobnicate"]);
}

#[test]
fn root_what_follows_exec_is_the_commands() {
    for words in [&["echo", "--no-control", "-n", "--"][..], &["--", "echo", "--no-control", "-n", "--"]] {
        let output = isotherm([&["mount", "--no-control", "--exec"], words].concat());
        assert_eq!((output.stdout.as_str(), output.status), ("--no-control -n --\n", Some(0)), "{output:#?}");
    }
}

#[test]
fn root_a_command_that_does_not_stop_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let told = folder.path().join("told");
    // It waits for an answer of ours, too, which would take two hours.
    let script = format!(
        "cd /sys/kernel/mm/damon/admin/kdamonds; sleep 600 & trap '' TERM HUP
        echo 1 >nr_kdamonds; cd 0; echo 1 >contexts/nr_contexts; cd contexts/0
        echo 1 >targets/nr_targets; echo $! >targets/0/pid_target
        echo 1 >schemes/nr_schemes; echo stat >schemes/0/action; echo 3600000000 >schemes/0/apply_interval_us
        echo on >../../state && touch {}; echo update_schemes_tried_regions >../../state; sleep 600",
        text(&told)
    );
    let running = start(&mut command(["mount", "--no-control", "--exec", "sh", "-c", &script]));
    wait_until("it is at work", || told.exists());
    running.signal("TERM");
    let done = running.finish();
    assert_eq!(done.status, Some(128 + 9), "{done:#?}");
}

#[test]
fn root_a_command_sees_the_files_and_ends_as_it_would() {
    let script = "cat /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds; \
                  echo 1 >/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds; \
                  cat /sys/kernel/mm/damon/admin/kdamonds/0/state; exit 7";
    let output = isotherm(["mount", "--exec", "sh", "-c", script]);
    assert_eq!((output.stdout.as_str(), output.status), ("0\noff\n", Some(7)));
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains("/sys/kernel/mm/damon"), "nothing is mounted for others");
}

#[test]
fn root_a_command_sees_files_where_the_kernel_has_none() {
    let script = "cat /sys/kernel/debug/damon/attrs /sys/module/damon_reclaim/parameters/min_age; ls /sys/module";
    let folder = tempfile::tempdir().unwrap();
    let output = run(command(["mount", "--exec", "sh", "-c", script]).env("TMPDIR", folder.path()));
    let mut lines = output.stdout.lines();
    assert_eq!((lines.next(), lines.next()), (Some("5000 100000 1000000 10 1000"), Some("120000000")));
    let inside: Vec<&str> = lines.collect();
    let outside = std::fs::read_dir("/sys/module").unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let lost: Vec<String> = outside.filter(|name| !inside.contains(&name.as_str())).collect();
    assert!(lost.is_empty(), "what the kernel has is there, too: {lost:?}");
    assert!(["damon_reclaim", "damon_lru_sort", "damon_stat"].iter().all(|name| inside.contains(name)));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn root_all_files_stand_at_their_usual_places_beside_what_is_there() {
    let names = |folder: &str| -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.contains("damon") && !name.contains("lru_gen"));
        names.sort();
        names
    };
    let folders = ["/sys/kernel/mm", "/sys/module", "/sys/kernel/debug"];
    let before = folders.map(names);
    let huge = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap();
    let script = "cat /sys/module/damon_reclaim/parameters/enabled; cat /sys/kernel/debug/damon/monitor_on; \
                  cat /sys/kernel/mm/lru_gen/enabled >/dev/null; test -e /sys/kernel/debug/lru_gen || echo missing; \
                  cat /sys/kernel/mm/transparent_hugepage/enabled; \
                  for d in /sys/kernel/mm /sys/module /sys/kernel/debug; do ls -a $d; echo; done";
    let output = isotherm(["mount", "--exec", "sh", "-c", script]);
    let text = &output.expect(0, &[]).stdout;
    let rest = text.strip_prefix(&format!("N\noff\n{huge}")).unwrap_or_else(|| panic!("{text}"));
    for (folder, listing) in before.iter().zip(rest.split("\n\n")) {
        let mut inside: Vec<&str> = listing.lines().filter(|name| ![".", ".."].contains(name)).collect();
        inside.retain(|name| !name.contains("damon") && !name.contains("lru_gen"));
        inside.sort_unstable();
        assert_eq!(&inside, folder);
    }
    assert_eq!(folders.map(names), before);
}

/// Serves a folder, is killed, and serves it again.
#[test]
fn root_a_mount_whose_server_was_killed_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let kdamonds = folder.path().join("sys/kernel/mm/damon/admin/kdamonds");
    for signal in ["KILL", "TERM"] {
        let mut server = command(["mount"]).arg(folder.path()).spawn().unwrap();
        while !kdamonds.join("nr_kdamonds").exists() {
            assert!(server.try_wait().unwrap().is_none(), "it serves until it is asked to end");
            std::thread::yield_now();
        }
        let taken = isotherm(["mount", text(folder.path())]);
        taken.expect(3, &["another isotherm mount", text(folder.path())]);
        assert!(kdamonds.join("nr_kdamonds").exists(), "the first one goes on");
        send(server.id(), signal);
        let status = server.wait().unwrap();
        assert_eq!(status.success(), signal == "TERM");
        if signal == "KILL" {
            assert!(std::fs::read_dir(folder.path()).is_err(), "the mount is left without a server");
        }
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "unmounted");
}
