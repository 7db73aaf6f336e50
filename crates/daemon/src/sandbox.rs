//! How an instance is confined, as it tells it.

use serde::{Deserialize, Serialize};

/// The state of the sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Whether there is one: capabilities given up, no new privileges, a filter of system calls.
    pub on: bool,
    /// The capabilities that are left; without a sandbox they are not reported.
    pub capabilities: Vec<String>,
    /// What Landlock does, or why it does nothing.
    pub landlock: String,
}

impl Sandbox {
    /// For people, in a line.
    pub fn text(&self) -> String {
        if !self.on {
            return "off (--no-sandbox)".into();
        }
        let left = if self.capabilities.is_empty() { "no capability".into() } else { self.capabilities.join(" ") };
        format!("on, with {left}; Landlock {}", self.landlock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_what_is_left() {
        let mut sandbox = Sandbox { on: true, capabilities: Vec::new(), landlock: "full".into() };
        assert_eq!(sandbox.text(), "on, with no capability; Landlock full");
        sandbox.capabilities = vec!["CAP_BPF".into(), "CAP_KILL".into()];
        assert_eq!(sandbox.text(), "on, with CAP_BPF CAP_KILL; Landlock full");
        assert_eq!(Sandbox::default().text(), "off (--no-sandbox)");
    }
}
