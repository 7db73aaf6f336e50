//! Talking to running schemes: what is asked over the control socket, and SIGHUP.
//!
//! [`Control`] sits beside the engine in its thread. It sees what the monitor tells, and whenever the loop comes by it
//! fulfils what was asked for in the meantime.

mod metrics;
mod overview;
pub mod question;
pub mod status;
#[cfg(test)]
pub mod testing;
pub mod words;

use crate::args::control::Bound;
use crate::exit::in_words;
use crate::hangup::{Hangup, Hangups};
use crate::schemes::Tuning;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::event::Event;
use isotherm_core::scheme::ahead::AheadTotals;
use isotherm_core::scheme::engine::SchemeEngine;
use isotherm_daemon::instance::Instance;
use isotherm_daemon::sandbox::Sandbox;
use isotherm_daemon::server::Server;
use isotherm_daemon::service::{Answer, Ask, Refusal};
use isotherm_linux::clock::monotonic_ns;
use isotherm_linux::signals;
use overview::Overview;
use question::{Question, ReadGoal, Readers};
use status::{SchemeStatus, Status, TargetStatus};
use std::path::PathBuf;

/// How long a request may wait for the loop to look, ns.
const LOOK_EVERY_NS: u64 = 200_000_000;

/// Requests fulfilled in one go.
const MOST_AT_ONCE: usize = 4;

/// Reads the schemes anew from where they came.
pub type Reload = Box<dyn Fn() -> anyhow::Result<Tuning>>;

