//! The report for programs: a line for the whole, for each cluster, namespace, job and kind of agent, for hosts, and for
//! each file that was left out.

use super::account::Account;
use super::fleet::{Agents, Fleet, Sums};
use crate::input::judge::Inventory;
use isotherm_core::history::times::IDLE_NS;
use serde_json::{Map, Value, json};

/// Quantiles over hosts.
const QUANTILES: [(&str, f64); 5] = [("p5", 0.05), ("p25", 0.25), ("p50", 0.5), ("p75", 0.75), ("p95", 0.95)];

/// All lines; the one of the whole comes first.
pub fn lines(fleet: &Fleet, inventory: &Inventory) -> Vec<Value> {
    let mut all = vec![total(fleet, inventory)];
    let part = |kind: &str, name: Value, account: &Account| {
        let mut line = figures(account);
        line.insert("kind".to_owned(), kind.into());
        line.insert("name".to_owned(), name);
        Value::Object(line)
    };
    all.extend(fleet.clusters.iter().map(|(name, account)| part("cluster", json!(name), account)));
    all.extend(fleet.namespaces.iter().map(|(name, account)| part("namespace", json!(name), account)));
    all.extend(fleet.jobs_by_cold(super::account::TWO_MIN).iter().map(|(name, job)| part("job", json!(name), job)));
    all.push(hosts(fleet));
    all.extend(fleet.agents.iter().map(|((kernel, version, source), agents)| {
        json!({"kind": "agents", "kernel": kernel, "isotherm_version": version, "source": source, "hosts": agents.hosts,
            "watched_s": agents.watched_s, "cpu_share": agents.cpu_share(), "target_cost_share": agents.cost_share()})
    }));
    all.extend(inventory.left_out.iter().map(|out| {
        json!({"kind": "left_out", "file": inventory.name_of(&out.path), "code": out.fault.code(), "why": out.fault.to_string(), "rows": out.rows})
    }));
    all.extend(fleet.set_back.iter().map(|(host, rows)| {
        json!({"kind": "left_out", "host": host, "code": "clock_set_back", "rows": rows,
            "why": "windows of a time that other windows of the machine cover, too"})
    }));
    all
}

fn total(fleet: &Fleet, inventory: &Inventory) -> Value {
    let mut line = figures(&fleet.total);
    let bytes: u64 = inventory.files.iter().map(|file| file.bytes).sum();
    let of_files =
        |field: &str, value: Value, line: &mut Map<String, Value>| drop(line.insert(field.to_owned(), value));
    of_files("kind", "total".into(), &mut line);
    of_files("rows", fleet.sums.rows.into(), &mut line);
    of_files("hosts", fleet.hosts.len().into(), &mut line);
    of_files("files", inventory.files.len().into(), &mut line);
    of_files("file_bytes", bytes.into(), &mut line);
    of_files("files_left_out", inventory.left_out.len().into(), &mut line);
    of_files("rows_left_out", rows_left_out(fleet, inventory).into(), &mut line);
    of_files("begin_s", json!(fleet.begin_s), &mut line);
    of_files("end_s", json!(fleet.begin_s.map(|_| fleet.end_s)), &mut line);
    of_files("watched_s", fleet.watched_s.into(), &mut line);
    of_files("sums", sums(&fleet.sums), &mut line);
    Value::Object(line)
}

/// As far as they are known.
pub fn rows_left_out(fleet: &Fleet, inventory: &Inventory) -> u64 {
    inventory.left_out.iter().filter_map(|out| out.rows).sum::<u64>() + fleet.set_back.values().sum::<u64>()
}

fn sums(sums: &Sums) -> Value {
    // Beyond 2^64 a sum is given as its nearest floating point number.
    let number = |n: u128| u64::try_from(n).map_or_else(|_| json!(n as f64), |n| json!(n));
    let list = |list: &[u128]| list.iter().map(|n| number(*n)).collect::<Vec<_>>();
    json!({"resident_bytes": number(sums.resident), "unobservable_bytes": number(sums.unobservable),
        "accessed_bytes": number(sums.accessed), "cold_bytes": list(&sums.cold), "promoted_bytes": list(&sums.promoted)})
}

/// Means over time of a part of the fleet.
fn figures(account: &Account) -> Map<String, Value> {
    let bytes = |value: f64| value.round();
    let by_idle: Vec<Value> = IDLE_NS
        .iter()
        .enumerate()
        .map(|(i, ns)| {
            json!({"for_ns": ns, "bytes": account.cold_bytes(i).map(bytes), "share": account.cold_share(i),
                "known_share": account.known_share(i), "promoted_share_per_min": account.promoted_share(i)})
        })
        .collect();
    let value = json!({"hosts": account.hosts, "resident_bytes": account.resident.map(bytes), "swapped_bytes": account.swapped.map(bytes),
        "unobservable_bytes": account.unobservable.map(bytes), "accessed_bytes": account.accessed_bytes().map(bytes), "cold": by_idle});
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn hosts(fleet: &Fleet) -> Value {
    let by_idle: Vec<Value> = IDLE_NS
        .iter()
        .enumerate()
        .map(|(i, ns)| {
            let quantiles = QUANTILES.iter().map(|(name, p)| ((*name).to_owned(), json!(fleet.host_quantile(i, *p))));
            let mut map: Map<String, Value> = quantiles.collect();
            map.insert("for_ns".to_owned(), json!(ns));
            map.insert(
                "known_hosts".to_owned(),
                fleet.hosts.iter().filter(|host| host.cold[i].is_some()).count().into(),
            );
            Value::Object(map)
        })
        .collect();
    json!({"kind": "hosts", "hosts": fleet.hosts.len(), "cold_share": by_idle})
}

impl Agents {
    /// Of a core, what watching took; `None`: not known.
    pub fn cpu_share(&self) -> Option<f64> {
        (self.cpu_known_s > 0).then(|| self.cpu_us as f64 / 1e6 / self.cpu_known_s as f64)
    }

    /// Of a core, what that cost those watched; `None`: not known.
    pub fn cost_share(&self) -> Option<f64> {
        (self.cost_known_s > 0).then(|| self.cost_us as f64 / 1e6 / self.cost_known_s as f64)
    }
}
