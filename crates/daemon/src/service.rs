//! What a kind of instance has to say, and what can be asked of it.

use crate::http::{HttpRequest, HttpResponse, names_us};
use crate::openmetrics::Exposition;
use serde::Serialize;
use std::marker::PhantomData;

/// A kind of instance: `schemes`, `hint host`, `lru run`, `node`.
pub trait Service: Send + Sync + 'static {
    /// What can be asked of its loop, beside its status and its end.
    type Question: Send + 'static;
    /// How it stands.
    type Status: Status;
    /// The paths of the questions; they take POST.
    const QUESTIONS: &'static [&'static str];

    /// Reads a question, in the connection's thread.
    fn read(&self, path: &str, body: &[u8]) -> Result<Self::Question, Refusal>;
}

/// How an instance stands.
pub trait Status: Serialize + Send + 'static {
    /// Writes it as metrics.
    fn write_metrics(&self, out: &mut Exposition);
}

/// An instance that is asked for its status and its end, and nothing else.
#[derive(Debug)]
pub struct StatusOnly<S>(PhantomData<fn() -> S>);

impl<S> Default for StatusOnly<S> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<S: Status> Service for StatusOnly<S> {
    type Question = std::convert::Infallible;
    type Status = S;
    const QUESTIONS: &'static [&'static str] = &[];

    fn read(&self, path: &str, _: &[u8]) -> Result<Self::Question, Refusal> {
        Err(Refusal::new(404, format!("nothing can be asked at {path}")))
    }
}

/// A question, ready for the loop.
#[derive(Debug)]
pub enum Ask<Q> {
    /// How it stands.
    Status,
    /// End in good order.
    Stop,
    /// Something of its kind.
    Question(Q),
}

/// What the loop answers.
#[derive(Debug)]
pub enum Answer<S> {
    /// How it stands.
    Status(Box<S>),
    /// It was done: what, in words.
    Done(String),
    /// What was asked for, as JSON.
    Json(Vec<u8>),
}

/// Why a request is not fulfilled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// The reason, and what to do.
    pub text: String,
}

impl Refusal {
    /// A refusal with that HTTP status.
    pub fn new(status: u16, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}

/// Which side a connection came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// The Unix socket: everything.
    Control,
    /// A TCP port: only metrics, since anybody who reaches it may ask.
    MetricsOnly,
}

/// What a path is for.
#[derive(Debug)]
pub(crate) enum Route<Q> {
    /// Ask the loop; answer in JSON.
    Ask(Ask<Q>),
    /// Ask for the status; answer with metrics.
    Metrics,
    /// Answer this.
    Answer(HttpResponse),
}

/// What `request` asks for. `names`: what this machine may be called at the port for metrics, beside its addresses and
/// localhost.
pub(crate) fn route<S: Service>(
    request: &HttpRequest,
    door: Door,
    names: &[String],
    service: &S,
) -> Route<S::Question> {
    if door == Door::MetricsOnly && !names_us(request.host.as_deref(), names) {
        let text = "this is not the host that was asked for; ask by its address, or name it here with --metrics-host";
        return Route::Answer(HttpResponse::error(421, text));
    }
    let reads = matches!(request.method.as_str(), "GET" | "HEAD");
    let posts = request.method == "POST";
    match (request.path.as_str(), door) {
        ("/metrics", _) if reads => Route::Metrics,
        ("/metrics", _) => method_not_allowed("GET, HEAD"),
        (_, Door::MetricsOnly) => Route::Answer(HttpResponse::error(404, "no such path; there is /metrics")),
        ("/status", _) if reads => Route::Ask(Ask::Status),
        ("/status", _) => method_not_allowed("GET, HEAD"),
        (path, _) if path != "/stop" && !S::QUESTIONS.contains(&path) => {
            let paths = ["/status", "/metrics"].iter().chain(S::QUESTIONS).copied().collect::<Vec<_>>().join(", ");
            Route::Answer(HttpResponse::error(404, &format!("no such path; there are {paths} and /stop")))
        }
        _ if !posts => method_not_allowed("POST"),
        ("/stop", _) => Route::Ask(Ask::Stop),
        (path, _) => match service.read(path, &request.body) {
            Ok(question) => Route::Ask(Ask::Question(question)),
            Err(refusal) => Route::Answer(HttpResponse::error(refusal.status, &refusal.text)),
        },
    }
}

fn method_not_allowed<Q>(allow: &'static str) -> Route<Q> {
    let text = format!("this path takes {allow} only");
    Route::Answer(HttpResponse { allow: Some(allow), ..HttpResponse::error(405, &text) })
}

/// The loop's answer as HTTP.
pub(crate) fn respond<S: Status>(reply: Result<Answer<S>, Refusal>, as_metrics: bool) -> HttpResponse {
    match reply {
        Ok(Answer::Status(status)) if as_metrics => {
            let mut out = Exposition::default();
            status.write_metrics(&mut out);
            HttpResponse::metrics(out.finish())
        }
        Ok(Answer::Status(status)) => HttpResponse::json(200, &status),
        Ok(Answer::Json(body)) => HttpResponse::written_json(body),
        Ok(Answer::Done(text)) => HttpResponse::json(200, &serde_json::json!({ "done": text })),
        Err(refusal) => HttpResponse::error(refusal.status, &refusal.text),
    }
}
