//! Whether the kernel clears pages when it hands them out or takes them back.

use crate::roots::Roots;
use std::fmt;

/// When the kernel writes zeros to pages of its own accord. A page that is written to is populated in the host again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clearing {
    /// On allocation (`init_on_alloc`): isolating a page by allocating it costs a clearing. Debian's default.
    pub on_alloc: bool,
    /// On freeing (`init_on_free`, or page poisoning): giving an isolated page back makes the host populate it again.
    pub on_free: bool,
}

impl Clearing {
    /// Tells it from the kernel's command line and configuration. Where neither says, clearing on allocation is assumed, which
    /// costs time if it is wrong, and none on freeing.
    pub fn read(roots: &Roots) -> Self {
        let line = roots.read("/proc/cmdline").unwrap_or_default();
        let release = roots.line("/proc/sys/kernel/osrelease").unwrap_or_default();
        let config = roots.read(format!("/boot/config-{release}")).ok();
        let built_in = |option: &str| config.as_ref().map(|c| c.lines().any(|l| l == format!("{option}=y")));
        let on_alloc = switch(&line, "init_on_alloc").or_else(|| built_in("CONFIG_INIT_ON_ALLOC_DEFAULT_ON"));
        let on_free = switch(&line, "init_on_free").or_else(|| built_in("CONFIG_INIT_ON_FREE_DEFAULT_ON"));
        let poisoned = switch(&line, "page_poison").unwrap_or(false);
        Self { on_alloc: on_alloc.unwrap_or(true), on_free: on_free.unwrap_or(false) || poisoned }
    }
}

impl fmt::Display for Clearing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.on_alloc, self.on_free) {
            (true, true) => "pages are cleared when allocated and when freed",
            (true, false) => "pages are cleared when allocated",
            (false, true) => "pages are cleared when freed",
            (false, false) => "pages are not cleared",
        })
    }
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

    fn of(line: &str, config: &str) -> (bool, bool) {
        let files = [("proc/cmdline", line), ("proc/sys/kernel/osrelease", "6.1.0\n"), ("boot/config-6.1.0", config)];
        let c = Clearing::read(&tree(&files).roots);
        (c.on_alloc, c.on_free)
    }

    #[test]
    fn the_command_line_beats_the_configuration() {
        let debian = "CONFIG_INIT_ON_ALLOC_DEFAULT_ON=y\n# CONFIG_INIT_ON_FREE_DEFAULT_ON is not set\n";
        assert_eq!(of("quiet\n", debian), (true, false));
        assert_eq!(of("quiet init_on_alloc=0\n", debian), (false, false));
        assert_eq!(of("init_on_alloc=0 init_on_alloc=on init_on_free=Y", ""), (true, true));
        assert_eq!(of("init_on_alloc=off page_poison=1", ""), (false, true));
        assert_eq!(of("quiet -- init_on_free=1", "# nothing\n"), (false, false));
        assert_eq!(of("init_on_alloc=maybe", debian), (true, false));
    }

    #[test]
    fn where_nothing_tells_the_dearer_is_assumed() {
        let c = Clearing::read(&tree(&[]).roots);
        assert!(c.on_alloc && !c.on_free);
        assert_eq!(c.to_string(), "pages are cleared when allocated");
    }
}
