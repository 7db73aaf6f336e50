//! One `[[scheme.goal]]`.

use crate::schemes::fault::FileError;
use crate::schemes::metric::{MetricName, falls};
use crate::schemes::node::Node;
use crate::schemes::value;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::goal::{Goal, GoalMetric};

/// Reads a goal of a scheme that does `action`.
pub fn read(node: &Node, action: Action) -> Result<Goal, FileError> {
    node.only(&["metric", "target", "window", "node", "path", "falls"])?;
    let name: MetricName = node.need("metric")?.read(|v| v.to_string().parse())?;
    let window = node.optional("window", value::time_ns)?;
    if window.is_some() && !name.has_window() {
        return Err(node.fault_at("window", format!("{name} is not taken over a window; leave it out")));
    }
    if window == Some(0) {
        return Err(node.fault_at("window", "a window of no time; write for example \"10s\""));
    }
    let window_ns = window.unwrap_or(name.default_window_ns());
    let memory_node = node.optional("node", value::count32)?;
    let path = node.optional("path", value::text)?;
    if let Some(why) = name.unwanted(memory_node, path.as_deref()) {
        let key = if memory_node.is_some() && !name.wants_node() { "node" } else { "path" };
        return Err(node.fault_at(key, why));
    }
    let metric = name.metric(memory_node, path.as_deref()).map_err(|why| node.fault(why))?;
    let target = node.need("target")?.read(|v| name.target(v, window_ns))?;
    let usual = matches!(&metric, GoalMetric::Read(metric) if falls(metric, action));
    let falls = node.optional("falls", value::flag)?.unwrap_or(usual);
    let goal = Goal { metric, target, window_ns, falls };
    goal.validate().map_err(|e| node.fault_at("target", e))?;
    Ok(goal)
}
