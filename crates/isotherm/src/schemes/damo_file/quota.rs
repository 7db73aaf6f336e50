//! Quotas and goals of damo's.

use super::words::{self, MS, US};
use crate::schemes::fault::FileError;
use crate::schemes::metric::falls;
use crate::schemes::node::Node;
use crate::schemes::value;
use isotherm_core::meter::Metric;
use isotherm_core::scheme::action::Action;
use isotherm_core::scheme::goal::{Goal, GoalMetric};
use isotherm_core::scheme::priority::Weights;
use isotherm_core::scheme::quota::QuotaSpec;

/// Reads the quota of a scheme that does `action`.
pub fn read(node: &Node, action: Action) -> Result<QuotaSpec, FileError> {
    // What is charged for memory that could not be treated cannot be chosen here (fail_charge_*).
    node.only(&["time_ms", "sz_bytes", "reset_interval_ms", "weights", "goals", "goal_tuner", "effective_sz_bytes"])?;
    let default = QuotaSpec::default();
    let time_ns = node.optional("time_ms", |v| words::interval_ns(v, MS))?.filter(|&ns| ns > 0);
    let bytes = node.optional("sz_bytes", words::size)?.filter(|&bytes| bytes > 0);
    let reset_ns = node.optional("reset_interval_ms", |v| words::interval_ns(v, MS))?.filter(|&ns| ns > 0);
    let goals = node.each("goals", |g| goal(g, action))?;
    let mut quota = QuotaSpec {
        bytes,
        time_ns,
        reset_ns: reset_ns.unwrap_or(default.reset_ns),
        weights: node.part("weights", weights)?.unwrap_or(default.weights),
        goals,
        tuner: node.optional("goal_tuner", |v| v.to_string().parse())?.unwrap_or_default(),
    };
    if !quota.is_limited() {
        // damo writes "max" then.
        quota.reset_ns = default.reset_ns;
    }
    quota.validate().map_err(|e| node.fault(e))?;
    Ok(quota)
}

fn weights(node: &Node) -> Result<Weights, FileError> {
    node.only(&["sz_permil", "nr_accesses_permil", "age_permil"])?;
    let one = |key| node.optional(key, |v| words::share_bp(v, 1000.0)).map(|bp| bp.unwrap_or(0) / 10);
    Ok(Weights { size: one("sz_permil")?, access_rate: one("nr_accesses_permil")?, age: one("age_permil")? })
}

fn goal(node: &Node, action: Action) -> Result<Goal, FileError> {
    node.only(&["metric", "target_value", "current_value", "nid", "memcg_path"])?;
    let name = node.optional("metric", value::text)?.unwrap_or_else(|| "user_input".to_owned());
    let nid = || {
        let id = node.optional("nid", words::count32)?;
        id.ok_or_else(|| node.fault(format!("{name} needs nid, the number of a memory node")))
    };
    let read = GoalMetric::Read;
    let metric = match name.as_str() {
        "user_input" => GoalMetric::UserInput,
        "some_mem_psi_us" => read(Metric::SomeMemPsi(None)),
        "node_mem_used_bp" => read(Metric::NodeMemUsed(nid()?)),
        "node_mem_free_bp" => read(Metric::NodeMemFree(nid()?)),
        "active_mem_bp" => read(Metric::ActiveMem),
        "inactive_mem_bp" => read(Metric::InactiveMem),
        other => {
            let why = format!(
                "'{other}' is not a metric here; use one of user_input, some_mem_psi_us, node_mem_used_bp, \
                 node_mem_free_bp, active_mem_bp, inactive_mem_bp, or a TOML file for the others"
            );
            return Err(node.fault(why));
        }
    };
    let target = match &metric {
        GoalMetric::UserInput => node.optional("target_value", words::count)?,
        GoalMetric::Read(Metric::SomeMemPsi(_)) => {
            node.optional("target_value", |v| words::interval_ns(v, US).map(|ns| ns / US))?
        }
        GoalMetric::Read(_) => node.optional("target_value", |v| words::share_bp(v, 10_000.0))?.map(u64::from),
    };
    let falls = matches!(&metric, GoalMetric::Read(m) if falls(m, action));
    let goal = Goal { metric, target: target.unwrap_or(0), window_ns: 0, falls };
    goal.validate().map_err(|e| node.fault(e))?;
    Ok(goal)
}
