//! A disk that fills up while recording: a clear end, and what was written before stays readable.

mod privileged {
    use std::process::Command;

    #[test]
    fn root_a_full_disk_ends_the_recording_and_keeps_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        // A small tmpfs in a mount namespace of its own: gone with its last process, whatever happens. It is filled up
        // but for 16 KiB, so that the disk is full after a few snapshots.
        let script = r#"
            set -e
            mount -t tmpfs -o size=256k tmpfs "$2"
            head -c 240k /dev/zero >"$2/filler"
            sleep 600 & target=$!
            trap 'kill $target' EXIT
            set +e
            timeout 100 "$1" record --pid $target -o "$2/r.iso" --duration 1h --source pagetable \
                --sample 1ms --aggr 2ms --cpu-budget 100% 2>"$2/../stderr"
            echo "status $?"
            "$1" report raw --json "$2/r.iso" 2>/dev/null | wc -l
            kill -0 $target && echo alive
        "#;
        let mount = folder.path().join("mount");
        std::fs::create_dir(&mount).unwrap();
        let output = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_isotherm")])
            .arg(&mount)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = std::fs::read_to_string(folder.path().join("stderr")).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], "status 1", "{said}\n{errors}");
        assert!(errors.contains("r.iso"), "the file is not named: {errors}");
        assert!(errors.to_lowercase().contains("no space"), "the reason is not named: {errors}");
        assert!(!errors.contains("panicked"), "{errors}");
        assert!(lines[1].trim().parse::<u32>().unwrap() > 0, "nothing is left of the record: {said}\n{errors}");
        assert_eq!(lines[2], "alive", "the target was harmed");
    }
}
