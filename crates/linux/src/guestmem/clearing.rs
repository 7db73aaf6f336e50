//! Whether the kernel clears pages when it takes them back.

use crate::roots::Roots;

/// Whether the kernel writes zeros (or a pattern) to pages that are freed, by `init_on_free` or page poisoning: then
/// giving an isolated page back makes the host populate it again. Recognized by the kernel's command line and
/// configuration; where neither says, it does not.
pub fn clears_on_free(roots: &Roots) -> bool {
    let line = roots.read("/proc/cmdline").unwrap_or_default();
    let release = roots.line("/proc/sys/kernel/osrelease").unwrap_or_default();
    let built_in = || {
        let config = roots.read(format!("/boot/config-{release}")).ok()?;
        Some(config.lines().any(|l| l == "CONFIG_INIT_ON_FREE_DEFAULT_ON=y"))
    };
    let on_free = switch(&line, "init_on_free").or_else(built_in).unwrap_or(false);
    on_free || switch(&line, "page_poison").unwrap_or(false)
}

/// A switch of the kernel's command line. The last one counts; what stands behind `--` is init's.
fn switch(line: &str, name: &str) -> Option<bool> {
    let ours = line.split_ascii_whitespace().take_while(|word| *word != "--");
    let values = ours.filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    // As the kernel's kstrtobool reads it: by the first letter, or the second of "on" and "off".
    values
        .filter_map(|v| match v.to_ascii_lowercase().as_bytes() {
            [b'1' | b'y' | b't', ..] | [b'o', b'n', ..] => Some(true),
            [b'0' | b'n' | b'f', ..] | [b'o', b'f', ..] => Some(false),
            _ => None,
        })
        .last()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_tree::tree;

    fn of(line: &str, config: &str) -> bool {
        let files = [("proc/cmdline", line), ("proc/sys/kernel/osrelease", "6.1.0\n"), ("boot/config-6.1.0", config)];
        clears_on_free(&tree(&files).roots)
    }

    #[test]
    fn the_command_line_beats_the_configuration() {
        let debian = "CONFIG_INIT_ON_ALLOC_DEFAULT_ON=y\n# CONFIG_INIT_ON_FREE_DEFAULT_ON is not set\n";
        let hardened = "CONFIG_INIT_ON_FREE_DEFAULT_ON=y\n";
        assert!(!of("quiet\n", debian) && of("quiet\n", hardened));
        assert!(!of("quiet init_on_free=0\n", hardened) && of("init_on_free=0 init_on_free=on\n", hardened));
        assert!(of("init_on_free=Y", "") && of("init_on_alloc=off page_poison=1", ""));
        assert!(!of("quiet -- init_on_free=1", "# nothing\n"));
        assert!(of("init_on_free=maybe", hardened) && !of("init_on_free=maybe", debian));
        assert!(!clears_on_free(&tree(&[]).roots), "nothing tells");
    }
}
