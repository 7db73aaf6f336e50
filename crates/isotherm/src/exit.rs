//! Exit statuses: 0 done, 1 failed, 2 bad usage, 3 not supported here; or that of the command which was watched.

use isotherm_record::WriteError;
use std::fmt;
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
    let broken_pipe = error
        .chain()
        .filter_map(|e| e.downcast_ref::<std::io::Error>())
        .any(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
        || error.chain().filter_map(|e| e.downcast_ref::<WriteError>()).any(WriteError::is_broken_pipe);
    if broken_pipe {
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
    use std::io;

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
}
