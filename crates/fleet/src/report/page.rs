//! The report as a page that needs no other file.

use super::account::{Account, TWO_MIN, short_time};
use super::fleet::Fleet;
use super::json::rows_left_out;
use super::text::{percent, size, span};
use super::usage::IDLE;
use crate::input::judge::Inventory;
use isotherm_core::history::times::IDLE_NS;
use isotherm_core::printable::printable;
use isotherm_core::scheme::threshold::ThresholdPolicy;
use isotherm_view::html::{STYLE, escape};
use isotherm_view::plot::fleet::{IdleShare, hosts_svg, idle_svg};
use std::fmt::Write;

/// Parts of the histogram of hosts.
const PARTS: usize = 20;
/// Files that are named one by one.
const NAMED: usize = 100;

const OWN_STYLE: &str = "
#cards { grid-template-columns: repeat(auto-fit, minmax(min(170px, 100%), 1fr)); }
main { display: grid; gap: 18px; margin-top: 22px; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(480px, 100%), 1fr)); gap: 14px; }
.pictures svg { border: 1px solid var(--edge); border-radius: 10px; width: 100%; height: auto; }
section { background: var(--panel); border: 1px solid var(--edge); border-radius: 10px; padding: 14px 18px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
th { text-align: right; color: var(--dim); font-weight: 500; padding: 3px 8px; vertical-align: bottom; }
td { text-align: right; padding: 3px 8px; border-top: 1px solid var(--edge); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; overflow-wrap: anywhere; white-space: normal; }
td .share { display: inline-block; width: 60px; height: 8px; margin-left: 8px; border-radius: 2px; vertical-align: middle;
  background: linear-gradient(90deg, var(--curve) var(--p), var(--edge) var(--p)); }
";

/// The page; `most` jobs and namespaces are listed.
pub fn page(fleet: &Fleet, inventory: &Inventory, most: usize) -> String {
    let total = &fleet.total;
    let mut out = String::from("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width\">\n<title>Memory of a fleet</title>\n");
    let _ = writeln!(out, "<style>{STYLE}{OWN_STYLE}</style>");
    let (hosts, rows, files) = (fleet.hosts.len(), fleet.sums.rows, inventory.files.len());
    let _ = writeln!(
        out,
        "<header><div><h1>Memory that nobody uses, on {hosts} hosts</h1>\
         <p>{}; {rows} rows in {files} files. Means over the time that each host was watched.</p></div></header>",
        escape(&span(fleet))
    );
    out.push_str("<div id=\"cards\">");
    let known = |bytes: Option<f64>| bytes.map_or_else(|| "not known".into(), size);
    let share = |bytes| total.share(bytes).map_or_else(String::new, percent);
    card(&mut out, "resident", &known(total.resident), "");
    let in_use = total.accessed_bytes();
    card(&mut out, "in use within 2m", &known(in_use), &share(in_use));
    for i in [TWO_MIN, TWO_MIN + 3, TWO_MIN + 5] {
        let cold = total.cold_bytes(i);
        let title = format!("idle for {}", short_time(IDLE_NS[i]));
        card(&mut out, &title, &known(cold), &share(cold));
    }
    card(&mut out, "not observable", &known(total.unobservable), &share(total.unobservable));
    out.push_str("</div>\n<main>\n<div class=\"pictures\">\n");
    pictures(&mut out, fleet);
    out.push_str("</div>\n");
    table(
        &mut out,
        "Clusters",
        fleet.clusters.iter().map(|(name, a)| (name.as_deref().unwrap_or("(none)"), a)),
        usize::MAX,
    );
    table(
        &mut out,
        "Namespaces",
        fleet.namespaces.iter().map(|(name, a)| (name.as_deref().unwrap_or("(none)"), a)),
        most,
    );
    table(&mut out, "Jobs with most memory idle for 2 minutes", fleet.jobs_by_cold(TWO_MIN).into_iter(), most);
    agents(&mut out, fleet);
    left_out(&mut out, fleet, inventory);
    out.push_str("</main>\n</html>\n");
    out
}

fn card(out: &mut String, title: &str, value: &str, small: &str) {
    let _ = write!(
        out,
        "<div class=\"card\"><h3>{title}</h3><div class=\"big\">{value} <small>{small}</small></div></div>"
    );
}

fn pictures(out: &mut String, fleet: &Fleet) {
    let idle = |value: &dyn Fn(usize) -> Option<f64>, band: bool| -> Vec<IdleShare> {
        let band = |i| band.then(|| Some((fleet.host_quantile(i, 0.05)?, fleet.host_quantile(i, 0.95)?))).flatten();
        (TWO_MIN - 1..IDLE)
            .map(|i| IdleShare { label: short_time(IDLE_NS[i]), share: value(i), band: band(i) })
            .collect()
    };
    let cold = idle(&|i| fleet.total.cold_share(i), true);
    out.push_str(&idle_svg(
        "Memory by idle time",
        "of what is resident; the band holds 90 % of the hosts",
        &cold,
        None,
    ));
    let back = idle(&|i| fleet.total.promoted_share(i), false);
    let subtitle = "a minute, of what is in use: what paging out at that age would bring back";
    out.push_str(&idle_svg("Used again after so long", subtitle, &back, Some(ThresholdPolicy::default().rate)));
    let mut counts = vec![0; PARTS];
    for share in fleet.hosts.iter().filter_map(|host| host.cold[TWO_MIN]) {
        counts[((share * PARTS as f64) as usize).min(PARTS - 1)] += 1;
    }
    out.push_str(&hosts_svg(
        "Hosts by what is idle for 2 minutes",
        "number of hosts over the share of their memory",
        &counts,
    ));
}

fn table<'a>(out: &mut String, title: &str, parts: impl Iterator<Item = (&'a str, &'a Account)>, most: usize) {
    let parts: Vec<_> = parts.collect();
    let _ = write!(out, "<section><h2>{title}</h2><table><tr><th>name<th>hosts<th>resident<th>in use<th>idle 2m<th>");
    out.push_str("<th>idle 15m<th>idle 1h<th>back a minute at 2m<th>not observable</tr>\n");
    for (name, account) in parts.iter().take(most) {
        let bytes = |value: Option<f64>| value.map_or_else(|| "?".to_owned(), size);
        let bar = account.cold_share(TWO_MIN).map_or_else(String::new, |share| {
            format!("{}<span class=\"share\" style=\"--p:{:.1}%\"></span>", percent(share), share * 100.0)
        });
        let back =
            account.promoted_share(TWO_MIN).map_or_else(|| "?".to_owned(), |share| format!("{:.3} %", share * 100.0));
        let _ = writeln!(
            out,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{bar}<td>{}<td>{}<td>{back}<td>{}</tr>",
            escape(&printable(name)),
            account.hosts,
            bytes(account.resident),
            bytes(account.accessed_bytes()),
            bytes(account.cold_bytes(TWO_MIN)),
            bytes(account.cold_bytes(TWO_MIN + 3)),
            bytes(account.cold_bytes(TWO_MIN + 5)),
            account.share(account.unobservable).map_or_else(|| "?".to_owned(), percent)
        );
    }
    out.push_str("</table>");
    if parts.len() > most {
        let _ = write!(out, "<p>and {} more</p>", parts.len() - most);
    }
    out.push_str("</section>\n");
}

