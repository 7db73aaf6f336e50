//! Where reports go: stdout, the terminal's size and colours, files that are written whole or not at all.

use crate::exit::Usage;
use crate::stats_file::StatsFile;
use anyhow::Context;
use isotherm_files::NewFile;
use isotherm_files::apart::{self, Output};
use isotherm_view::ascii::AsciiWriter;
use isotherm_view::error::ViewError;
use isotherm_view::heat::terminal::Colours;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Gives `write` stdout for text that people read, in the characters that the locale has.
pub fn text_to_stdout(write: impl FnOnce(&mut dyn Write) -> Result<(), ViewError>) -> anyhow::Result<()> {
    match ascii_only() {
        true => to_stdout(|out| write(&mut AsciiWriter::new(out))),
        false => to_stdout(write),
    }
}

/// Whether the locale was set to one without UTF-8. Where none is set, as in most containers, the terminal decides, and
/// those have UTF-8.
pub fn ascii_only() -> bool {
    let var = |name| std::env::var(name).ok();
    lacks_utf8(["LC_ALL", "LC_CTYPE", "LANG"].map(var))
}

fn lacks_utf8(by_rank: [Option<String>; 3]) -> bool {
    let set = by_rank.into_iter().flatten().find(|value| !value.is_empty());
    set.is_some_and(|locale| !locale.to_ascii_lowercase().replace('-', "").contains("utf8"))
}

/// Gives `write` a buffered stdout and flushes it.
pub fn to_stdout(write: impl FnOnce(&mut dyn Write) -> Result<(), ViewError>) -> anyhow::Result<()> {
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    match write(&mut out).and_then(|()| Ok(out.flush()?)) {
        Err(ViewError::Write(e)) => Err(e).context("cannot write to standard output"),
        other => Ok(other?),
    }
}

/// Width and height in characters: the terminal's, or `COLUMNS` by 32, or 80 by 32.
pub fn screen_size() -> (usize, usize) {
    let from_env = || std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()).unwrap_or(80);
    match crossterm::terminal::size() {
        Ok((width, height)) if io::stdout().is_terminal() && width > 0 && height > 0 => (width.into(), height.into()),
        _ => (from_env(), 32),
    }
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ColourWhen {
    /// On a terminal that has them, unless NO_COLOR is set
    Auto,
    /// Always, 24 bits
    Always,
    /// Never
    Never,
}

/// The colours to use on stdout.
pub fn colours(when: ColourWhen) -> Colours {
    let var = |name| std::env::var(name).unwrap_or_default();
    match when {
        ColourWhen::Always => Colours::True,
        ColourWhen::Never => Colours::None,
        // Half blocks need characters that are not there.
        ColourWhen::Auto if ascii_only() => Colours::None,
        ColourWhen::Auto => detect(io::stdout().is_terminal(), &var("NO_COLOR"), &var("TERM"), &var("COLORTERM")),
    }
}

fn detect(terminal: bool, no_color: &str, term: &str, colorterm: &str) -> Colours {
    if !terminal || !no_color.is_empty() || term == "dumb" {
        Colours::None
    } else if matches!(colorterm, "truecolor" | "24bit") {
        Colours::True
    } else {
        Colours::Indexed
    }
}

/// Whether a path that somebody gave stands for standard output.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Refuses outputs that would take the place of an input or of each other: to be asked before anything is done.
pub fn keep_apart(inputs: &[impl AsRef<Path>], outputs: &[Output]) -> Result<(), Usage> {
    apart::keep_apart(inputs, outputs).map_err(|e| Usage(e.to_string()))
}

/// Writes a file so that it is there whole or not at all; see [`NewFile`]. `-` is stdout.
pub fn write_file(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    if is_stdout(path) {
        let mut out = io::stdout().lock();
        return out.write_all(content).and_then(|()| out.flush()).context("cannot write to stdout");
    }
    let special = path.metadata().is_ok_and(|m| !m.is_file());
    let result = NewFile::create(path, NewFile::READABLE).and_then(|mut file| {
        file.write_all(content)?;
        file.commit()
    });
    result.with_context(|| format!("cannot write {}", path.display()))?;
    if !special {
        say!("wrote {}", path.display());
    }
    Ok(())
}

/// Opens what `--stats` names: a file, or `-` for stdout.
pub fn open_stats(path: &Path) -> anyhow::Result<Box<dyn Write>> {
    if is_stdout(path) {
        return Ok(Box::new(io::stdout()));
    }
    let file = File::create(path).with_context(|| format!("cannot write statistics to {}", path.display()))?;
    Ok(Box::new(BufWriter::new(file)))
}

/// The same for a command that runs on: a full disk does not end it. A file keeps what it holds until the first line is there.
pub fn open_live_stats(path: &Path) -> anyhow::Result<Box<dyn Write>> {
    if path.metadata().is_ok_and(|m| !m.is_file()) || is_stdout(path) {
        return open_stats(path);
    }
    let file = StatsFile::create(path).with_context(|| format!("cannot write statistics to {}", path.display()))?;
    Ok(Box::new(file))
}

/// The file for one of `count` pictures: with its name before the ending, unless it is the only one.
pub fn one_of(path: &Path, name: &str, count: usize) -> PathBuf {
    if count == 1 {
        return path.to_owned();
    }
    let mut file = path.file_stem().unwrap_or_default().to_owned();
    file.push(format!("-{name}"));
    if let Some(extension) = path.extension() {
        file.push(".");
        file.push(extension);
    }
    path.with_file_name(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_targets_get_a_file_each() {
        let file = |path: &str, count| one_of(Path::new(path), "1", count);
        assert_eq!(file("a/heat.svg", 1), Path::new("a/heat.svg"));
        assert_eq!(file("a/heat.svg", 2), Path::new("a/heat-1.svg"));
        assert_eq!(file("heat", 2), Path::new("heat-1"));
    }

    #[test]
    fn the_locale_decides_on_characters() {
        let lacks = |all: &str, ctype: &str, lang: &str| lacks_utf8([all, ctype, lang].map(|v| Some(v.to_owned())));
        assert!(lacks("", "", "C") && lacks("POSIX", "", "en_GB.UTF-8") && lacks("", "de_DE", "C.UTF-8"));
        assert!(!lacks("", "", "") && !lacks("", "", "C.UTF-8") && !lacks("en_US.utf8", "C", "C"));
        assert!(!lacks_utf8([None, None, None]));
    }

    #[test]
    fn colours_by_terminal() {
        assert_eq!(detect(true, "", "xterm-256color", ""), Colours::Indexed);
        assert_eq!(detect(true, "", "xterm", "truecolor"), Colours::True);
        assert_eq!(detect(true, "1", "xterm", "truecolor"), Colours::None);
        assert_eq!(detect(false, "", "xterm", "truecolor"), Colours::None);
        assert_eq!(detect(true, "", "dumb", ""), Colours::None);
    }

    #[test]
    fn files_are_replaced_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("report.svg");
        write_file(&path, b"one").expect("writes");
        write_file(&path, b"two").expect("replaces");
        assert_eq!(std::fs::read(&path).ok().as_deref(), Some(&b"two"[..]));
        assert_eq!(std::fs::read_dir(folder.path()).map(Iterator::count).ok(), Some(1), "nothing else is left");
        let error = write_file(&folder.path().join("no/such/folder.svg"), b"x").expect_err("no folder");
        assert!(format!("{error:#}").contains("no/such/folder.svg"));
        write_file(Path::new("/dev/null"), b"x").expect("devices are written to, not replaced");
    }
}
