//! What the tests of this folder share.

use super::Control;
use super::question::Readers;
use super::status::{GoalStatus, MonitorStatus, PatternStatus, SchemeStatus, Status, TargetStatus};
use crate::args::control::Bound;
use crate::exit::Usage;
use crate::schemes::Tuning;
use isotherm_core::action_log::Entry;
use isotherm_core::actuator::DryRun;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::meter::{Metric, NoMeter};
use isotherm_core::scheme::Scheme;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::ahead::AheadTotals;
use isotherm_core::scheme::effect::Effect;
use isotherm_core::scheme::engine::SchemeEngine;
use isotherm_core::scheme::goal::{Goal, GoalMetric};
use isotherm_core::scheme::pattern::AccessPattern;
use isotherm_core::scheme::stats::SchemeStats;
use isotherm_daemon::instance::Instance;
use isotherm_daemon::sandbox::Sandbox;
use std::sync::Arc;

/// A scheme that pages all out.
pub fn scheme() -> Scheme {
    Scheme::new(Action::PageOut, AccessPattern::default())
}

/// An engine with one scheme, which does nothing.
pub fn engine() -> SchemeEngine {
    SchemeEngine::new(vec![scheme()], Box::new(DryRun::default()), Box::new(NoMeter))
}

fn number(text: &str) -> Result<u64, Usage> {
    text.trim().parse().map_err(|_| Usage(format!("'{text}' is no number")))
}

/// Takes a number of schemes for them, and a target for a `user_input` goal.
pub fn readers() -> Readers {
    Readers {
        schemes: Arc::new(|text| Ok(Tuning { schemes: vec![scheme(); number(text)?.min(10) as usize], attrs: None })),
        goal: |text, _| Ok(Goal { metric: GoalMetric::UserInput, target: number(text)?, window_ns: 0, falls: false }),
    }
}

/// A control without a server.
pub fn control() -> Control {
    Control::start(Bound { socket: None, metrics: None }, readers(), MonitorAttrs::default()).unwrap()
}

/// A status with something of everything.
pub fn status() -> Status {
    let metric = GoalMetric::Read(Metric::SomeMemPsi(None));
    let goal = Goal { metric, target: 50_000, window_ns: 10_000_000_000, falls: false };
    let stats = SchemeStats {
        nr_tried: 2,
        sz_tried: 8192,
        sz_applied: 8192,
        effective_quota: Some(1 << 20),
        action_ns: 2_500_000_000,
        major_faults: Some(3),
        stall_us: Some(1000),
        effect: Effect { out: 8192, back_10s: 4096, back_60s: 4096, saved_now: 4096, ..Default::default() },
        ..Default::default()
    };
    let entry = Entry {
        time_ns: 9_000_000_000,
        scheme: 0,
        action: Action::PageOut,
        target: 0,
        pid: Some(42),
        asked: 8192,
        applied: 4096,
        took_ns: 1_000_000,
        error: Some("0x1000-0x2000: no".into()),
    };
    Status {
        instance: Instance {
            uptime_ns: 10_000_000_000,
            version: "1.2.3".into(),
            command: super::status::COMMAND.into(),
            about: "pageout on x".into(),
            pid: 7,
            socket: None,
            time_ns: 10_000_000_000,
            sandbox: Some(Sandbox { on: true, capabilities: vec!["CAP_BPF".into()], landlock: "absent".into() }),
        },
        dry_run: false,
        reload_error: None,
        monitor: MonitorStatus {
            source: "pagetable".into(),
            algorithm: "isotherm".into(),
            sample_us: Some(5000),
            aggr_us: Some(100_000),
            nr_regions: Some(12),
            cpu_budget: Some(0.01),
            monitor_ns: Some(500_000_000),
            target_ns: Some(100_000_000),
            monitor_share: Some(0.004),
            target_share: Some(0.001),
            ..Default::default()
        },
        targets: vec![TargetStatus {
            target: 0,
            pid: Some(42),
            name: "\\odd \"name\"\n".into(),
            rss: Some(12288),
            swap: Some(4096),
            accessed: Some(4096),
        }],
        schemes: vec![SchemeStatus {
            scheme: 0,
            action: "pageout".into(),
            pattern: PatternStatus {
                size: (4096, None),
                rate_bp: (0, 0),
                age_us: (5_000_000, None),
                words: "4.00 KiB or more, not accessed, for 5.00 s or longer".into(),
            },
            apply_ns: 0,
            quota_bytes: Some(128 << 20),
            quota_ns: None,
            quota_reset_ns: 1_000_000_000,
            stats,
            idle_code: None,
            idle_reason: None,
            goals: vec![GoalStatus::new(&goal, Some(5000), 1_000_000_000)],
        }],
        ahead: Some(AheadTotals { asked: 3, room: 8192, collapsed: 4096, taken_back: 1, refusal: None }),
        log: vec![entry],
    }
}
