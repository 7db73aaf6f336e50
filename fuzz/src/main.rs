//! One program for all targets, for `cargo afl fuzz ... -- isotherm-fuzz TARGET`. Without AFL it takes one input on its
//! standard input.

/// Readers of what others wrote, by the names of their folders below `corpus/`.
const TARGETS: [(&str, fn(&[u8])); 12] = [
    ("records", isotherm_record::fuzz::every_format),
    ("frames", isotherm_record::fuzz::payload),
    ("hint", isotherm_hint::fuzz::stream),
    ("hint_sealed", isotherm_hint::fuzz::sealed),
    ("hint_session", isotherm_hint::fuzz::session),
    ("mtree", isotherm_hint::fuzz::memory_map),
    ("traces", isotherm_sim::fuzz::traces),
    ("http", isotherm_daemon::fuzz::http),
    ("files", isotherm_compat::fuzz::operations),
    ("schemes", isotherm::fuzz::schemes),
    ("rules", isotherm::fuzz::rules),
    ("control", isotherm::fuzz::control),
];

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some((_, target)) = TARGETS.iter().find(|(known, _)| *known == name) else {
        let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
        eprintln!("isotherm-fuzz: no target '{name}'; there are {}", names.join(", "));
        std::process::exit(2);
    };
    afl::fuzz!(|data: &[u8]| target(data));
}
