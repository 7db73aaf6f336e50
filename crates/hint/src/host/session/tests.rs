use super::*;
use crate::host::bucket::Bucket;
use crate::host::layout::LayoutPart;
use crate::protocol::MemoryArea;
use proptest::prelude::*;
use std::cell::RefCell;
use std::io;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;

/// Memory that only remembers what was dropped.
#[derive(Default)]
struct Fake {
    dropped: RefCell<Vec<(u64, u64)>>,
    fails: bool,
}

impl Memory for Fake {
    fn layout(&self, areas: &[MemoryArea]) -> Result<Layout, MemoryError> {
        Ok(Layout::of_guest(areas, SIZE)?)
    }

    fn punch(&self, piece: &LayoutPart) -> io::Result<()> {
        if self.fails {
            return Err(io::Error::from_raw_os_error(28));
        }
        self.dropped.borrow_mut().push((piece.offset, piece.addr.len()));
        Ok(())
    }
}

fn hello() -> Hello {
    let area = |start, end| MemoryArea { range: AddrRange::new(start, end), kind: MemoryKind::Ram };
    Hello {
        version: VERSION,
        session: 9,
        guest_id: [0; 16],
        page_size: 4096,
        block_size: 2 * MIB,
        memory: vec![area(0x1000, 0xa0000), area(MIB, SIZE)],
        agent: "test".into(),
    }
}

struct World {
    session: HostSession,
    allowance: Allowance,
    memory: Fake,
}

impl World {
    fn new(bytes_per_second: u64) -> Self {
        let allowance = Allowance::new(Bucket::new(bytes_per_second, bytes_per_second, 0), 0);
        let mut world = Self { session: HostSession::new(bytes_per_second), allowance, memory: Fake::default() };
        let welcome = world.session.hello(&hello(), 77, &world.memory);
        assert!(matches!(welcome.answer, Some(Message::Welcome { session: 9, token: 77, .. })), "{welcome:?}");
        world
    }

    fn say(&mut self, message: Message, now_ns: u64) -> Outcome {
        self.session.message(message, &mut self.allowance, now_ns, &self.memory)
    }

    fn report(&mut self, batch: u64, ranges: &[(u64, u64)]) -> Outcome {
        let ranges = ranges.iter().map(|(a, b)| AddrRange { start: a * MIB, end: b * MIB }).collect();
        self.say(Message::Report { token: 77, batch, ranges }, 0)
    }

    fn dropped(&self) -> Vec<(u64, u64)> {
        self.memory.dropped.borrow().iter().map(|(offset, len)| (offset / MIB, len / MIB)).collect()
    }
}

fn verdicts(outcome: &Outcome) -> &[Verdict] {
    match &outcome.answer {
        Some(Message::Ack { verdicts, .. }) => verdicts,
        other => panic!("{other:?}"),
    }
}

#[test]
fn good_ranges_are_dropped_and_bad_ones_are_not() {
    let mut world = World::new(0);
    let outcome = world.report(1, &[(2, 4), (3, 5), (4, 8), (6, 8), (0, 2), (62, 66), (10, 12)]);
    use Verdict::{Dropped, Misaligned, Outside, Overlapping};
    assert_eq!(verdicts(&outcome), [Dropped, Misaligned, Dropped, Overlapping, Outside, Outside, Dropped]);
    assert_eq!((outcome.dropped, outcome.refused), (8 * MIB, 4));
    assert_eq!(world.dropped(), [(2, 2), (4, 4), (10, 2)]);
}

#[test]
fn a_batch_is_acted_upon_once() {
    let mut world = World::new(0);
    let first = world.report(1, &[(2, 4)]);
    let again = world.report(1, &[(2, 4)]);
    assert_eq!((first.answer.clone(), again.dropped), (again.answer, 0));
    // Others under the same number are not looked at.
    assert_eq!(world.report(1, &[(8, 10)]).answer, first.answer);
    world.report(5, &[(4, 6)]);
    assert_eq!(world.report(3, &[(12, 14)]), Outcome::default(), "an old one");
    assert_eq!(world.report(1, &[(2, 4)]), Outcome::default());
    assert_eq!(world.dropped(), [(2, 2), (4, 2)]);
}

#[test]
fn what_was_reported_before_the_welcome_is_void() {
    let mut world = World::new(0);
    let ranges = vec![AddrRange::new(2 * MIB, 4 * MIB)];
    assert_eq!(world.say(Message::Report { token: 76, batch: 1, ranges: ranges.clone() }, 0), Outcome::default());
    let mut new = HostSession::new(0);
    assert_eq!(
        new.message(Message::Report { token: 77, batch: 1, ranges }, &mut world.allowance, 0, &world.memory),
        Outcome::default()
    );
    // The same session again gets another token, and only that counts.
    world.session.hello(&hello(), 78, &world.memory);
    assert_eq!(world.report(1, &[(2, 4)]), Outcome::default());
    assert_eq!(world.dropped(), []);
}

#[test]
fn too_much_at_a_time_waits() {
    let mut world = World::new(4 * MIB);
    let outcome = world.report(1, &[(2, 4), (4, 6), (6, 8), (8, 10)]);
    use Verdict::{Dropped, NotNow};
    assert_eq!(verdicts(&outcome), [Dropped, Dropped, NotNow, NotNow]);
    let Some(Message::Ack { wait_ms, .. }) = outcome.answer else { panic!() };
    assert_eq!((wait_ms, outcome.refused, outcome.put_off), (500, 0, 2));
    let ranges = vec![AddrRange::new(6 * MIB, 8 * MIB)];
    let later = world.say(Message::Report { token: 77, batch: 2, ranges }, 500_000_000);
    assert_eq!(verdicts(&later), [Dropped]);
}

