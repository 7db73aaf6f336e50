//! Statistics of schemes: JSON lines for programs, a line a scheme for people.

use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::ahead::AheadTotals;
use isotherm_core::scheme::engine::{SchemeEngine, SchemeStatus};
use isotherm_core::scheme::stats::{StatsLine, applied_to};
use isotherm_core::units::format_size;
use std::io::{self, Write};

/// Writes a line for each scheme. `ahead`: what was done ahead of faults.
pub fn write_lines(
    out: &mut dyn Write,
    engine: &mut SchemeEngine,
    mut ahead: Option<AheadTotals>,
    now_ns: u64,
) -> io::Result<()> {
    let dry_run = engine.is_dry_run();
    for (scheme, status) in engine.status().into_iter().enumerate() {
        let line = StatsLine {
            time_ns: now_ns,
            scheme,
            action: status.scheme.action.name().to_owned(),
            dry_run,
            stats: status.stats,
            idle_code: status.idle.map(|idle| idle.code().to_owned()),
            idle_reason: status.idle.map(ToString::to_string),
            goals: status.goals,
            goal_targets: status.goal_targets,
            rss: status.rss,
            ahead: ahead.take_if(|_| matches!(status.scheme.action, Action::Collapse | Action::HugePage)),
        };
        serde_json::to_writer(&mut *out, &line)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// What a scheme has done, in a line: for people.
pub fn words(index: usize, status: &SchemeStatus<'_>, dry_run: bool) -> String {
    let (stats, action) = (&status.stats, status.scheme.action);
    let mut text = format!(
        "scheme {index} ({action}): tried {}, {} {}",
        format_size(stats.sz_tried),
        applied_to(dry_run),
        format_size(stats.sz_applied)
    );
    let effect = &stats.effect;
    if effect.out > 0 {
        text += &format!(
            "; {} out now, {:.1} % came back within 10 s",
            format_size(effect.saved_now),
            effect.back_10s as f64 / effect.out as f64 * 100.0
        );
    }
    if let Some(reason) = status.idle {
        text += &format!("; idle: {reason}");
    }
    text
}

/// All schemes in a few words, for a status line.
pub fn short(engine: &mut SchemeEngine, ahead: Option<&AheadTotals>) -> String {
    let one = |s: SchemeStatus<'_>| {
        let stalled = if s.idle.is_some() { " (idle)" } else { "" };
        format!("{} {}{stalled}", s.scheme.action, format_size(s.stats.sz_applied))
    };
    let ahead = ahead.map(|ahead| format!("{} asked for ahead", format_size(ahead.room)));
    engine.status().into_iter().map(one).chain(ahead).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::actuator::DryRun;
    use isotherm_core::meter::NoMeter;
    use isotherm_core::scheme::Scheme;
    use isotherm_core::scheme::pattern::AccessPattern;
    use std::io::BufRead;

    #[test]
    fn lines_hold_what_the_contract_names() {
        let schemes = vec![Scheme::new(Action::PageOut, AccessPattern::default())];
        let mut engine = SchemeEngine::new(schemes, Box::new(DryRun::default()), Box::new(NoMeter));
        let mut out = Vec::new();
        write_lines(&mut out, &mut engine, Some(AheadTotals::default()), 7).unwrap();
        let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
        for key in ["nr_tried", "sz_tried", "nr_applied", "sz_applied", "qt_exceeds"] {
            assert_eq!(line[key], 0, "{key}");
        }
        assert_eq!(line["action"], "pageout");
        assert_eq!(line["scheme"], 0);
        assert!(line["effective_quota"].is_null(), "no limit");
        assert!(line["major_faults"].is_null(), "not known is not zero");
        assert!(line["idle_reason"].is_string());
        assert!(line["ahead"].is_null(), "no huge pages are made");
        assert!(line.get("dry_run").is_none(), "it is said only where nothing is done: {line}");

        let mut engine = engine.dry_run();
        out.clear();
        write_lines(&mut out, &mut engine, None, 8).unwrap();
        let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(line["dry_run"], true);
    }

    #[test]
    fn what_was_done_ahead_is_in_the_first_line_about_huge_pages() {
        let schemes = [Action::PageOut, Action::Collapse, Action::HugePage];
        let schemes = schemes.map(|action| Scheme::new(action, AccessPattern::default())).to_vec();
        let mut engine = SchemeEngine::new(schemes, Box::new(DryRun::default()), Box::new(NoMeter));
        let ahead = AheadTotals { asked: 3, room: 5 << 20, collapsed: 0, taken_back: 1, refusal: None };
        let mut out = Vec::new();
        write_lines(&mut out, &mut engine, Some(ahead.clone()), 7).unwrap();
        let lines: Vec<StatsLine> = out.lines().map(|l| serde_json::from_str(&l.unwrap()).unwrap()).collect();
        assert_eq!(lines.iter().map(|l| l.ahead.as_ref()).collect::<Vec<_>>(), [None, Some(&ahead), None]);
        let short = short(&mut engine, Some(&ahead));
        assert!(short.ends_with(", 5.00 MiB asked for ahead"), "{short}");
    }
}
