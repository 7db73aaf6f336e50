//! What can be asked of a running instance, and how HTTP asks for it.

use super::http::{HttpRequest, HttpResponse};
use super::metrics;
use super::status::Status;
use crate::schemes::Tuning;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::goal::Goal;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A request, ready for the engine.
#[derive(Debug)]
pub enum Request {
    /// How things stand.
    Status,
    /// Other schemes; what was learnt and seen is kept.
    Tune(Tuning),
    /// Other goals for one scheme.
    Goals {
        scheme: usize,
        /// The goals as `metric=target`, to be read for the scheme's action; empty: none any more.
        goals: Vec<String>,
    },
    /// A value for the `user_input` goals of a scheme.
    Feedback { scheme: usize, value: u64 },
    /// End in good order.
    Stop,
}

/// What the engine answers.
#[derive(Debug)]
pub enum Answer {
    /// How things stand.
    Status(Box<Status>),
    /// It was done: what, in words.
    Done(String),
}

/// Why a request is not fulfilled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// The reason, and what to do.
    pub text: String,
}

impl Refusal {
    pub fn new(status: u16, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}

/// How messages about a file call it that came over the socket.
pub const SENT_FILE: &str = "the file";

/// Reads schemes from the text of a file.
pub type ReadSchemes = Arc<dyn Fn(&str) -> Result<Tuning, String> + Send + Sync>;
/// Reads a goal of a scheme with that action from `metric=target`.
pub type ReadGoal = fn(&str, Action) -> Result<Goal, String>;

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

/// What a path is for.
#[derive(Debug)]
pub enum Route {
    /// Ask the engine; answer in JSON.
    Ask(Request),
    /// Ask for the status; answer with metrics.
    Metrics,
    Answer(HttpResponse),
}

/// Which side a connection came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// The Unix socket: everything.
    Control,
    /// A TCP port: only metrics, since anybody who reaches it may ask.
    MetricsOnly,
}

fn method_not_allowed(allow: &'static str) -> Route {
    let text = format!("this path takes {allow} only");
    Route::Answer(HttpResponse { allow: Some(allow), ..HttpResponse::error(405, &text) })
}

fn bad(text: impl AsRef<str>) -> Route {
    Route::Answer(HttpResponse::error(400, text.as_ref()))
}

/// What `request` asks for.
pub fn route(request: &HttpRequest, door: Door, readers: &Readers) -> Route {
    let reads = matches!(request.method.as_str(), "GET" | "HEAD");
    let posts = request.method == "POST";
    match (request.path.as_str(), door) {
        ("/metrics", _) if reads => Route::Metrics,
        ("/metrics", _) => method_not_allowed("GET, HEAD"),
        ("/status", Door::Control) if reads => Route::Ask(Request::Status),
        ("/status", Door::Control) => method_not_allowed("GET, HEAD"),
        ("/tune" | "/goal" | "/stop", Door::Control) if !posts => method_not_allowed("POST"),
        ("/tune", Door::Control) => tune(&request.body, readers),
        ("/goal", Door::Control) => goal(&request.body),
        ("/stop", Door::Control) => Route::Ask(Request::Stop),
        (_, Door::Control) => {
            Route::Answer(HttpResponse::error(404, "no such path; there are /status, /metrics, /tune, /goal and /stop"))
        }
        (_, Door::MetricsOnly) => Route::Answer(HttpResponse::error(404, "no such path; there is /metrics")),
    }
}

fn tune(body: &[u8], readers: &Readers) -> Route {
    let Ok(text) = std::str::from_utf8(body) else { return bad("the schemes are no text in UTF-8") };
    match (readers.schemes)(text) {
        Ok(tuning) if tuning.schemes.is_empty() => bad("there is no scheme in it; to end everything, stop"),
        Ok(tuning) => Route::Ask(Request::Tune(tuning)),
        Err(text) => bad(text),
    }
}

/// Goals of a scheme, at most.
const MOST_GOALS: usize = 64;

fn goal(body: &[u8]) -> Route {
    let body: GoalBody = match serde_json::from_slice(body) {
        Ok(body) => body,
        Err(e) => return bad(format!("the goal is not understood: {e}")),
    };
    let scheme = body.scheme;
    match (body.value, body.goals) {
        (Some(value), None) => Route::Ask(Request::Feedback { scheme, value }),
        (None, Some(goals)) if goals.len() > MOST_GOALS => bad(format!("more than {MOST_GOALS} goals")),
        (None, Some(goals)) => Route::Ask(Request::Goals { scheme, goals }),
        _ => bad("give either a value or goals"),
    }
}

/// The engine's answer as HTTP.
pub fn respond(reply: Result<Answer, Refusal>, as_metrics: bool) -> HttpResponse {
    match reply {
        Ok(Answer::Status(status)) if as_metrics => HttpResponse::metrics(metrics::write(&status)),
        Ok(Answer::Status(status)) => HttpResponse::json(200, &status),
        Ok(Answer::Done(text)) => HttpResponse::json(200, &serde_json::json!({ "done": text })),
        Err(refusal) => HttpResponse::error(refusal.status, &refusal.text),
    }
}
