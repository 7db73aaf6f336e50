//! Exit statuses: 0 done, 1 failed, 2 bad usage, 3 not supported here.

use isotherm_record::WriteError;
use std::fmt;
use std::process::ExitCode;

/// The user asked for something that makes no sense; exit status 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage(pub String);

/// This machine cannot do it; exit status 3. The text holds the reason and the remedy.
#[derive(Debug)]
pub struct Unsupported(pub String);

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
    tracing::error!("{error:#}");
    if error.chain().any(|e| e.is::<Usage>()) {
        ExitCode::from(2)
    } else if error.chain().any(|e| e.is::<Unsupported>()) {
        ExitCode::from(3)
    } else {
        ExitCode::FAILURE
    }
}
