//! Ways to see accesses.

use super::{Environment, Finding};
use crate::roots::Roots;

/// Asks each source whether it works here.
pub fn probe_sources(roots: &Roots, env: &Environment) -> Vec<Finding> {
    vec![idle(roots), damon(env)]
}

fn idle(roots: &Roots) -> Finding {
    const REMEDY: &str = "use a kernel with CONFIG_IDLE_PAGE_TRACKING=y, or another source";
    if !roots.exists("/sys/kernel/mm/page_idle/bitmap") {
        return Finding::unusable("idle", "the kernel lacks CONFIG_IDLE_PAGE_TRACKING", REMEDY);
    }
    Finding::unusable("idle", "not tried", REMEDY)
}

fn damon(env: &Environment) -> Finding {
    let damon = &env.damon;
    if !damon.present {
        return Finding::unusable(
            "damon",
            "the kernel has no DAMON control files",
            "use a kernel with CONFIG_DAMON_SYSFS and CONFIG_DAMON_VADDR (or CONFIG_DAMON_PADDR), or another source",
        );
    }
    if !damon.users.is_empty() {
        let reason = format!("in use by {}; Isotherm leaves it alone", damon.describe_users());
        return Finding::unusable("damon", reason, "stop its other user, or use another source");
    }
    let has = |name: &str| damon.operations.iter().any(|o| o == name);
    if !damon.operations.is_empty() && !has("vaddr") {
        return Finding::unusable(
            "damon",
            format!("the kernel's DAMON cannot watch processes: it offers {}", damon.operations.join(", ")),
            "use a kernel with CONFIG_DAMON_VADDR, or another source",
        );
    }
    Finding::usable("damon", "the kernel draws the regions")
}
