//! One `[[scheme.goal]]`.

use super::tables::{Cell, GoalTable, optional};
use crate::args::refused::Refused;
use crate::schemes::fault::{FileError, Source};
use crate::schemes::metric::{MetricName, falls};
use crate::schemes::value;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::goal::{Goal, GoalMetric};
use toml::Spanned;

/// Reads a goal of a scheme that does `action`.
pub fn read(source: Source, action: Action, table: &Spanned<GoalTable>) -> Result<Goal, FileError> {
    let t = table.get_ref();
    let fault = |span, key: &str, why: Refused| source.fault(&span, key, why);
    let name: MetricName =
        t.metric.get_ref().parse().map_err(|why| fault(t.metric.span(), "scheme.goal.metric", why))?;
    let window = optional(source, "scheme.goal.window", t.window.as_ref(), value::time_ns)?;
    if let (Some(cell), false) = (&t.window, name.has_window()) {
        let why = Refused::new(name, "is not taken over a window; leave that out");
        return Err(fault(cell.span(), "scheme.goal.window", why));
    }
    if let (Some(cell), Some(0)) = (&t.window, window) {
        let why = Refused::new(cell.get_ref(), "is a window of no time; write for example \"10s\"");
        return Err(fault(cell.span(), "scheme.goal.window", why));
    }
    let window_ns = window.unwrap_or(name.default_window_ns());
    let node = optional(source, "scheme.goal.node", t.node.as_ref(), value::count32)?;
    let path = t.path.as_ref().map(|p| p.get_ref().as_str());
    if let Some(why) = name.unwanted(node, path) {
        let span = [t.node.as_ref().map(Cell::span), t.path.as_ref().map(Spanned::span)];
        let key = if node.is_some() && !name.wants_node() { 0 } else { 1 };
        return Err(fault(
            span[key].clone().unwrap_or(table.span()),
            ["scheme.goal.node", "scheme.goal.path"][key],
            why,
        ));
    }
    let metric = name.metric(node, path).map_err(|why| fault(table.span(), "scheme.goal", why))?;
    let target =
        name.target(t.target.get_ref(), window_ns).map_err(|why| fault(t.target.span(), "scheme.goal.target", why))?;
    let falls = t.falls.unwrap_or_else(|| match &metric {
        GoalMetric::UserInput => false,
        GoalMetric::Read(metric) => falls(metric, action),
    });
    let goal = Goal { metric, target, window_ns, falls };
    goal.validate().map_err(|e| source.fault(&t.target.span(), "scheme.goal.target", e))?;
    Ok(goal)
}
