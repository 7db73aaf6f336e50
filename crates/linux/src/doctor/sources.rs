//! Ways to see accesses.

use super::Finding;
use crate::facts::{Environment, Lockdown};
use crate::roots::Roots;
use crate::source::{idle::IdleSource, pagetable::PageTableReader, refs};

/// Asks each source whether it works here. `pagetable` and `refs` watch pages of this process while it touches some and
/// leaves others alone.
pub(crate) fn probe_sources(roots: &Roots, env: &Environment) -> Vec<Finding> {
    vec![pagetable(env), idle(roots), damon(env), refs()]
}

fn pagetable(env: &Environment) -> Finding {
    match PageTableReader::ready() {
        Ok(reader) => {
            let folios = match reader.no_descriptors() {
                None => "large folios by page descriptors".to_owned(),
                Some(why) => format!("large folios by /proc/kpageflags, which costs more CPU time: {why}"),
            };
            Finding::usable(
                "pagetable",
                format!("self-test passed: saw every touched page of its own, and no other; {folios}"),
            )
        }
        Err(_) if env.lockdown == Lockdown::Confidentiality => Finding::unusable(
            "pagetable",
            "the kernel is locked down (confidentiality) and lets no program read its memory",
            "boot with lockdown=integrity or none, or use another source",
        ),
        Err(e) => Finding::unusable("pagetable", e.reason, e.remedy),
    }
}

fn refs() -> Finding {
    match refs::probe() {
        Ok(()) => Finding::usable("refs", "self-test passed; one mapping is the smallest unit"),
        Err(e) => {
            // The error's text names reason and remedy in this order.
            let text = e.to_string();
            let (reason, remedy) = text.rsplit_once("; ").unwrap_or((&text, "use another source"));
            Finding::unusable("refs", reason, remedy)
        }
    }
}

fn idle(roots: &Roots) -> Finding {
    match IdleSource::probe(roots) {
        Ok(()) => Finding::usable("idle", "self-test passed: saw every touched page of its own, and no other"),
        Err(e) => Finding::unusable("idle", e.reason, e.remedy),
    }
}

fn damon(env: &Environment) -> Finding {
    if let Err((reason, remedy)) = env.damon.obstacle() {
        return Finding::unusable("damon", reason, remedy);
    }
    let has = |name: &str| env.damon.operations.iter().any(|o| o == name);
    if has("paddr") && !has("vaddr") {
        return Finding::usable("damon", "physical memory only (--physical): the kernel lacks CONFIG_DAMON_VADDR");
    }
    Finding::usable("damon", "the kernel draws the regions")
}
