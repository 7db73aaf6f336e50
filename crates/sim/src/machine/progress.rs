//! How far a program has come: it works while nothing is in its way, and waits while a page comes back.

/// The program's own time (work) against the machine's (wall). At speed 1 a ns of work takes a ns.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Up to when the course is known, ns of wall time. Later than now while the program waits.
    at: f64,
    /// Work done by then, ns.
    work: f64,
    /// Work per wall time.
    speed: f64,
    /// Work after which the program is done.
    goal: f64,
    finished: Option<f64>,
    waited: f64,
}

impl Progress {
    /// A program that has just begun and is done after `goal_ns` of work.
    pub const fn new(goal_ns: u64) -> Self {
        Self { at: 0.0, work: 0.0, speed: 1.0, goal: goal_ns as f64, finished: None, waited: 0.0 }
    }

    /// Work done, in whole ns.
    pub const fn work_ns(&self) -> u64 {
        self.work as u64
    }

    /// The first whole ns of work that is not done yet.
    pub(crate) fn next_work_ns(&self) -> u64 {
        self.work.ceil() as u64
    }

    /// When the work is done, if it is.
    pub const fn finished(&self) -> Option<f64> {
        self.finished
    }

    /// Time spent waiting for memory, ns.
    pub(crate) const fn waited_ns(&self) -> u64 {
        self.waited as u64
    }

    /// At what wall time work comes to `work_ns` if nothing gets in its way.
    pub(crate) const fn wall_of(&self, work_ns: u64) -> f64 {
        self.at + ((work_ns as f64 - self.work) / self.speed).max(0.0)
    }

    /// Works undisturbed until `wall`; nothing if that has passed already, or if the program waits beyond it.
    pub fn run_until(&mut self, wall: f64) {
        if wall <= self.at {
            return;
        }
        let done = self.work + (wall - self.at) * self.speed;
        self.note_goal(done);
        (self.at, self.work) = (wall, done);
    }

    /// Works undisturbed until `work_ns` are done.
    pub(crate) fn work_until(&mut self, work_ns: u64) {
        let wall = self.wall_of(work_ns);
        let done = self.work.max(work_ns as f64);
        self.note_goal(done);
        (self.at, self.work) = (wall, done);
    }

    pub fn wait(&mut self, ns: u64) {
        self.lose(ns as f64);
        self.waited += ns as f64;
    }

    pub fn lose(&mut self, ns: f64) {
        self.at += ns;
    }

    /// From now on works at another speed.
    pub(crate) const fn set_speed(&mut self, speed: f64) {
        self.speed = speed;
    }

    fn note_goal(&mut self, done: f64) {
        if self.finished.is_none() && done >= self.goal {
            self.finished = Some(self.at + (self.goal - self.work).max(0.0) / self.speed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undisturbed_work_takes_its_own_time() {
        let mut p = Progress::new(1000);
        p.run_until(400.0);
        assert_eq!((p.work_ns(), p.finished()), (400, None));
        p.run_until(5000.0);
        assert_eq!(p.finished(), Some(1000.0));
    }

    #[test]
    fn waiting_delays_the_rest() {
        let mut p = Progress::new(1000);
        p.work_until(300);
        p.wait(50);
        assert_eq!(p.wall_of(300), 350.0);
        p.run_until(320.0);
        assert_eq!(p.work_ns(), 300, "still waiting");
        p.run_until(2000.0);
        assert_eq!((p.finished(), p.waited_ns()), (Some(1050.0), 50));
    }

    #[test]
    fn speed_counts_from_now_on() {
        let mut p = Progress::new(1000);
        p.run_until(500.0);
        p.set_speed(2.0);
        p.run_until(600.0);
        assert_eq!(p.work_ns(), 700);
        p.run_until(1000.0);
        assert_eq!(p.finished(), Some(750.0));
    }
}
