//! The name that a client asked by.
//!
//! A web page can have its own name resolve to this machine ("DNS rebinding"), and then read from a port here what the
//! browser would otherwise keep from it. What it cannot change is the name that the browser sends.

use std::net::IpAddr;

/// Whether a `Host` header names this machine: by an address, as `localhost`, or by one of `names`. None at all is sent
/// by no browser.
pub(crate) fn names_us(host: Option<&str>, names: &[String]) -> bool {
    let Some(name) = host.map(without_port).filter(|name| !name.is_empty()) else { return true };
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_literal = match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => name.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4()),
    };
    let is_localhost = name.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case("localhost"));
    is_literal || is_localhost || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_names_are_told_from_ours() {
        let names = ["node1".to_owned(), "Node1.example.org".to_owned()];
        let ours = [
            "127.0.0.1",
            "127.0.0.1:9190",
            "10.1.2.3:80",
            "[::1]",
            "[::1]:9190",
            "[2001:db8::1]:1",
            "localhost",
            "LOCALHOST:9190",
            "a.localhost",
            "localhost.",
            "node1:9190",
            "node1.EXAMPLE.org.",
            "",
        ];
        for host in ours {
            assert!(names_us(Some(host), &names), "{host}");
        }
        assert!(names_us(None, &[]));
        let foreign = [
            "evil.example:9190",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "node1.evil.example",
            "evil",
            "[::1].evil.example",
            "[evil]",
            "::1",
            "1.2.3",
            "localhost:80.evil.example",
            "[fe80::1%eth0]",
            ".",
        ];
        for host in foreign {
            assert!(!names_us(Some(host), &names), "{host}");
        }
    }
}
