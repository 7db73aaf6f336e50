//! Groups on whose behalf requests are made: the control groups of a machine.

/// Most groups in a trace.
pub(crate) const MOST_GROUPS: usize = 256;

/// Names of groups, and whose each request is: 1 byte a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Groups {
    pub(super) names: Vec<String>,
    pub(super) of_requests: Vec<u8>,
    /// Requests in the source by group; more than are kept where it was sampled.
    pub(super) seen: Vec<u64>,
}

impl Groups {
    /// Whether the trace knows no groups.
    pub const fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Names, in order of appearance.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The group of the request at `at`, by its place among the names; 0 if there are no groups.
    #[inline]
    pub fn of(&self, at: usize) -> u8 {
        self.of_requests.get(at).copied().unwrap_or(0)
    }

    /// Requests in the source on behalf of the group at `group` among the names.
    pub(crate) fn seen(&self, group: usize) -> u64 {
        self.seen.get(group).copied().unwrap_or(0)
    }

    /// The number of a group, a new one if the name is new; `None`: there are too many.
    pub(super) fn number(&mut self, name: &str) -> Option<u8> {
        // Neighbouring requests are often of one group.
        if let Some(&last) = self.of_requests.last()
            && self.names[usize::from(last)] == name
        {
            return Some(last);
        }
        let known = self.names.iter().position(|n| n == name);
        if known.is_none() && self.names.len() < MOST_GROUPS {
            self.names.push(name.to_owned());
            self.seen.push(0);
        }
        let number = known.unwrap_or(self.names.len() - 1);
        (self.names[number] == name).then_some(number as u8)
    }
}
