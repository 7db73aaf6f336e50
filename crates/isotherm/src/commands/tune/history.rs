//! Runs that earlier tunings have made, in a file of JSON lines: one for each run, written as soon as it has ended.

use anyhow::{Context, bail};
use isotherm_core::tuning::figures::Figures;
use isotherm_core::tuning::parameters::Parameters;
use isotherm_files::links;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

/// More than any history has: a run is about a kilobyte. A device given by mistake is not read without end.
const MOST_BYTES: u64 = 64 << 20;

/// What has to be the same for runs to be compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    pub command: Vec<String>,
    /// The schemes as a file, without what is tuned, and which of them is tuned.
    pub scheme: String,
    pub nth: usize,
    pub machine: String,
    pub kernel: String,
}

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    #[serde(flatten)]
    pub subject: Subject,
    /// Which tuning made it: only runs of the same one are compared with each other. Microseconds since 1970, or 0 for
    /// runs that the user made.
    pub tuning: i64,
    /// `None`: the command alone.
    pub parameters: Option<Parameters>,
    pub seconds: f64,
    pub memory_bytes: f64,
    /// How much memory the scheme acted on; `None`: not known.
    pub applied_bytes: Option<u64>,
}

impl Entry {
    pub fn figures(&self) -> Figures {
        Figures { seconds: self.seconds, memory: self.memory_bytes }
    }
}

/// What a file holds about a subject.
#[derive(Debug, Default, PartialEq)]
pub struct Known {
    /// In the file's order.
    pub entries: Vec<Entry>,
    /// Runs of another command, of another scheme, on another machine or kernel.
    pub ignored: (usize, usize, usize),
}

/// The file. Nothing that is in it is ever changed: runs are added at its end.
#[derive(Debug)]
pub struct History {
    path: PathBuf,
    file: File,
}

impl History {
    /// Opens the file, which is made if there is none, and reads what it knows about `subject`. A line that cannot be
    /// read is an error: what it said is not silently left out.
    pub fn open(path: &Path, subject: &Subject) -> anyhow::Result<(Self, Known)> {
        let cannot = || format!("cannot use the history {}", path.display());
        let place = links::followed(path).with_context(cannot)?;
        let text = match read_bounded(&place) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
            Err(e) => return Err(e).with_context(cannot),
        };
        let known = read(&text, subject).map_err(|e| anyhow::anyhow!("{}:{e}", path.display()))?;
        let mut file = File::options().append(true).create(true).open(&place).with_context(cannot)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").with_context(cannot)?;
        }
        Ok((Self { path: path.to_owned(), file }, known))
    }

    /// Adds a run. The line is written as a whole, and is on the disk afterwards.
    pub fn add(&mut self, entry: &Entry) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(entry).context("cannot write a run as JSON")?;
        line.push('\n');
        (self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data()))
            .with_context(|| format!("cannot add to the history {}", self.path.display()))
    }
}

/// The text of the file, unless it is longer than any history.
fn read_bounded(place: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = File::open(place)?.take(MOST_BYTES + 1).read_to_string(&mut text)?;
    if read as u64 > MOST_BYTES {
        return Err(io::Error::other("it is longer than 64 MiB, so it is no history; give another file"));
    }
    Ok(text)
}

fn read(text: &str, subject: &Subject) -> anyhow::Result<Known> {
    let mut known = Known::default();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let entry: Entry = match serde_json::from_str(line) {
            Ok(entry) => entry,
            Err(e) => bail!("{}: this line is no run ({e}); nothing was changed, take the line out to go on", n + 1),
        };
        if !(entry.seconds.is_finite()
            && entry.seconds > 0.0
            && entry.memory_bytes.is_finite()
            && entry.memory_bytes > 0.0)
        {
            bail!("{}: a run takes time and memory, but 'seconds' or 'memory_bytes' is not above 0", n + 1);
        }
        let other = &entry.subject;
        let (commands, schemes, machines) = &mut known.ignored;
        if other.command != subject.command {
            *commands += 1;
        } else if (&other.scheme, other.nth) != (&subject.scheme, subject.nth) {
            *schemes += 1;
        } else if other != subject {
            *machines += 1;
        } else {
            known.entries.push(entry);
        }
    }
    Ok(known)
}

