//! Bodies for fuzzers and damage tests: each takes bytes from anywhere and panics if a promise of the readers is broken.

use crate::commands::ctl;
use crate::commands::node::rules::config::{Config, MinAge};
use crate::commands::schemes::control::question::Question;
use crate::commands::schemes::run::readers;
use crate::schemes::file::parse_file;
use crate::schemes::to_toml;
use isotherm_core::attrs::MonitorAttrs;
use isotherm_core::scheme::action::Action;
use isotherm_daemon::service::Service;
use std::path::Path;

/// How errors call the input.
const FILE: &str = "file";
/// Paths of control groups, for the patterns of rules.
const GROUPS: [&str; 5] = ["/", "/a", "/a/b/c", "/system.slice/redis@1.service", "/kubepods.slice/x.slice/y.scope"];

/// Reads a text as a scheme file of whatever kind. What is taken is valid, and the same again once it is written as
/// TOML.
pub fn schemes(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let schemes = match parse_file(FILE, text, &MonitorAttrs::default()) {
        Ok(parsed) => parsed.schemes,
        Err(e) => return assert!(e.to_string().starts_with(FILE), "{e}"),
    };
    assert!(!schemes.is_empty(), "a file without a scheme was taken");
    for scheme in &schemes {
        assert!(scheme.validate().is_ok(), "{scheme:?}: {:?}", scheme.validate());
    }
    let written = to_toml(&schemes);
    match parse_file(FILE, &written, &MonitorAttrs::default()) {
        Ok(again) => assert_eq!(to_toml(&again.schemes), written),
        Err(e) => panic!("{e}\n{written}"),
    }
}

/// Reads a text as a node's file of rules. What is taken makes valid schemes for every group.
pub fn rules(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let config = match Config::parse(FILE, text) {
        Ok(config) => config,
        Err(e) => return assert!(e.to_string().starts_with(FILE), "{e}"),
    };
    for rule in &config.rules {
        assert!(!rule.name.is_empty() && !rule.groups.is_empty(), "{rule:?}");
        let min_age_ns = match rule.reclaim().map(|reclaim| reclaim.min_age) {
            Some(MinAge::Fixed(ns)) => ns,
            _ => 120_000_000_000,
        };
        let scheme = rule.scheme("/a", min_age_ns, config.pace);
        assert!(scheme.validate().is_ok(), "{scheme:?}: {:?}", scheme.validate());
        let stall = rule.reclaim().and_then(|reclaim| reclaim.cache_policy(min_age_ns)).and_then(|policy| policy.stall);
        assert!(stall.is_none_or(|stall| stall.is_finite() && stall > 0.0), "{rule:?}");
    }
    for group in GROUPS {
        let rule = config.rule_of(group);
        assert!(config.working_rule_of(group).is_none_or(|working| Some(working) == rule));
        assert!(config.policy_of(group).is_none() || config.learns());
    }
}

/// Reads bytes as the body of each request to running schemes, and as each instance's status.
pub fn control(bytes: &[u8]) {
    let readers = readers(MonitorAttrs::default());
    for path in ["/tune", "/goal"] {
        match readers.read(path, bytes) {
            Err(refusal) => assert!(refusal.status == 400 && !refusal.text.is_empty(), "{refusal:?}"),
            Ok(Question::Goals { goals, .. }) => goals.iter().for_each(|goal| {
                if let Err(e) = (readers.goal)(goal, Action::PageOut) {
                    assert!(!e.0.is_empty());
                }
            }),
            Ok(Question::Tune(tuning)) => assert!(tuning.schemes.iter().all(|scheme| scheme.validate().is_ok())),
            Ok(Question::Feedback { .. }) => {}
        }
    }
    let _ = ctl::text(bytes, Path::new("socket"));
}
