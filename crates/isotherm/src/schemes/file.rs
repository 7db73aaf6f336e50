//! One scheme file: reading it, and telling which kind it is.

use super::fault::FileError;
use super::parsed::Parsed;
use super::{damo_file, line, toml_file};
use crate::exit::Usage;
use anyhow::Context;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_files::plain_file;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// More than any scheme file has; a device or a core dump given by mistake is not read to its end.
const LONGEST_FILE: u64 = 1 << 20;

/// The text of a file, or of a pipe, whose writer is waited for.
pub fn read_file(path: &Path) -> anyhow::Result<String> {
    read_from(path, File::open(path).with_context(|| format!("cannot read {}", path.display()))?)
}

/// The same for a run that goes on, which waits for nobody. What is no plain file is refused: a pipe has given all that it
/// had when it was first read, and that it is empty since says nothing about what is wanted.
pub fn read_again(path: &Path) -> anyhow::Result<String> {
    let name = path.display();
    let file = plain_file::open(path).with_context(|| format!("cannot read {name}"))?.ok_or_else(|| {
        Usage(format!(
            "{name} is no plain file (a pipe or a device), so it cannot be read again; give the path of a file"
        ))
    })?;
    read_from(path, file)
}

fn read_from(path: &Path, file: File) -> anyhow::Result<String> {
    let name = path.display();
    let mut bytes = Vec::new();
    file.take(LONGEST_FILE + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(Usage(format!("{name} is longer than 1 MiB, so it holds neither schemes nor rules")).into());
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| Usage(format!("{name} is no text, so it holds neither schemes nor rules")))?;
    Ok(text)
}

/// Reads a file of any of the three kinds, distinguished by what is in it.
pub fn parse_file(name: &str, text: &str, attrs: &MonitorAttrs) -> Result<Parsed, FileError> {
    let parsed = match SchemeFormat::of(text) {
        SchemeFormat::Toml => toml_file::parse(name, text),
        SchemeFormat::Json => {
            damo_file::parse(name, text, attrs).map(|schemes| Parsed { schemes, ..Parsed::default() })
        }
        SchemeFormat::Lines => {
            let lines = text.lines().zip(1..).filter(|(line, _)| is_significant(line));
            let read = lines.map(|(line, number)| {
                line::parse(line, attrs).map_err(|e| FileError::of(name, e).at_line(Some(number)))
            });
            read.collect::<Result<_, _>>().map(|schemes| Parsed { schemes, ..Parsed::default() })
        }
    }?;
    if parsed.schemes.is_empty() {
        return Err(FileError::of(name, "it holds no scheme; docs/schemes.md shows one"));
    }
    Ok(parsed)
}

/// The kinds of scheme files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SchemeFormat {
    Toml,
    Json,
    Lines,
}

fn is_significant(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with('#')
}

impl SchemeFormat {
    fn of(text: &str) -> Self {
        let text = text.trim_start();
        // A list of JSON begins with [{, a table of TOML with a name or another [.
        let list = text.strip_prefix('[').map(str::trim_start);
        if text.starts_with('{') || list.is_some_and(|rest| rest.starts_with(['{', ']'])) {
            return Self::Json;
        }
        match text.lines().find(|line| is_significant(line)) {
            Some(line) if !line.contains('=') && !line.trim().starts_with('[') => Self::Lines,
            _ => Self::Toml,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_run_that_goes_on_reads_plain_files_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules.toml");
        std::fs::write(&file, "# none\n").unwrap();
        assert_eq!(read_again(&file).unwrap(), "# none\n");
        for path in [folder.path(), Path::new("/dev/zero")] {
            let error = read_again(path).unwrap_err().to_string();
            assert!(error.starts_with(&path.display().to_string()) && error.contains("no plain file"), "{error}");
        }
        let error = format!("{:#}", read_again(&folder.path().join("none")).unwrap_err());
        assert!(error.starts_with("cannot read ") && error.contains("No such file"), "{error}");
    }

    #[test]
    fn the_kind_of_a_file_shows_in_its_first_line() {
        for (text, kind) in [
            ("[[scheme]]\naction = \"stat\"", SchemeFormat::Toml),
            ("# a = b\n\n[monitor]\n", SchemeFormat::Toml),
            ("scheme = [{ action = \"stat\" }]", SchemeFormat::Toml),
            ("", SchemeFormat::Toml),
            (" {\"schemes\": []}", SchemeFormat::Json),
            ("[ {\"action\": \"stat\"} ]", SchemeFormat::Json),
            ("[]", SchemeFormat::Json),
            ("# cold\n4K max 0 0 5s max pageout\n", SchemeFormat::Lines),
        ] {
            assert_eq!(SchemeFormat::of(text), kind, "{text:?}");
        }
    }

    #[test]
    fn a_file_of_lines_names_the_line_at_fault() {
        let text = "# two\n4K max 0 0 5s max pageout\n\n2M max 5 max min max hugepage\n";
        assert_eq!(parse_file("x", text, &MonitorAttrs::default()).unwrap().schemes.len(), 2);
        let error = parse_file("x", &format!("{text}4K max\n"), &MonitorAttrs::default()).unwrap_err().to_string();
        assert!(error.starts_with("x, line 5: ") && error.contains("2 columns"), "{error}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(\\PC|[\n\t =#\\[{]){0,120}") {
            if let Err(e) = parse_file("x", &text, &MonitorAttrs::default()) {
                prop_assert!(e.to_string().starts_with('x'));
            }
        }
    }
}
