//! Whether anybody has forked: as long as nobody does, nobody new need be looked for.

use crate::roots::Roots;

/// So often in a row the answer is that nobody has.
const MOST_CALM: u32 = 16;

/// What the last looks have found.
#[derive(Debug, Default)]
pub(crate) struct Forks {
    last_pid: Option<u32>,
    /// Looks in a row before which nobody had.
    calm: u32,
}

impl Forks {
    /// Whether nobody has between this look and the last two. One does not do: a pid is given out a moment before its
    /// process can be listed. Now and then the answer is no all the same: whoever was a zombie may have gone, and its pid
    /// may be another's next.
    pub fn are_over(&mut self, roots: &Roots) -> bool {
        let last_pid = roots.last_pid();
        let is_same = last_pid.is_some() && last_pid == self.last_pid;
        self.last_pid = last_pid;
        self.calm = match self.calm + 1 {
            _ if !is_same => 0,
            calm if calm > MOST_CALM => 1,
            calm => calm,
        };
        self.calm > 1
    }
}