/// The engine's end of all that.
pub struct Control {
    server: Option<Server<Readers>>,
    read_goal: ReadGoal,
    /// What a hangup has read, and who sees hangups.
    reload: Option<(Reload, Hangups)>,
    reload_error: Option<String>,
    overview: Overview,
    /// Intervals and limits as they were asked for last.
    attrs: MonitorAttrs,
    /// The same, while the monitor does not have them yet.
    wanted_attrs: Option<MonitorAttrs>,
    started_ns: u64,
    looked_ns: u64,
    dry_run: bool,
    sandbox: Sandbox,
    ahead: Option<AheadTotals>,
    stop: bool,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Control {
    /// Serves what is bound. `attrs`: those that the monitor began with.
    pub fn start(bound: Bound, readers: Readers, attrs: MonitorAttrs) -> anyhow::Result<Self> {
        let read_goal = readers.goal;
        let server = bound.serve(readers)?;
        let now = monotonic_ns();
        Ok(Self {
            server,
            read_goal,
            reload: None,
            reload_error: None,
            overview: Overview::default(),
            attrs,
            wanted_attrs: None,
            started_ns: now,
            looked_ns: now,
            dry_run: false,
            ahead: None,
            sandbox: Sandbox::default(),
            stop: false,
        })
    }

    /// What is read again at a hangup.
    pub fn on_hangup(&mut self, reload: Reload, hangups: Hangups) {
        self.reload = Some((reload, hangups));
    }

    /// Whether nothing is really done, which the status then says.
    pub const fn dry_run(&mut self, dry_run: bool) {
        self.dry_run = dry_run;
    }

    /// What was done ahead of faults, which the status then says.
    pub fn ahead(&mut self, totals: AheadTotals) {
        self.ahead = Some(totals);
    }

    /// How we are confined, which the status then says.
    pub fn sandbox(&mut self, sandbox: Sandbox) {
        self.sandbox = sandbox;
    }

    /// Other intervals and limits for the monitor, once.
    pub const fn take_attrs(&mut self) -> Option<MonitorAttrs> {
        self.wanted_attrs.take()
    }

    /// Whether somebody asked for the end.
    pub const fn stop_asked(&self) -> bool {
        self.stop
    }

    /// When the loop is to come by next.
    pub const fn wanted_ns(&self) -> u64 {
        self.looked_ns + LOOK_EVERY_NS
    }

    /// Takes in what the status tells of the monitor and its targets.
    pub fn event(&mut self, event: &Event) {
        self.overview.event(event);
    }

    /// Fulfils what was asked for since the last time, so much of it at once that whoever asks without end does not
    /// keep the loop. Cheap where nothing was.
    pub fn serve(&mut self, engine: &mut SchemeEngine, now_ns: u64) {
        self.looked_ns = now_ns;
        match self.reload.as_ref().and_then(|(_, hangups)| hangups.take()) {
            Some(Hangup::Reload) => self.reload(engine),
            Some(Hangup::TerminalGone) => {
                self.stop = true;
                signals::request_stop();
            }
            None => {}
        }
        for _ in 0..MOST_AT_ONCE {
            let Some((ask, responder)) = self.server.as_ref().and_then(Server::try_next) else { return };
            responder.send(self.fulfil(ask, engine, now_ns));
        }
    }

    fn fulfil(
        &mut self,
        ask: Ask<Question>,
        engine: &mut SchemeEngine,
        now_ns: u64,
    ) -> Result<Answer<Status>, Refusal> {
        match ask {
            Ask::Status => Ok(Answer::Status(Box::new(self.status(engine, now_ns)))),
            Ask::Question(Question::Tune(tuning)) => {
                let text = self.tune(tuning, engine);
                tracing::info!("tuned by ctl: {text}");
                Ok(Answer::Done(text))
            }
            Ask::Question(Question::Goals { scheme, goals }) => self.goals(scheme, &goals, engine),
            Ask::Question(Question::Feedback { scheme, value }) => {
                if scheme >= engine.len() {
                    return Err(no_scheme(scheme, engine));
                }
                match engine.push_feedback(scheme, value) {
                    0 => Err(Refusal::new(
                        409,
                        format!(
                            "scheme {scheme} has no goal on user_input, which alone takes values; set one with --metric user_input=TARGET"
                        ),
                    )),
                    _ => Ok(Answer::Done(format!(
                        "scheme {scheme} takes {value} at the start of its next quota interval"
                    ))),
                }
            }
            Ask::Stop => {
                self.stop = true;
                // Wakes a clock that waits.
                signals::request_stop();
                Ok(Answer::Done("stopping".into()))
            }
        }
    }

    /// Puts schemes in force, and has the monitor take other intervals if they differ; tells what.
    fn tune(&mut self, tuning: Tuning, engine: &mut SchemeEngine) -> String {
        let mut text = match tuning.schemes.len() {
            1 => "1 scheme in force".to_owned(),
            n => format!("{n} schemes in force"),
        };
        engine.commit(tuning.schemes);
        if let Some(attrs) = tuning.attrs.filter(|attrs| *attrs != self.attrs) {
            self.attrs = attrs;
            self.wanted_attrs = Some(attrs);
            text += ", other monitoring intervals asked for";
        }
        text
    }

    fn goals(&self, scheme: usize, texts: &[String], engine: &mut SchemeEngine) -> Result<Answer<Status>, Refusal> {
        let Some(action) = engine.status().get(scheme).map(|s| s.scheme.action) else {
            return Err(no_scheme(scheme, engine));
        };
        let mut goals = Vec::with_capacity(texts.len());
        for text in texts {
            let goal = (self.read_goal)(text, action).map_err(|why| Refusal::new(400, why.0))?;
            goal.validate().map_err(|why| Refusal::new(400, format!("{text}: {why}")))?;
            goals.push(goal);
        }
        engine.commit_goals(scheme, goals);
        let text = match texts {
            [] => format!("scheme {scheme} has no goal any more"),
            texts => format!("scheme {scheme} is tuned for {}", texts.join(" and ")),
        };
        tracing::info!("by ctl: {text}");
        Ok(Answer::Done(text))
    }

    fn status(&self, engine: &mut SchemeEngine, now_ns: u64) -> Status {
        let log = engine.log().entries().cloned().collect();
        let targets = self.overview.targets();
        let schemes: Vec<_> = engine.status().into_iter().enumerate().map(|(i, s)| SchemeStatus::new(i, s)).collect();
        Status {
            instance: Instance::of_this_process(
                status::COMMAND,
                about(&schemes, &targets),
                self.server.as_ref().and_then(Server::path).map(PathBuf::from),
                self.started_ns,
                now_ns,
            )
            .in_sandbox(&self.sandbox),
            dry_run: self.dry_run,
            reload_error: self.reload_error.clone(),
            monitor: self.overview.monitor(),
            targets,
            schemes,
            ahead: self.ahead.clone(),
            log,
        }
    }

    fn reload(&mut self, engine: &mut SchemeEngine) {
        let Some((reload, _)) = &self.reload else { return };
        match reload() {
            Ok(tuning) => {
                self.reload_error = None;
                let text = self.tune(tuning, engine);
                tracing::info!("reloaded: {text}");
            }
            Err(e) => {
                let why = in_words(&e);
                tracing::warn!("not reloaded, the old schemes stay in force: {why}");
                self.reload_error = Some(why);
            }
        }
    }
}

/// What is done to whom, in a few words.
fn about(schemes: &[SchemeStatus], targets: &[TargetStatus]) -> String {
    let actions: Vec<&str> = schemes.iter().map(|s| s.action.as_str()).collect();
    let targets = match targets {
        [] => "no target".to_owned(),
        [t] => t.name.clone(),
        [t, rest @ ..] => format!("{} and {} more", t.name, rest.len()),
    };
    format!("{} on {}", actions.join(", "), words::one_line(&targets))
}

fn no_scheme(scheme: usize, engine: &SchemeEngine) -> Refusal {
    let text = match engine.len() {
        0 | 1 => format!("there is no scheme {scheme}; the only one is 0"),
        n => format!("there is no scheme {scheme}; they are 0 to {}", n - 1),
    };
    // 404 says that the question is not known.
    Refusal::new(409, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_do_what_they_say() {
        let (mut engine, mut control) = (testing::engine(), testing::control());
        let mut ask = |request| control.fulfil(request, &mut engine, 7);
        let Ok(Answer::Status(status)) = ask(Ask::Status) else { panic!("no status") };
        assert_eq!((status.schemes.len(), status.instance.time_ns), (1, 7));
        assert!(status.schemes[0].idle_reason.is_some());

        assert_eq!(ask(Ask::Question(Question::Feedback { scheme: 0, value: 3 })).unwrap_err().status, 409);
        ask(Ask::Question(Question::Goals { scheme: 0, goals: vec!["5".into()] })).unwrap();
        ask(Ask::Question(Question::Feedback { scheme: 0, value: 3 })).unwrap();
        for (text, what) in [("0", "goal of 0"), ("x", "no number")] {
            let refusal =
                ask(Ask::Question(Question::Goals { scheme: 0, goals: vec!["5".into(), text.into()] })).unwrap_err();
            assert!(refusal.status == 400 && refusal.text.contains(what), "{refusal:?}");
        }
        let Ok(Answer::Status(status)) = ask(Ask::Status) else { panic!("no status") };
        assert_eq!(status.schemes[0].goals.len(), 1, "a bad goal changes nothing");
        for request in [Question::Goals { scheme: 1, goals: vec![] }, Question::Feedback { scheme: 9, value: 1 }] {
            let refusal = ask(Ask::Question(request)).unwrap_err();
            assert!(refusal.status == 409 && refusal.text.contains("the only one is 0"), "{refusal:?}");
        }
        let attrs = Some(MonitorAttrs { aggr_us: 200_000, ..MonitorAttrs::default() });
        ask(Ask::Question(Question::Tune(Tuning { schemes: vec![testing::scheme(); 2], attrs }))).unwrap();
        let Ok(Answer::Status(status)) = ask(Ask::Status) else { panic!("no status") };
        assert_eq!(status.schemes.len(), 2);
        let text = serde_json::to_string(&status).unwrap();
        serde_json::from_str::<Status>(&text).unwrap();
        assert_eq!(control.take_attrs(), attrs);
        control.tune(Tuning { schemes: vec![testing::scheme()], attrs }, &mut engine);
        assert_eq!(control.take_attrs(), None, "the same intervals are no change");
    }

    #[test]
    fn a_bad_file_leaves_the_old_schemes_in_force() {
        let (mut engine, mut control) = (testing::engine(), testing::control());
        control.on_hangup(Box::new(|| anyhow::bail!("line 3: what is this?")), Hangups::catch().unwrap());
        control.reload(&mut engine);
        assert_eq!(engine.len(), 1);
        assert!(control.status(&mut engine, 0).reload_error.unwrap().contains("line 3"));
        let three = || Ok(Tuning { schemes: vec![testing::scheme(); 3], attrs: None });
        control.on_hangup(Box::new(three), Hangups::catch().unwrap());
        control.reload(&mut engine);
        assert_eq!(engine.len(), 3);
        assert_eq!(control.status(&mut engine, 0).reload_error, None);
    }
}
