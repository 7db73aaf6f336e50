//! Files that a command reads and files that it writes, which must not be the same: writing one would destroy the other.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that a command is to write, and the option that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// For people, for example `--svg`.
    pub option: &'static str,
    /// `-` is standard output.
    pub path: PathBuf,
}

impl Output {
    /// What `option` names.
    pub fn new(option: &'static str, path: impl Into<PathBuf>) -> Self {
        Self { option, path: path.into() }
    }
}

/// Why these outputs must not be written: one is an input, or two are the same. To be asked before anything is done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotApart {
    #[error(
        "{option} {} is the same file as {}, which is read; it would be lost, so name another file",
        output.display(), input.display()
    )]
    Input {
        /// Which names the output.
        option: &'static str,
        output: PathBuf,
        input: PathBuf,
    },
    #[error("{first} and {second} name the same file, {}; give each its own", path.display())]
    Outputs {
        /// The options.
        first: &'static str,
        second: &'static str,
        path: PathBuf,
    },
    #[error("only one of {first} and {second} can go to standard output; name a file for the other")]
    Stdout {
        /// The options.
        first: &'static str,
        second: &'static str,
    },
}

/// Checks that each of `outputs` is another file than any of `inputs` and any other output. An input `-` is standard input. What is
/// no plain file (`/dev/null`, a pipe) is nobody's content and may be named twice.
pub fn keep_apart<P: AsRef<Path>>(inputs: &[P], outputs: &[Output]) -> Result<(), NotApart> {
    let read: Vec<(Identity, &Path)> = inputs
        .iter()
        .map(AsRef::as_ref)
        .filter_map(|path| Some((Identity::of(if is_dash(path) { Path::new("/dev/stdin") } else { path })?, path)))
        .collect();
    let mut written: Vec<(Identity, &Output)> = Vec::new();
    let mut to_stdout: Option<&Output> = None;
    for output in outputs {
        if is_dash(&output.path) {
            if let Some(first) = to_stdout.replace(output) {
                return Err(NotApart::Stdout { first: first.option, second: output.option });
            }
            continue;
        }
        let Some(identity) = Identity::of(&output.path) else { continue };
        if let Some((_, input)) = read.iter().find(|(read, _)| *read == identity) {
            let input = input.to_path_buf();
            return Err(NotApart::Input { option: output.option, output: output.path.clone(), input });
        }
        if let Some((_, first)) = written.iter().find(|(written, _)| *written == identity) {
            let path = output.path.clone();
            return Err(NotApart::Outputs { first: first.option, second: output.option, path });
        }
        written.push((identity, output));
    }
    Ok(())
}

fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// What a file is known by, whatever its path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Identity {
    /// A plain file by device and inode.
    There(u64, u64),
    /// None yet: its folder by device and inode, and its name there.
    New(u64, u64, OsString),
}

impl Identity {
    /// `None`: no plain file, or nothing that could become one.
    fn of(path: &Path) -> Option<Self> {
        if let Ok(meta) = path.metadata() {
            return meta.is_file().then(|| Self::There(meta.dev(), meta.ino()));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let meta = folder.metadata().ok()?;
        Some(Self::New(meta.dev(), meta.ino(), path.file_name()?.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn an_input_is_found_by_any_of_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("record"), "content").unwrap();
        fs::write(at("record.1"), "content").unwrap();
        fs::create_dir(at("sub")).unwrap();
        symlink(at("record"), at("link")).unwrap();
        fs::hard_link(at("record.1"), at("other")).unwrap();
        let inputs = [at("record"), at("record.1")];
        for name in ["record", "record.1", "link", "other", "sub/../record"] {
            let outputs = [Output::new("--html", at("page")), Output::new("--svg", at(name))];
            let error = keep_apart(&inputs, &outputs).unwrap_err();
            assert!(matches!(error, NotApart::Input { option: "--svg", .. }), "{name}: {error}");
            assert!(error.to_string().contains(name), "{error}");
        }
        assert_eq!(keep_apart(&inputs, &[Output::new("--svg", at("new")), Output::new("--png", at("newer"))]), Ok(()));
    }

    #[test]
    fn two_outputs_need_two_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        let none: [&Path; 0] = [];
        for there in [false, true] {
            if there {
                fs::write(at("x"), "old").unwrap();
            }
            let outputs = [Output::new("--svg", at("x")), Output::new("--png", at("sub/../x"))];
            let error = keep_apart(&none, &outputs).unwrap_err();
            assert!(matches!(error, NotApart::Outputs { first: "--svg", second: "--png", .. }), "{error}");
        }
        let both = [Output::new("--svg", "-"), Output::new("--png", "-")];
        assert_eq!(keep_apart(&none, &both), Err(NotApart::Stdout { first: "--svg", second: "--png" }));
        let devices = [Output::new("--svg", "/dev/null"), Output::new("--png", "/dev/null")];
        assert_eq!(keep_apart(&["/dev/null"], &devices), Ok(()));
    }
}
