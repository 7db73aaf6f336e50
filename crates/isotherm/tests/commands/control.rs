//! Talking to a running `isotherm schemes`, as people and programs do.

use crate::common::{self, Done, Running, command, isotherm, run, start, text, wait_until, workload};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

const STAT: &str = "min max min max min max stat";

/// A folder for sockets and files, and a program to watch.
struct Scene {
    folder: tempfile::TempDir,
    target: Option<Running>,
}

impl Scene {
    fn new() -> Self {
        let target = start(&mut workload("hotspot --size 16M --hot 10%"));
        Self { folder: tempfile::tempdir().unwrap(), target: Some(target) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn pid(&self) -> String {
        self.target.as_ref().unwrap().pid().to_string()
    }

    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// `isotherm schemes ARGS` on the program, listening at the socket of that name; comes back once it listens.
    fn schemes(&self, socket: &str, args: &[&str]) -> Running {
        let path = self.path(socket);
        let fixed = ["schemes", "--source", "refs", "--socket", text(&path), "--pid", &self.pid()];
        let running = start(&mut command([&fixed, args].concat()));
        wait_until("it listens", || UnixStream::connect(&path).is_ok() || common::state(running.pid()) == Some('Z'));
        running
    }

    /// `isotherm ctl ARGS` to the one with that socket.
    fn ctl(&self, socket: &str, args: &[&str]) -> Done {
        isotherm([&["ctl", "--socket", text(&self.path(socket))], args].concat())
    }

    #[track_caller]
    fn status(&self, socket: &str) -> Value {
        let done = self.ctl(socket, &["status", "--json"]);
        done.expect(0, &[]);
        serde_json::from_str(&done.stdout).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(target) = self.target.take() {
            target.signal("TERM");
            target.finish();
        }
    }
}

/// Ends an instance and checks that it ended well.
fn end(scene: &Scene, socket: &str, running: Running) -> Done {
    scene.ctl(socket, &["stop"]).expect(0, &["stopped"]);
    assert!(matches!(common::state(running.pid()), None | Some('Z')), "it has ended");
    assert!(!scene.path(socket).exists(), "the socket is gone");
    let done = running.finish();
    done.expect(0, &[]);
    done
}

#[test]
fn status_tells_how_it_stands() {
    let scene = Scene::new();
    let running = scene.schemes("a", &["--scheme", STAT]);
    let mut status = Value::Null;
    wait_until("something was counted", || {
        status = scene.status("a");
        status["schemes"][0]["sz_tried"].as_u64().unwrap() > 0
    });
    assert_eq!(status["pid"], running.pid());
    assert_eq!(status["schemes"][0]["action"], "stat");
    assert_eq!(status["targets"][0]["pid"].to_string(), scene.pid());
    assert_eq!(status["monitor"]["source"], "refs");
    let shown = scene.ctl("a", &["status"]);
    shown.expect(0, &[]);
    for part in ["scheme 0  stat", "monitor   refs", "any size, accessed or not", text(&scene.path("a"))] {
        assert!(shown.stdout.contains(part), "{part:?} is not in {shown:#?}");
    }
    end(&scene, "a", running);
}

#[test]
fn tune_and_goals_take_effect_and_bad_ones_change_nothing() {
    let scene = Scene::new();
    let running = scene.schemes("a", &["--scheme", STAT]);
    let two = scene.write("two.toml", "[[scheme]]\naction = \"stat\"\n[[scheme]]\naction = \"cold\"\n");
    scene.ctl("a", &["tune", "-c", text(&two)]).expect(0, &["2 schemes"]);
    let actions = || {
        let status = scene.status("a");
        let schemes = status["schemes"].as_array().unwrap();
        schemes.iter().map(|s| s["action"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(actions(), ["stat", "cold"]);
    let bad = scene.write("bad.toml", "[[scheme]]\naction = \"page_out\"\n");
    scene.ctl("a", &["tune", "-c", text(&bad)]).expect(2, &["page_out", "bad.toml, line 2"]);
    scene.ctl("a", &["tune", "-c", "/dev/zero"]).expect(2, &["/dev/zero"]);
    scene.ctl("a", &["tune", "-c", "/no/such.toml"]).expect(1, &["/no/such.toml"]);
    scene.ctl("a", &["tune", "-c", text(&scene.write("empty.toml", ""))]).expect(2, &["no scheme"]);
    assert_eq!(actions(), ["stat", "cold"]);

    scene.ctl("a", &["goal", "1", "70"]).expect(2, &["user_input"]);
    scene.ctl("a", &["goal", "1", "--metric", "user_input=50", "--metric", "psi=0.5%"]).expect(0, &["scheme 1"]);
    scene.ctl("a", &["goal", "1", "70"]).expect(0, &["70"]);
    wait_until("the value is taken", || scene.status("a")["schemes"][1]["goals"][0]["current"] == 70);
    assert_eq!(scene.status("a")["schemes"][1]["goals"][0]["score"], 14_000);
    for (args, words) in [
        (&["goal", "7", "70"][..], &["no scheme 7"][..]),
        (&["goal", "1", "--metric", "psi=0%"], &["psi=0%"]),
        (&["goal", "1", "--metric", "what=5"], &["what", "user_input"]),
        (&["goal", "1", "--metric", "psi"], &["psi"]),
        (&["goal", "1"], &["VALUE"]),
        (&["goal", "x", "5"], &["x"]),
        (&["goal", "1", "5", "--none"], &["--none"]),
    ] {
        let done = scene.ctl("a", args);
        done.expect(2, words);
        assert!(!done.stderr.contains("does not take this command"), "{done:#?}");
    }
    assert_eq!(scene.status("a")["schemes"][1]["goals"].as_array().unwrap().len(), 2);
    scene.ctl("a", &["goal", "1", "--none"]).expect(0, &["no goal"]);
    let done = end(&scene, "a", running);
    done.expect(0, &["tuned by ctl: 2 schemes", "scheme 1 is tuned for user_input=50 and psi=0.5%"]);
}

#[test]
fn two_instances_work_side_by_side() {
    let scene = Scene::new();
    let (a, b) = (scene.schemes("a.sock", &["--scheme", STAT]), scene.schemes("b.sock", &["--scheme", STAT]));
    // A third at a place that is taken says so and starts nothing.
    let made = scene.path("made");
    let touch = format!("touch {}", made.display());
    let third = ["schemes", "--scheme", STAT, "--socket", text(&scene.path("a.sock"))].map(str::to_owned);
    let third: Vec<String> = third.into_iter().chain(["--", "sh", "-c", &touch].map(str::to_owned)).collect();
    isotherm(&third).expect(1, &["another isotherm listens at", "a.sock", "--socket"]);
    assert!(!made.exists());

    let find = |args: &[&str]| {
        let mut ctl = command([&["ctl"], args].concat());
        ctl.env("RUNTIME_DIRECTORY", scene.folder.path()).env_remove("XDG_RUNTIME_DIR");
        run(&mut ctl)
    };
    let (pid_a, pid_b) = (a.pid().to_string(), b.pid().to_string());
    // Others may run on this machine, so that these two are among several.
    find(&["status"]).expect(2, &["--pid", &format!("pid {pid_a}"), &format!("pid {pid_b}"), "a.sock", "b.sock"]);
    let status = find(&["status", "--json", "--pid", &pid_b]);
    status.expect(0, &[]);
    assert_eq!(status.json_lines()[0]["pid"].to_string(), pid_b);
    find(&["stop", "--pid", &pid_a]).expect(0, &["stopped"]);
    a.finish().expect(0, &[]);
    assert_eq!(scene.status("b.sock")["pid"].to_string(), pid_b, "the other goes on");
    end(&scene, "b.sock", b);
}

#[test]
fn a_killed_one_leaves_a_socket_that_the_next_replaces() {
    let scene = Scene::new();
    let running = scene.schemes("a", &["--scheme", STAT]);
    running.signal("KILL");
    assert_eq!(running.finish().status, None);
    assert!(scene.path("a").exists());
    scene.ctl("a", &["status"]).expect(1, &["no isotherm listens"]);
    let running = scene.schemes("a", &["--scheme", STAT]);
    assert_eq!(scene.status("a")["pid"], running.pid());
    end(&scene, "a", running);
}

#[test]
fn nobody_there_is_told_clearly() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none");
    isotherm(["ctl", "--socket", text(&path), "status"]).expect(1, &["no isotherm listens at", text(&path)]);
    isotherm(["ctl", "--pid", &common::Program::gone().to_string(), "status"]).expect(1, &["no isotherm with pid"]);
    isotherm(["ctl"]).expect(2, &[]);
    isotherm(["ctl", "--socket", "a", "--pid", "5", "status"]).expect(2, &["--pid"]);
    let plain = folder.path().join("plain");
    std::fs::write(&plain, "kept").unwrap();
    let scheme = ["schemes", "--scheme", STAT, "--socket", text(&plain), "--", "true"];
    isotherm(scheme).expect(1, &["no socket", text(&plain)]);
    assert_eq!(std::fs::read(&plain).unwrap(), b"kept");
}

/// Sends bytes as they are; what comes back.
fn raw(socket: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).unwrap();
    // Refused before all was sent: then the answer says why.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn nonsense_on_the_socket_harms_nobody() {
    let scene = Scene::new();
    let running = scene.schemes("a", &["--scheme", STAT]);
    let path = scene.path("a");
    // Half a request from a client that then does nothing more.
    let mut slow = UnixStream::connect(&path).unwrap();
    slow.write_all(b"POST /tune HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc").unwrap();
    let huge = vec![b'x'; 3 << 20];
    let mut noise = Vec::new();
    let mut state = 88_172_645_463_325_252_u64;
    for _ in 0..4096 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.push(state as u8);
    }
    for bytes in [
        &b"\x16\x03\x01\x00\xa5\x01\x00"[..],
        b"GET",
        b"GET /status HTTP/9.9\r\n\r\n",
        b"POST /tune HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST /goal HTTP/1.1\r\nContent-Length: 5\r\n\r\n{\"a\":",
        b"POST /goal HTTP/1.1\r\nContent-Length: 40\r\n\r\n[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
        &huge,
        &noise,
    ] {
        let answer = String::from_utf8_lossy(&raw(&path, bytes)).into_owned();
        let status: u16 = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or_default();
        assert!((400..500).contains(&status) || status == 505, "{answer}");
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        assert!(serde_json::from_str::<Value>(body).unwrap()["error"].is_string(), "{answer}");
    }
    assert_eq!(scene.status("a")["pid"], running.pid());
    drop(slow);
    let done = end(&scene, "a", running);
    assert!(!done.stderr.contains("panicked"), "{done:#?}");
}

#[test]
fn metrics_are_served_on_the_socket_and_on_a_port() {
    let scene = Scene::new();
    let running = scene.schemes("a", &["--scheme", STAT, "--metrics", "0"]);
    let answer = raw(&scene.path("a"), b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("application/openmetrics-text; version=1.0.0"));
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    assert!(body.ends_with("# EOF\n"));
    assert!(body.contains("isotherm_scheme_sz_tried_bytes_total{scheme=\"0\",action=\"stat\"} "), "{body}");
    let status = scene.status("a");
    assert_eq!(status["schemes"][0]["action"], "stat");
    let done = end(&scene, "a", running);
    let line = done.stderr.lines().find(|l| l.contains("metrics at http://127.0.0.1:")).unwrap();
    assert!(!line.contains(":0/"), "the port that was chosen is reported: {line}");
    isotherm(["schemes", "--scheme", STAT, "--metrics", "nowhere", "--pid", "1"])
        .expect(2, &["nowhere", "127.0.0.1:9190"]);
}

#[test]
fn a_hangup_reloads_the_file_and_a_bad_file_changes_nothing() {
    let scene = Scene::new();
    let one = "[[scheme]]\naction = \"stat\"\n";
    let config = scene.write("c.toml", one);
    let running = scene.schemes("a", &["-c", text(&config)]);
    let schemes = |n: usize| scene.status("a")["schemes"].as_array().unwrap().len() == n;
    assert!(schemes(1));
    scene.write("c.toml", &one.repeat(3));
    running.signal("HUP");
    wait_until("the file is read anew", || schemes(3));
    scene.write("c.toml", "[[scheme]]\naction = 5\n");
    running.signal("HUP");
    wait_until("the failure is reported", || !scene.status("a")["reload_error"].is_null());
    assert!(schemes(3));
    scene.write("c.toml", one);
    running.signal("HUP");
    wait_until("it recovers", || schemes(1));
    assert!(scene.status("a")["reload_error"].is_null());
    let done = end(&scene, "a", running);
    done.expect(0, &["reloaded: 3 schemes", "not reloaded, the old schemes stay in force", "c.toml"]);
}

#[test]
fn a_pipe_in_the_files_place_is_not_waited_for() {
    let scene = Scene::new();
    let config = scene.write("c.toml", "[[scheme]]\naction = \"stat\"\n");
    let running = scene.schemes("a", &["-c", text(&config)]);
    std::fs::remove_file(&config).unwrap();
    run(std::process::Command::new("mkfifo").arg(&config)).expect(0, &[]);
    running.signal("HUP");
    wait_until("the failure is reported", || {
        scene.status("a")["reload_error"].as_str().is_some_and(|why| why.contains("no plain file"))
    });
    assert!(scene.status("a")["schemes"][0].is_object());
    end(&scene, "a", running).expect(0, &[]);
}

#[test]
fn a_service_manager_hears_that_they_are_ready_and_may_ask_for_a_reload_at_once() {
    let scene = Scene::new();
    let config = scene.write("c.toml", "[[scheme]]\naction = \"stat\"\n");
    let manager = UnixDatagram::bind(scene.path("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut schemes =
        command(["schemes", "--source", "refs", "-c", text(&config), "--no-control", "--pid", &scene.pid()]);
    let running = start(schemes.env("NOTIFY_SOCKET", scene.path("notify")));
    let hears = |what: &str| {
        let mut buffer = [0; 64];
        let length = manager.recv(&mut buffer).unwrap();
        assert_eq!(String::from_utf8_lossy(&buffer[..length]), what);
    };
    hears("READY=1");
    running.signal("HUP");
    std::thread::sleep(Duration::from_secs(1));
    running.signal("TERM");
    hears("STOPPING=1");
    running.finish().expect(0, &["reloaded: 1 scheme"]);
}

#[test]
fn a_terminal_that_goes_ends_what_was_started_from_it() {
    if run(std::process::Command::new("script").arg("--version")).status != Some(0) {
        eprintln!("skipped: there is no script(1), which gives programs a terminal");
        return;
    }
    let scene = Scene::new();
    let config = scene.write("c.toml", "[[scheme]]\naction = \"stat\"\n");
    let path = scene.path("a");
    let line = format!(
        "exec {} schemes --source refs -c {} --socket {} --pid {}",
        env!("CARGO_BIN_EXE_isotherm"),
        text(&config),
        text(&path),
        scene.pid()
    );
    let terminal = start(std::process::Command::new("script").args(["-qec", &line, "/dev/null"]));
    wait_until("it listens", || UnixStream::connect(&path).is_ok());
    let pid = u32::try_from(scene.status("a")["pid"].as_u64().unwrap()).unwrap();
    common::send(pid, "HUP");
    scene.write("c.toml", &"[[scheme]]\naction = \"stat\"\n".repeat(2));
    common::send(pid, "HUP");
    wait_until("it reloads while it has a terminal", || scene.status("a")["schemes"][1].is_object());
    terminal.signal("KILL");
    wait_until("it ends with its terminal", || matches!(common::state(pid), None | Some('Z')));
    terminal.finish();
    assert!(!path.exists(), "in good order");
}

#[test]
fn root_other_intervals_are_taken_while_it_runs_and_waits_at_watermarks_answer() {
    let scene = Scene::new();
    let config = scene.write("a.toml", "[monitor]\naggr = \"100ms\"\n[[scheme]]\naction = \"stat\"\n");
    let path = scene.path("a");
    let running = start(&mut command([
        "schemes",
        "--source",
        "pagetable",
        "--socket",
        text(&path),
        "--pid",
        &scene.pid(),
        "-c",
        text(&config),
    ]));
    wait_until("it listens", || UnixStream::connect(&path).is_ok());
    let aggr = || scene.status("a")["monitor"]["aggr_us"].as_u64();
    wait_until("it watches", || aggr().is_some());
    let slower =
        scene.write("b.toml", "[monitor]\naggr = \"400ms\"\nsample = \"20ms\"\n[[scheme]]\naction = \"stat\"\n");
    let before = scene.status("a")["schemes"][0]["nr_snapshots"].as_u64().unwrap();
    scene.ctl("a", &["tune", "-c", text(&slower)]).expect(0, &["intervals"]);
    wait_until("the intervals changed", || aggr() >= Some(400_000));
    assert!(scene.status("a")["schemes"][0]["nr_snapshots"].as_u64().unwrap() >= before, "counters are kept");

    // A watermark that no machine meets keeps everything asleep; it still answers, tells why, and wakes for other
    // schemes.
    let asleep = "[[scheme]]\naction = \"stat\"\n[scheme.watermarks]\nmetric = \"free_mem_rate\"\nhigh = \"0.02%\"\nmid = \"0.01%\"\nlow = \"0%\"\ninterval = \"1h\"\n";
    scene.ctl("a", &["tune", "-c", text(&scene.write("c.toml", asleep))]).expect(0, &[]);
    wait_until("it sleeps", || {
        scene.status("a")["schemes"][0]["idle_reason"].as_str().is_some_and(|r| r.contains("watermark"))
    });
    let snapshots = || scene.status("a")["monitor"]["snapshots"].as_u64().unwrap();
    let resting = snapshots();
    scene.ctl("a", &["tune", "-c", text(&slower)]).expect(0, &[]);
    wait_until("it watches again", || snapshots() > resting + 1);
    end(&scene, "a", running);
}

#[test]
fn root_where_one_may_not_look_that_is_said() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // A copy, as the way to the original may be closed to others.
    let (binary, closed) = (folder.path().join("isotherm"), folder.path().join("run"));
    std::fs::copy(env!("CARGO_BIN_EXE_isotherm"), &binary).unwrap();
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut nobody = std::process::Command::new(&binary);
    nobody.uid(65534).gid(65534).current_dir("/").env("RUNTIME_DIRECTORY", &closed).args(["ctl", "status"]);
    run(&mut nobody).expect(1, &[&format!("{} ", text(&closed)), "may not be read", "run this as root"]);
}
