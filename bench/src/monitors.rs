//! The monitors that are compared.

/// A monitor: its name in the tables and the options of `isotherm record` or `isotherm sim monitor` that choose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MonitorChoice {
    /// Name.
    pub name: &'static str,
    /// Options, without the budget.
    pub options: &'static [&'static str],
    /// Whether it keeps to the CPU budget; DAMON as it is has none.
    pub budgeted: bool,
}

/// All that are compared. `damon` keeps its default intervals, whatever they cost; `damon+tuned` stretches them to fit
/// the budget.
pub const MONITORS: [MonitorChoice; 4] = [
    MonitorChoice { name: "scan", options: &["--algorithm", "isotherm", "--mode", "scan"], budgeted: true },
    MonitorChoice { name: "damon", options: &["--algorithm", "damon"], budgeted: false },
    MonitorChoice { name: "damon+tuned", options: &["--algorithm", "damon"], budgeted: true },
    MonitorChoice { name: "isotherm", options: &["--algorithm", "isotherm"], budgeted: true },
];

impl MonitorChoice {
    /// All options, at a budget such as `1%`.
    pub fn arguments(&self, budget: &str) -> Vec<String> {
        let budget = if self.budgeted { budget } else { "none" };
        self.options.iter().copied().chain(["--cpu-budget", budget]).map(str::to_owned).collect()
    }
}
