use super::*;
use std::process::{Child, Command};

const UID: u32 = 7;

/// A process that only lives.
struct Process(Child);

impl Process {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn id(&self) -> u32 {
        self.0.id()
    }

    fn calls(&self) -> Caller {
        Caller::Process { process: Arc::new(PidFd::open(self.id()).unwrap()), uid: UID }
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn shared(guests: Vec<GuestSpec>) -> Shared {
    Shared {
        slots: Mutex::new(guests.iter().map(Slot::named).enumerate().collect()),
        config: HostConfig { guests, ..HostConfig::default() },
        stop: Arc::default(),
        calls: AtomicUsize::new(0),
        trouble: Trouble::default(),
        pinned: Arc::default(),
    }
}

fn problems(shared: &Shared) -> Vec<(String, Option<String>)> {
    shared.slots().iter().map(|(number, slot)| (slot.name(*number), slot.shown_problem())).collect()
}

#[test]
fn what_was_wrong_with_one_caller_stays_when_another_calls() {
    let shared = shared(Vec::new());
    let (mut one, two) = (Process::start(), Process::start());
    // Neither has memory that could be a guest's.
    for process in [&one, &two] {
        let number = shared.slot_of(&process.calls(), None).unwrap();
        assert!(shared.guest(number, None).is_err());
    }
    let known = problems(&shared);
    assert_eq!(known.len(), 2);
    for ((name, problem), process) in known.iter().zip([&one, &two]) {
        assert_eq!(*name, format!("pid{}", process.id()));
        assert!(problem.as_ref().is_some_and(|p| p.contains("memory-backend-memfd")), "{problem:?}");
    }
    // Whoever calls again keeps its place, and who has ended loses it to the next.
    assert_eq!(shared.slot_of(&one.calls(), None).unwrap(), 0);
    one.end();
    shared.slot_of(&Process::start().calls(), None).unwrap();
    let known = problems(&shared);
    assert_eq!((known.len(), known[0].0.clone()), (2, format!("pid{}", two.id())));
}

#[test]
fn of_too_many_that_fail_the_first_gives_way() {
    let shared = shared(Vec::new());
    let (first, next) = (Process::start(), Process::start());
    shared.slot_of(&first.calls(), None).unwrap();
    // All others are in order, as far as is known.
    let place = || Slot { problem: None, uid: Some(UID), ..Slot::named(&GuestSpec::default()) };
    let process = Arc::new(PidFd::open(first.id()).unwrap());
    let others = (1..MOST_OF_USER).map(|n| (n, Slot { process: Some(Arc::clone(&process)), ..place() }));
    shared.slots().extend(others);
    let refused = shared.slot_of(&next.calls(), None).unwrap_err();
    assert!(refused.why.contains("user 7 has 256 guests"), "{}", refused.why);
    shared.say(0, "no memory".into());
    assert_eq!(shared.slot_of(&next.calls(), None).unwrap(), MOST_OF_USER);
    assert_eq!(shared.slots().len(), MOST_OF_USER);
}

#[test]
fn a_vmm_that_has_ended_is_a_problem() {
    let (mut named, mut caller) = (Process::start(), Process::start());
    let shared = shared(vec![GuestSpec { pid: Some(named.id()), ..GuestSpec::default() }]);
    shared.slot_of(&caller.calls(), None).unwrap();
    assert!(problems(&shared).iter().all(|(_, problem)| problem.is_none()));
    shared.say(0, "what was wrong before".into());
    named.end();
    caller.end();
    let known = problems(&shared);
    let of = |n: usize| known[n].1.as_deref().unwrap();
    assert!(of(0).contains(&format!("process {} has ended", named.id())) && of(0).contains("pid of the new VMM"));
    assert!(of(1).contains(&format!("process {} has ended", caller.id())), "{}", of(1));
}

#[test]
fn no_two_guests_have_the_same_name() {
    let caller = Process::start();
    let name = format!("pid{}", caller.id());
    let shared = shared(vec![
        GuestSpec { name: Some(name.clone()), socket: Some("/a".into()), ..GuestSpec::default() },
        GuestSpec { name: Some(format!("{name}.2")), socket: Some("/b".into()), ..GuestSpec::default() },
    ]);
    shared.slot_of(&caller.calls(), None).unwrap();
    assert_eq!(problems(&shared)[2].0, format!("{name}.3"));
}
