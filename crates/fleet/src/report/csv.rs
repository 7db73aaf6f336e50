//! The report as a table of comma-separated values: a line for the whole, each cluster, namespace and job.

use super::account::{Account, TWO_MIN, short_time};
use super::fleet::Fleet;
use isotherm_core::history::times::IDLE_NS;
use std::fmt::Write;

/// All of it, with a header.
pub fn csv(fleet: &Fleet) -> String {
    let mut out = "kind,name,hosts,resident_bytes,swapped_bytes,unobservable_bytes,accessed_bytes".to_owned();
    let times: Vec<String> = IDLE_NS[1..].iter().map(|ns| short_time(*ns)).collect();
    for time in &times {
        let _ = write!(out, ",cold_{time}_bytes");
    }
    for time in &times {
        let _ = write!(out, ",promoted_{time}_share_per_min");
    }
    out.push('\n');
    line(&mut out, "total", "", &fleet.total);
    for (name, account) in &fleet.clusters {
        line(&mut out, "cluster", name.as_deref().unwrap_or_default(), account);
    }
    for (name, account) in &fleet.namespaces {
        line(&mut out, "namespace", name.as_deref().unwrap_or_default(), account);
    }
    for (name, account) in fleet.jobs_by_cold(TWO_MIN) {
        line(&mut out, "job", name, account);
    }
    out
}

/// What is not known is an empty field.
fn line(out: &mut String, kind: &str, name: &str, account: &Account) {
    let _ = write!(out, "{kind},{},{}", quoted(name), account.hosts);
    let bytes = |bytes: Option<f64>| bytes.map_or_else(String::new, |bytes| format!("{bytes:.0}"));
    let share = |share: Option<f64>| share.map_or_else(String::new, |share| format!("{share:.6}"));
    let sizes = [account.resident, account.swapped, account.unobservable, account.accessed_bytes()];
    let fields = sizes.map(bytes).into_iter();
    let fields = fields.chain((1..IDLE_NS.len()).map(|i| bytes(account.cold_bytes(i))));
    for field in fields.chain((1..IDLE_NS.len()).map(|i| share(account.promoted_share(i)))) {
        out.push(',');
        out.push_str(&field);
    }
    out.push('\n');
}

/// Names may hold anything.
fn quoted(name: &str) -> String {
    // What a table program would take for a formula is none.
    let name = if name.starts_with(['=', '+', '-', '@']) { format!("'{name}") } else { name.to_owned() };
    if name.contains([',', '"', '\n', '\r']) { format!("\"{}\"", name.replace('"', "\"\"")) } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_data() {
        assert_eq!(quoted("a/b"), "a/b");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("=1+1"), "'=1+1");
    }

    #[test]
    fn every_line_has_the_columns_of_the_header_and_unknown_is_empty() {
        let mut fleet = Fleet::default();
        fleet.jobs.insert("x".to_owned(), Account { resident: Some(5.0), ..Account::default() });
        let text = csv(&fleet);
        let columns: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(columns, [7 + 30; 3]);
        assert!(text.lines().next().unwrap().contains(",cold_1s_bytes,") && text.contains(",cold_2m_bytes,"), "{text}");
        assert!(text.lines().last().unwrap().starts_with("job,x,0,5,,,,,"), "{text}");
    }
}
