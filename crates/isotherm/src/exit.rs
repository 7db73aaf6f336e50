//! Exit statuses: 0 done, 1 failed, 2 bad usage, 3 not supported here; or that of the command which was watched.

use isotherm_core::engine::EngineError;
use isotherm_record::{ReadError, WriteError};
use isotherm_view::error::ViewError;
use std::error::Error;
use std::fmt;
use std::io;
use std::process::ExitCode;

/// The user asked for something that makes no sense; exit status 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage(pub String);

/// This machine cannot do it; exit status 3. The text holds the reason and the remedy.
#[derive(Debug)]
pub struct Unsupported(pub String);

/// The command that was watched has failed by itself; Isotherm ends with its status, as a shell would tell it.
#[derive(Debug)]
pub struct CommandStatus {
    pub code: u8,
    /// What happened, for people.
    pub text: String,
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for CommandStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<String> for Usage {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Usage {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl std::error::Error for Usage {}
impl std::error::Error for Unsupported {}
impl std::error::Error for CommandStatus {}

/// Prints an error to stderr and chooses the exit status. A closed pipe on stdout (`| head`) is no error.
pub fn status(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    if is_closed_pipe(error.as_ref()) {
        return ExitCode::SUCCESS;
    }
    if let Some(CommandStatus { code, text }) = error.downcast_ref() {
        tracing::warn!("{text}");
        return ExitCode::from(*code);
    }
    tracing::error!("{}", in_words(&error));
    if error.chain().any(|e| e.is::<Usage>()) {
        ExitCode::from(2)
    } else if error.chain().any(|e| e.is::<Unsupported>()) {
        ExitCode::from(3)
    } else {
        ExitCode::FAILURE
    }
}

/// Whether the reader of an output went away.
fn is_closed_pipe(error: &(dyn Error + 'static)) -> bool {
    let kind = match error.downcast_ref::<io::Error>() {
        Some(error) => Some(error.kind()),
        None => error.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind),
    };
    kind == Some(io::ErrorKind::BrokenPipe)
        || error.downcast_ref().is_some_and(WriteError::is_broken_pipe)
        || cause(error).is_some_and(is_closed_pipe)
}

/// What caused an error, also where it says so in its own text and therefore not as its source.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    if let Some(EngineError::Subscriber(cause)) = error.downcast_ref() {
        Some(cause.as_ref())
    } else if let Some(ReadError::Sink(cause)) = error.downcast_ref() {
        Some(cause.as_ref())
    } else if let Some(ViewError::Read(cause)) = error.downcast_ref() {
        Some(cause.as_ref())
    } else {
        error.source()
    }
}

/// An error with its causes. Some errors name their cause in their own text; it is not said twice.
pub fn in_words(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text += ": ";
            text += &cause;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read x: {source}")]
    struct NamesItsCause {
        source: io::Error,
    }

    #[test]
    fn no_cause_is_told_twice() {
        let error = anyhow::Error::new(NamesItsCause { source: io::Error::other("it is gone") }).context("no record");
        assert_eq!(in_words(&error), "no record: cannot read x: it is gone");
        assert_eq!(in_words(&anyhow::anyhow!("inner").context("outer")), "outer: inner");
    }

    /// A writer whose reader went away, or that fails otherwise.
    struct Failing(io::ErrorKind);

    impl io::Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn write(kind: io::ErrorKind) -> WriteError {
        WriteError::Io { origin: "standard output".into(), written: 7, error: kind.into() }
    }

    #[test]
    fn a_closed_pipe_is_found_wherever_it_is() {
        type Made = fn(io::ErrorKind) -> anyhow::Error;
        let cases: [(&str, Made); 8] = [
            ("as it is", |kind| io::Error::from(kind).into()),
            ("as the source of another", |kind| NamesItsCause { source: kind.into() }.into()),
            ("with a context", |kind| anyhow::Error::from(io::Error::from(kind)).context("cannot write a file")),
            ("of JSON", |kind| serde_json::to_writer(Failing(kind), "text").expect_err("fails").into()),
            ("of a record", |kind| write(kind).into()),
            ("of what takes a record's events", |kind| ReadError::Sink(write(kind).into()).into()),
            ("of what takes a monitor's events", |kind| EngineError::Subscriber(write(kind).into()).into()),
            ("of a report", |kind| ViewError::Read(ReadError::Sink(io::Error::from(kind).into()).into()).into()),
        ];
        for (name, made) in cases {
            assert!(is_closed_pipe(made(io::ErrorKind::BrokenPipe).as_ref()), "{name}");
            assert!(!is_closed_pipe(made(io::ErrorKind::StorageFull).as_ref()), "{name}");
        }
        let json = serde_json::from_str::<u8>("{").expect_err("no number");
        assert!(!is_closed_pipe(anyhow::Error::from(json).as_ref()));
    }
}
