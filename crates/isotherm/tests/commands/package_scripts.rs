//! The scripts of the Debian package.

use crate::common::run;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Purges what is below `root`.
fn purge(root: &Path) -> String {
    let script = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/debian/postrm")).unwrap();
    let mut below = script.clone();
    // There is no systemd below it.
    for folder in ["/var/lib/", "/etc/", "/run/"] {
        assert!(script.contains(folder));
        below = below.replace(folder, &format!("{}{folder}", root.display()));
    }
    let done = run(Command::new("sh").args(["-c", &below, "postrm", "purge"]));
    done.expect(0, &[]);
    done.stderr
}

#[test]
fn a_purge_keeps_what_says_which_memory_is_isolated() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let ledger = root.join("run/isotherm/hint-guest/taken");
    let others = ["run/isotherm/node.sock", "etc/isotherm/node.toml", "var/lib/isotherm/kept"].map(|p| root.join(p));
    let write_others = || {
        for path in &others {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
    };
    write_others();
    fs::create_dir_all(ledger.parent().unwrap()).unwrap();
    fs::write(&ledger, "offline 6\n").unwrap();
    let said = purge(root);
    assert!(ledger.exists() && others.iter().all(|path| !path.exists()), "{said}");
    assert!(said.contains("hint-guest stays") && said.contains("power this virtual machine off"), "{said}");

    fs::remove_file(&ledger).unwrap();
    write_others();
    assert_eq!(purge(root), "");
    for gone in ["run/isotherm", "etc/isotherm", "var/lib/isotherm"] {
        assert!(!root.join(gone).exists(), "{gone}");
    }
    assert_eq!(purge(root), "", "with nothing there");
}