fn agents(out: &mut String, fleet: &Fleet) {
    out.push_str("<section><h2>Agents</h2><table><tr><th>kernel<th>isotherm<th>source<th>hosts<th>watching takes<th>programs lose</tr>\n");
    let share = |share: Option<f64>| {
        share.map_or_else(|| "not known".to_owned(), |share| format!("{:.2} % of a core", share * 100.0))
    };
    for ((kernel, version, source), agents) in &fleet.agents {
        let [kernel, version, source] = [kernel, version, source].map(|text| escape(&printable(text)));
        let (cpu, cost) = (share(agents.cpu_share()), share(agents.cost_share()));
        let _ = writeln!(out, "<tr><td>{kernel}<td>{version}<td>{source}<td>{}<td>{cpu}<td>{cost}</tr>", agents.hosts);
    }
    out.push_str("</table></section>\n");
}

fn left_out(out: &mut String, fleet: &Fleet, inventory: &Inventory) {
    if inventory.left_out.is_empty() && fleet.set_back.is_empty() {
        return;
    }
    let (files, rows) = (inventory.left_out.len(), rows_left_out(fleet, inventory));
    let _ = write!(out, "<section><h2>Left out: {files} files, {rows} rows that are known of</h2><table>");
    for file in inventory.left_out.iter().take(NAMED) {
        let (path, why) = (inventory.name_of(&file.path), file.fault.to_string());
        let _ = writeln!(out, "<tr><td>{}<td>{}</tr>", escape(&printable(&path)), escape(&printable(&why)));
    }
    for (host, rows) in fleet.set_back.iter().take(NAMED) {
        let host = escape(&printable(host));
        let _ = writeln!(
            out,
            "<tr><td>{host}<td>{rows} rows are of a time that other rows cover, too: a clock was set back</tr>"
        );
    }
    out.push_str("</table></section>\n");
}
