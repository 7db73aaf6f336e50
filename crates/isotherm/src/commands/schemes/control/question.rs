//! What can be asked of running schemes, beside their status and end.

use crate::commands::schemes::control::status::Status;
use crate::exit::Usage;
use crate::schemes::Tuning;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::goal::Goal;
use isotherm_daemon::service::{Refusal, Service};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A question, ready for the engine.
#[derive(Debug)]
pub enum Question {
    /// Other schemes; what was learnt and seen is kept.
    Tune(Tuning),
    /// Other goals for one scheme.
    Goals {
        /// Its index.
        scheme: usize,
        /// The goals as `metric=target`, to be read for the scheme's action; empty: none any more.
        goals: Vec<String>,
    },
    /// A value for the `user_input` goals of a scheme.
    Feedback {
        /// Its index.
        scheme: usize,
        /// The value.
        value: u64,
    },
}

/// How messages about a file call it that came over the socket.
pub const SENT_FILE: &str = "the file";

/// Reads schemes from the text of a file.
pub type ReadSchemes = Arc<dyn Fn(&str) -> Result<Tuning, Usage> + Send + Sync>;
/// Reads a goal of a scheme with that action from `metric=target`.
pub type ReadGoal = fn(&str, Action) -> Result<Goal, Usage>;

/// How texts in requests become schemes and goals.
#[derive(Clone)]
pub struct Readers {
    /// For `tune`; called in the connection's thread, so that the engine does not wait for it.
    pub schemes: ReadSchemes,
    /// For `goal`; called in the engine's, which knows the action.
    pub goal: ReadGoal,
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Readers")
    }
}

/// The body of `POST /goal`: a value, or goals that replace those in force.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoalBody {
    /// Index of the scheme.
    pub scheme: usize,
    /// A value for `user_input` goals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// Goals as `metric=target`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goals: Option<Vec<String>>,
}

impl Service for Readers {
    type Question = Question;
    type Status = Status;
    const QUESTIONS: &'static [&'static str] = &["/tune", "/goal"];

    fn read(&self, path: &str, body: &[u8]) -> Result<Question, Refusal> {
        match path {
            "/tune" => self.tune(body),
            _ => goal(body),
        }
    }
}

fn bad(text: impl Into<String>) -> Refusal {
    Refusal::new(400, text)
}

impl Readers {
    fn tune(&self, body: &[u8]) -> Result<Question, Refusal> {
        let text = std::str::from_utf8(body).map_err(|_| bad("the schemes are no text in UTF-8"))?;
        let tuning = (self.schemes)(text).map_err(|e| bad(e.0))?;
        if tuning.schemes.is_empty() {
            return Err(bad("there is no scheme in it; to end everything, stop"));
        }
        Ok(Question::Tune(tuning))
    }
}

/// Goals of a scheme, at most.
const MOST_GOALS: usize = 64;

fn goal(body: &[u8]) -> Result<Question, Refusal> {
    let body: GoalBody = serde_json::from_slice(body).map_err(|e| bad(format!("the goal is not understood: {e}")))?;
    let scheme = body.scheme;
    match (body.value, body.goals) {
        (Some(value), None) => Ok(Question::Feedback { scheme, value }),
        (None, Some(goals)) if goals.len() > MOST_GOALS => Err(bad(format!("more than {MOST_GOALS} goals"))),
        (None, Some(goals)) => Ok(Question::Goals { scheme, goals }),
        _ => Err(bad("give either a value or goals")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::schemes::control::testing;
    use proptest::prelude::*;

    fn read(path: &str, body: &str) -> Result<String, Refusal> {
        testing::readers().read(path, body.as_bytes()).map(|question| format!("{question:?}"))
    }

    #[test]
    fn questions_are_read_and_nonsense_is_not() {
        assert!(read("/tune", "2").unwrap().contains("Tune"));
        assert!(read("/goal", r#"{"scheme":0,"value":7}"#).unwrap().contains("value: 7"));
        assert!(read("/goal", r#"{"scheme":0,"goals":["psi=1%"]}"#).unwrap().contains("psi=1%"));
        for (path, body) in [
            ("/tune", "what"),
            ("/tune", "0"),
            ("/goal", ""),
            ("/goal", r#"{"scheme":0}"#),
            ("/goal", r#"{"scheme":0,"value":1,"goals":[]}"#),
            ("/goal", r#"{"scheme":-1,"value":1}"#),
            ("/goal", r#"{"scheme":0,"value":1,"more":2}"#),
        ] {
            let refusal = read(path, body).unwrap_err();
            assert!(refusal.status == 400 && !refusal.text.is_empty(), "{path} {body}: {refusal:?}");
        }
        assert!(testing::readers().read("/tune", b"\xff\xfe").unwrap_err().text.contains("UTF-8"));
    }

    proptest! {
        #[test]
        fn no_body_is_a_panic(
            path in "/(tune|goal)",
            body in "\\{\"scheme\":[0-9-]{0,22},\"(value|goals)\":[0-9\\[\\]\"{}-]{0,22}\\}",
        ) {
            let _ = read(&path, &body);
        }
    }
}