#[test]
fn a_range_above_the_burst_is_paid_for_afterwards() {
    let mut world = World::new(4 * MIB);
    let mut at = |batch, seconds: u64| {
        let ranges = vec![AddrRange::new(2 * MIB, 34 * MIB)];
        let outcome = world.say(Message::Report { token: 77, batch, ranges }, seconds * 1_000_000_000);
        let Some(Message::Ack { wait_ms, verdicts, .. }) = outcome.answer else { panic!() };
        (verdicts[0], wait_ms)
    };
    use Verdict::{Dropped, NotNow};
    assert_eq!(at(1, 0), (Dropped, 0));
    // 32 MiB take eight seconds.
    assert_eq!(at(2, 1), (NotNow, 7000));
    assert_eq!(at(3, 8), (Dropped, 0));
    assert_eq!(at(4, 8), (NotNow, 8000));
}

#[test]
fn abuse_ends_the_connection() {
    let mut world = World::new(0);
    let end = (1..100).find_map(|batch| world.report(batch, &[(1, 2)]).closing);
    assert_eq!(end.unwrap().code, ErrorCode::Abuse);
    assert_eq!(world.dropped(), []);
    let mut world = World::new(0);
    let closing = world.say(Message::Greet { version: 1, host: 1 }, 0).closing.unwrap();
    assert_eq!(closing.code, ErrorCode::Malformed);
    let mut world = World::new(0);
    let end = (0..20_000).find_map(|_| world.say(Message::Pong(1), 0).closing);
    assert_eq!(end.unwrap().code, ErrorCode::Abuse);
}

#[test]
fn a_greeting_that_does_not_fit_is_refused() {
    let mut session = HostSession::new(0);
    let memory = Fake::default();
    let mut refused = |change: &dyn Fn(&mut Hello)| {
        let mut hello = hello();
        change(&mut hello);
        let outcome = session.hello(&hello, 1, &memory);
        assert_eq!(outcome.answer, None);
        outcome.closing.unwrap().code
    };
    assert_eq!(refused(&|h| h.version = 1), ErrorCode::Version);
    assert_eq!(refused(&|h| h.memory[1].range.end += MIB), ErrorCode::Memory);
    assert_eq!(refused(&|h| h.memory[1].range.end -= MIB), ErrorCode::Memory);
    assert!(!session.is_open());
}

#[test]
fn a_failure_is_told() {
    let mut world = World::new(0);
    world.memory.fails = true;
    let outcome = world.report(1, &[(2, 4)]);
    assert_eq!(verdicts(&outcome), [Verdict::Failed]);
    assert!(outcome.failure.unwrap().contains("0x200000-0x400000"));
    assert_eq!((outcome.dropped, outcome.refused), (0, 0));
}

proptest! {
    /// Whatever is reported, nothing but whole blocks of the guest's own memory is dropped, and each batch once.
    #[test]
    fn only_its_own_memory_is_dropped(
        reports in prop::collection::vec((0u64..4, 0u64..6, prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 1..20)), 0..40),
    ) {
        let mut world = World::new(0);
        let mut highest = 0;
        for (token, batch, ranges) in reports {
            let near = |n: u64, small: bool| if small { (n % 40) * 2 * MIB } else { n };
            let ranges: Vec<AddrRange> = ranges.into_iter()
                .map(|(a, b, small)| AddrRange { start: near(a, small), end: near(b, small) })
                .filter(|r| r.start < r.end).collect();
            if ranges.is_empty() { continue }
            let before = world.dropped().len();
            let outcome = world.say(Message::Report { token: 75 + token, batch, ranges }, 0);
            let acted = world.dropped().len() > before;
            let may_act = token == 2 && (batch > highest || highest == 0);
            prop_assert!(!acted || may_act);
            if token == 2 && outcome.answer.is_some() { highest = highest.max(batch) }
            prop_assert!(outcome.answer.is_none_or(|a| a.encode().is_ok()));
        }
        for (offset, len) in world.memory.dropped.borrow().iter() {
            prop_assert!(offset % (2 * MIB) == 0 && len % (2 * MIB) == 0 && *offset >= 2 * MIB && offset + len <= SIZE);
        }
    }
}

#[test]
fn many_small_holes_are_put_off() {
    let mut world = World::new(0);
    let holes: Vec<(u64, u64)> = (1..32).map(|block| (2 * block, 2 * block + 2)).collect();
    // A second's worth may come at once; nothing else does within this moment.
    let reports = (1..).find(|batch| verdicts(&world.report(*batch, &holes)).contains(&Verdict::NotNow)).unwrap();
    assert!((100..140).contains(&reports), "{reports}");
    let dropped = world.dropped().len();
    let next = world.report(reports + 1, &holes);
    assert_eq!(verdicts(&next), [Verdict::NotNow; 31]);
    assert!(matches!(next.answer, Some(Message::Ack { wait_ms: 1.., .. })));
    assert_eq!((next.put_off, next.refused, world.dropped().len()), (31, 0, dropped));
    // Whoever does not wait is closed, who does is served.
    let ranges = || holes.iter().map(|(a, b)| AddrRange { start: a * MIB, end: b * MIB }).collect();
    let later = Message::Report { token: 77, batch: reports + 2, ranges: ranges() };
    assert_eq!(verdicts(&world.say(later, 1_000_000_000)), [Verdict::Dropped; 31]);
    let mut closed = None;
    for batch in 1..1000 {
        let message = Message::Report { token: 77, batch: reports + 2 + batch, ranges: ranges() };
        closed = world.say(message, 1_000_000_000).closing;
        if closed.is_some() {
            break;
        }
    }
    assert_eq!(closed.map(|closing| closing.code), Some(ErrorCode::Abuse));
}
