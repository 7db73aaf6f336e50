//! Manual pages, shell completions and the version.

use crate::common::{isotherm, text};

#[test]
fn every_command_has_a_page_and_completions_know_its_flags() {
    let folder = tempfile::tempdir().unwrap();
    isotherm(["generate", text(folder.path())]).expect(0, &[]);
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    for (page, flag) in [("record", "rotate"), ("schemes", "config"), ("report-heatmap", "svg"), ("sim-lru", "trace")] {
        assert!(read(&format!("man/man1/isotherm-{page}.1")).contains(flag), "{page} lacks {flag}");
    }
    assert!(!folder.path().join("man/man1/isotherm-generate.1").exists(), "it is for make install only");
    for file in [
        "bash-completion/completions/isotherm.bash",
        "zsh/site-functions/_isotherm",
        "fish/vendor_completions.d/isotherm.fish",
    ] {
        let completions = read(file);
        assert!(completions.contains("rotate-size") && completions.contains("version"), "{file}");
        let mut words = completions.split(|c: char| !c.is_ascii_alphanumeric());
        assert!(words.all(|word| word != "guard"), "{file} offers a command that is no user's");
        // The part for a command that refuses options of regions, and that for one that takes them.
        let (marks, offers) = match file.rsplit('.').next() {
            Some("bash") => (["isotherm__subcmd__node)", "isotherm__subcmd__record)"], "--min-regions"),
            Some("fish") => (["subcommand node", "subcommand record"], "min-regions"),
            _ => (["(node)\n", "(record)\n"], "--min-regions"),
        };
        for (mark, wanted) in marks.into_iter().zip([false, true]) {
            let part: String = match file.ends_with(".fish") {
                true => completions.lines().filter(|line| line.contains(mark)).collect(),
                false => completions.split(mark).nth(1).unwrap().split(";;").next().unwrap().to_owned(),
            };
            assert!(part.contains("metrics") || wanted, "{file}: {part}");
            assert_eq!(part.contains(offers), wanted, "{file}: {mark}");
        }
    }
    isotherm(["generate", "/dev/null/share"]).expect(1, &["/dev/null/share"]);
}

#[test]
fn the_version_tells_the_commit_of_a_checkout() {
    let done = isotherm(["--version"]);
    done.expect(0, &[]);
    let words: Vec<&str> = done.stdout.split_whitespace().collect();
    assert_eq!(words[..2], ["isotherm", env!("CARGO_PKG_VERSION")], "{done:#?}");
    let git = std::process::Command::new("git").args(["rev-parse", "--show-toplevel"]).output();
    let Ok(git) = git.map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned()) else { return };
    if std::path::Path::new(&git).join("crates/isotherm").exists() {
        assert!(words.len() == 4 && words[2] == "(commit" && words[3].len() == 13, "{done:#?}");
    }
}