impl Known {
    /// For people: how much is known, and what was left out.
    pub fn words(&self) -> String {
        let mut text = format!("{} runs are known", self.entries.len());
        let (command, scheme, machine) = self.ignored;
        for (count, what) in
            [(command, "another command"), (scheme, "another scheme"), (machine, "another machine or kernel")]
        {
            if count > 0 {
                text.push_str(&format!("; {count} of {what} ignored"));
            }
        }
        text
    }

    /// The runs by tuning, in order.
    pub fn tunings(&self) -> Vec<Vec<&Entry>> {
        let mut all: Vec<Vec<&Entry>> = Vec::new();
        for entry in &self.entries {
            match all.iter_mut().find(|t| t.first().is_some_and(|first| first.tuning == entry.tuning)) {
                Some(tuning) => tuning.push(entry),
                None => all.push(vec![entry]),
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(command: &str) -> Subject {
        let text = |s: &str| s.to_owned();
        Subject { command: vec![text(command)], scheme: text("s"), nth: 0, machine: text("m"), kernel: text("6.18") }
    }

    fn entry(subject: Subject, tuning: i64) -> Entry {
        let parameters = Some(Parameters { min_age_us: 1, rate_bp: 2, confirm_us: 3 });
        Entry { subject, tuning, parameters, seconds: 1.5, memory_bytes: 4096.0, applied_bytes: None }
    }

    #[test]
    fn what_is_added_is_read_again_and_what_is_of_others_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.jsonl");
        let (mut history, known) = History::open(&path, &subject("a")).unwrap();
        assert_eq!(known, Known::default());
        let mut foreign = subject("a");
        foreign.kernel = "5.10".to_owned();
        let mut other_scheme = subject("a");
        other_scheme.nth = 1;
        let all = [subject("a"), subject("b"), foreign, other_scheme, subject("a")];
        for (n, subject) in all.into_iter().enumerate() {
            history.add(&entry(subject, n as i64)).unwrap();
        }
        let (_, known) = History::open(&path, &subject("a")).unwrap();
        assert_eq!(known.entries, [entry(subject("a"), 0), entry(subject("a"), 4)]);
        assert_eq!(known.ignored, (1, 1, 1));
        assert_eq!(known.tunings().len(), 2);
        assert!(known.words().contains("1 of another command"), "{}", known.words());
    }

    #[test]
    fn what_has_no_end_is_no_history() {
        let error = History::open(Path::new("/dev/zero"), &subject("a")).unwrap_err();
        assert!(format!("{error:#}").contains("longer than 64 MiB"), "{error:#}");
    }

    #[test]
    fn a_damaged_line_is_named_and_nothing_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.jsonl");
        History::open(&path, &subject("a")).unwrap().0.add(&entry(subject("a"), 0)).unwrap();
        let whole = std::fs::read_to_string(&path).unwrap();
        for damaged in
            [&whole[..whole.len() / 2], "5", "{}", &whole.replace("1.5", "-1.5"), &whole.replace("1.5", "1e999")]
        {
            let text = format!("{whole}\n{damaged}");
            std::fs::write(&path, &text).unwrap();
            let error = History::open(&path, &subject("a")).unwrap_err().to_string();
            assert!(error.contains("h.jsonl:3: "), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        // A last line without its end is whole: the next one is not glued to it.
        std::fs::write(&path, whole.trim_end()).unwrap();
        History::open(&path, &subject("a")).unwrap().0.add(&entry(subject("a"), 0)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole.repeat(2));
    }
}
