//! The files on a made-up machine, in virtual time.

mod fake;

use super::{LruGen, ROOT, SWITCHES};
use crate::errno::Errno;
use crate::files::Files;
use crate::tree::Inode;
use fake::Fake;
use isotherm_core::keeper::lru_gen::parse;
use proptest::prelude::*;

struct Bed {
    machine: Fake,
    files: LruGen,
}

impl Bed {
    fn new() -> Self {
        let machine = Fake::new();
        machine.group(1, "/");
        machine.group(70, "/app");
        let files = LruGen::own(Box::new(machine.clone()));
        Self { machine, files }
    }

    /// A process of a thousand pages in /app, of which 0 to 99 are in use; three generations were created.
    fn aged() -> Self {
        let bed = Self::new();
        bed.machine.process(5, 70, 1000);
        (3..6).for_each(|seq| {
            assert_eq!(bed.write("lru_gen", &format!("+ 70 0 {seq}\n")), Ok(()));
            bed.machine.wait(1000);
            bed.machine.touch(5, 0..100);
        });
        bed
    }

    fn inode(&self, name: &str) -> Inode {
        let folder = if name.starts_with("lru") { ROOT } else { SWITCHES };
        self.files.lookup(folder, name).unwrap()
    }

    fn read(&self, name: &str) -> String {
        String::from_utf8(self.files.read(self.inode(name)).unwrap()).unwrap()
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Errno> {
        let taken = self.files.write(self.inode(name), text.as_bytes())?;
        assert_eq!(taken, text.len());
        Ok(())
    }

    /// Number and pages of each generation of a group.
    fn shown(&self, id: u32) -> Vec<(u64, u64)> {
        let all = parse(&self.read("lru_gen")).unwrap();
        let group = all.into_iter().find(|group| group.id == id).unwrap();
        group.nodes[0].1.iter().map(|g| (g.seq, g.bytes() >> 12)).collect()
    }
}

#[test]
fn the_folder_holds_what_the_kernels_does() {
    let bed = Bed::new();
    let names = |inode| bed.files.list(inode).unwrap().into_iter().map(|e| e.name).collect::<Vec<_>>();
    assert_eq!(names(SWITCHES), ["enabled", "min_ttl_ms"]);
    let mode = |name| bed.files.attr(bed.inode(name)).unwrap().mode;
    assert_eq!(["enabled", "min_ttl_ms", "lru_gen", "lru_gen_full"].map(mode), [0o644, 0o644, 0o600, 0o400]);
    let size = |name| bed.files.attr(bed.inode(name)).unwrap().size;
    assert_eq!(["enabled", "min_ttl_ms", "lru_gen", "lru_gen_full"].map(size), [4096, 4096, 0, 0]);
    assert_eq!(bed.files.lookup(SWITCHES, "none"), Err(Errno::NoEntry));
    assert_eq!(bed.files.lookup(bed.inode("enabled"), "x"), Err(Errno::NotDir));
    assert_eq!(bed.files.read(SWITCHES), Err(Errno::Invalid));
    assert_eq!(bed.files.attr(99), Err(Errno::NoEntry));
    assert_eq!(bed.files.places().len(), 3);
}

#[test]
fn switches_take_what_the_kernels_take() {
    let bed = Bed::new();
    for (text, shown) in [
        ("0", "0x0000"),
        ("y", "0x0007"),
        ("n\n", "0x0000"),
        ("Yes", "0x0007"),
        ("0x5", "0x0005"),
        ("3\n", "0x0003"),
        ("0xffffffff", "0x0007"),
        ("010", "0x0000"),
        ("+1", "0x0001"),
    ] {
        assert_eq!(bed.write("enabled", text), Ok(()), "{text}");
        assert_eq!(bed.read("enabled").trim_end(), shown, "{text}");
    }
    for text in ["on", "-1", "4294967296", "1 2", "x", "0x", "\n"] {
        assert_eq!(bed.write("enabled", text), Err(Errno::Invalid), "{text:?}");
        assert_eq!(bed.write("min_ttl_ms", text), Err(Errno::Invalid), "{text:?}");
    }
    assert_eq!(bed.read("enabled"), "0x0001\n", "what was refused changes nothing");
    assert_eq!((bed.write("min_ttl_ms", "1000\n"), &*bed.read("min_ttl_ms")), (Ok(()), "1000\n"));
    assert_eq!(bed.write("min_ttl_ms", "y"), Err(Errno::Invalid));
}

#[test]
fn a_group_begins_as_in_the_kernel_with_all_memory_young() {
    let bed = Bed::new();
    bed.machine.process(5, 70, 1000);
    bed.machine.wait(2500);
    assert_eq!(
        bed.read("lru_gen"),
        "memcg     1 /\n node     0\n          0       2500          0           0 \n          1       2500          0           0 \n\
         \x20         2       2500          0           0 \n          3       2500          0           0 \n\
         memcg    70 /app\n node     0\n          0       2500          0           0 \n          1       2500          0           0 \n\
         \x20         2       2500          0           0 \n          3       2500       1000           0 \n"
    );
    assert_eq!(bed.machine.world().looks, 0, "reading walks nothing of groups that nobody ages");
}

#[test]
fn pages_age_and_the_oldest_go() {
    let bed = Bed::aged();
    assert_eq!(bed.shown(70), [(3, 0), (4, 900), (5, 0), (6, 100)]);
    assert_eq!(bed.shown(1).len(), 4, "others are what they were");
    assert_eq!(bed.write("lru_gen", "- 70 0 4 100 300"), Ok(()));
    assert_eq!(bed.machine.present(5), 700);
    assert_eq!(bed.shown(70), [(3, 0), (4, 600), (5, 0), (6, 100)], "an amount leaves the rest where it is");
    assert_eq!(bed.write("lru_gen", "- 70 0 4"), Ok(()));
    assert_eq!(bed.machine.present(5), 100);
    assert_eq!(bed.shown(70), [(5, 0), (6, 100)], "the two youngest remain");
    assert_eq!(bed.write("lru_gen", "- 70 0 4"), Ok(()), "nothing is left to do");
    assert_eq!(bed.write("lru_gen", "- 70 0 5"), Err(Errno::Invalid));
}

#[test]
fn what_was_used_since_the_last_walk_is_spared() {
    let bed = Bed::aged();
    bed.machine.touch(5, 500..600);
    bed.write("lru_gen", "- 70 0 4").unwrap();
    assert_eq!(bed.machine.present(5), 200);
    assert_eq!(bed.shown(70), [(5, 0), (6, 200)]);
}

#[test]
fn errors_are_the_kernels() {
    let bed = Bed::aged();
    for text in
        ["+ 70 0 7", "+ 71 0 6", "+ 70 1 6", "- 70 0 5", "- 70 0 18446744073709551615", "- 70 1 4", "- 7 0 4", ""]
    {
        if !text.is_empty() {
            assert_eq!(bed.write("lru_gen", text), Err(Errno::Invalid), "{text:?}");
        }
    }
    assert_eq!(bed.write("lru_gen", "+ 70 0 6 100 0"), Err(Errno::Range), "four generations, and no force");
    assert_eq!(bed.write("lru_gen", "+ 70 0 5"), Ok(()), "created already");
    assert_eq!(bed.shown(70).last().unwrap().0, 6);
    bed.write("lru_gen", "- 70 0 4").unwrap();
    assert_eq!(bed.write("lru_gen", "+ 70 0 6 100 0"), Ok(()), "two were left");
    assert_eq!(bed.write("lru_gen_full", "+ 70 0 7"), Err(Errno::Invalid));
    // The first that fails ends it; what came before was done.
    assert_eq!(bed.write("lru_gen", "+ 70 0 7; + 70 0 99; + 70 0 8"), Err(Errno::Invalid));
    assert_eq!(bed.shown(70).last().unwrap().0, 8);
}

#[test]
fn swappiness_says_which_kind_goes() {
    let bed = Bed::aged();
    bed.write("lru_gen", "- 70 0 4 0").unwrap();
    assert_eq!((bed.machine.present(5), bed.shown(70)[0].0), (1000, 3), "there are no files");
    bed.machine.world().swappiness = 0;
    bed.write("lru_gen", "- 70 0 4").unwrap();
    assert_eq!(bed.machine.present(5), 1000, "the group's own");
    bed.write("lru_gen", "- 70 0 4 max").unwrap();
    assert_eq!(bed.machine.present(5), 100);
}

#[test]
fn switched_off_generations_are_dropped_and_counted_on() {
    let bed = Bed::aged();
    bed.write("enabled", "0").unwrap();
    assert_eq!(bed.shown(70), [(3, 0), (4, 0), (5, 0), (6, 0)]);
    let looks = bed.machine.world().looks;
    assert_eq!(bed.write("lru_gen", "+ 70 0 6\n- 70 0 5"), Ok(()));
    assert_eq!(bed.machine.world().looks, looks);
    assert_eq!(bed.machine.present(5), 1000);
    bed.write("enabled", "y").unwrap();
    assert_eq!(bed.shown(70).last(), Some(&(7, 1000)), "nothing is known of it any more");
    assert_eq!(bed.write("lru_gen", "- 70 0 5"), Ok(()));
    assert_eq!(bed.machine.present(5), 1000);
}

#[test]
fn without_walks_everything_becomes_older_but_what_is_in_use_stays() {
    let bed = Bed::aged();
    bed.write("enabled", "1").unwrap();
    bed.write("lru_gen", "+ 70 0 6\n+ 70 0 7\n+ 70 0 8").unwrap();
    bed.write("lru_gen", "- 70 0 7").unwrap();
    assert_eq!(bed.machine.present(5), 100);
}

#[test]
fn min_ttl_keeps_what_was_used_within_it() {
    let bed = Bed::aged();
    bed.write("min_ttl_ms", "5000").unwrap();
    bed.write("lru_gen", "- 70 0 4").unwrap();
    assert_eq!(bed.machine.present(5), 1000, "used 3 s ago");
    bed.write("min_ttl_ms", "1500").unwrap();
    bed.write("lru_gen", "- 70 0 4").unwrap();
    assert_eq!(bed.machine.present(5), 100, "not used for 2 s");
}

#[test]
fn shared_memory_stays_and_is_not_tried_for_ever() {
    let bed = Bed::aged();
    bed.machine.world().processes.get_mut(&5).unwrap().shared = (500..1000).collect();
    bed.write("lru_gen", "- 70 0 4").unwrap();
    assert_eq!(bed.machine.present(5), 600);
    assert_eq!(bed.shown(70), [(5, 500), (6, 100)], "what could not go is in the oldest that is left");
}

#[test]
fn what_cannot_be_evicted_keeps_its_generation() {
    let bed = Bed::aged();
    bed.machine.world().no_swap = true;
    assert_eq!(bed.write("lru_gen", "- 70 0 4"), Ok(()), "as in the kernel");
    assert_eq!((bed.machine.present(5), bed.shown(70)[1]), (1000, (4, 900)));
}

#[test]
fn where_nothing_can_be_walked_a_generation_is_refused() {
    let bed = Bed::new();
    bed.machine.world().blind = true;
    assert_eq!(bed.write("lru_gen", "+ 70 0 3"), Err(Errno::Invalid));
    assert_eq!(bed.shown(70).last().unwrap().0, 3);
}

#[test]
fn processes_come_go_and_change_groups() {
    let bed = Bed::aged();
    bed.machine.group(80, "/other");
    bed.machine.process(6, 70, 50);
    assert_eq!(bed.shown(70).last(), Some(&(6, 150)), "a new one is young");
    bed.write("lru_gen", "+ 70 0 6").unwrap();
    assert_eq!(bed.shown(70).last(), Some(&(7, 150)));
    // It moves: the group that it left does not evict it any more.
    bed.machine.world().processes.get_mut(&5).unwrap().group = 80;
    bed.write("lru_gen", "- 70 0 5").unwrap();
    assert_eq!(bed.machine.present(5), 1000);
    assert_eq!(bed.shown(80).last(), Some(&(3, 1000)));
    bed.write("lru_gen", "+ 80 0 3\n+ 80 0 4\n+ 80 0 5\n- 80 0 4").unwrap();
    assert_eq!(bed.machine.present(5), 0, "nothing was used in between");
    // And back, without the other being asked.
    bed.machine.world().processes.get_mut(&5).unwrap().group = 70;
    bed.machine.touch(5, 0..10);
    bed.write("lru_gen", "+ 70 0 7").unwrap();
    assert_eq!(bed.shown(80).iter().map(|(_, pages)| pages).sum::<u64>(), 0);
    bed.machine.world().processes.clear();
    assert_eq!(bed.shown(70).iter().map(|(_, pages)| pages).sum::<u64>(), 0);
    assert_eq!(bed.write("lru_gen", "+ 70 0 8"), Ok(()), "an empty group ages");
}

#[test]
fn a_process_that_moves_is_shown_in_one_group() {
    let bed = Bed::aged();
    bed.machine.group(80, "/other");
    for (from, to) in [(70, 80), (80, 70)] {
        bed.machine.world().processes.get_mut(&5).unwrap().group = to;
        let sum = |id| bed.shown(id).iter().map(|(_, pages)| pages).sum::<u64>();
        assert_eq!((sum(from), sum(to)), (0, 1000));
        assert_eq!(bed.shown(to).last().unwrap().1, 1000, "of what age it is is not known there");
    }
}

#[test]
fn a_group_that_goes_away_is_unknown_and_its_number_begins_anew() {
    let bed = Bed::aged();
    assert!(bed.read("lru_gen").contains("/app"));
    bed.machine.world().groups.remove(&70);
    assert_eq!(bed.write("lru_gen", "+ 70 0 6"), Err(Errno::Invalid));
    assert_eq!(bed.write("lru_gen", "- 70 0 4"), Err(Errno::Invalid));
    assert!(!bed.read("lru_gen").contains("/app"));
    bed.machine.group(70, "/new");
    assert_eq!(bed.shown(70).last().unwrap().0, 3);
    // Also where nobody has read meanwhile.
    bed.write("lru_gen", "+ 70 0 3").unwrap();
    bed.machine.group(70, "/newer");
    assert_eq!(bed.write("lru_gen", "+ 70 0 4"), Err(Errno::Invalid));
}

#[test]
fn the_full_form_shows_four_generations_and_the_last_walk() {
    let bed = Bed::aged();
    bed.write("lru_gen", "- 70 0 4").unwrap();
    let text = bed.read("lru_gen_full");
    let app: Vec<&str> = text[text.find("/app").unwrap()..].lines().collect();
    assert_eq!(app.len(), 2 + 4 * 6);
    assert!(app[2].starts_with("          3 ") && app[2].ends_with("          0x          0x"), "{text}");
    assert!(app[14].starts_with("          5 ") && app[14].ends_with("          0           0 "), "{text}");
    assert_eq!(app[25], "                             1000T        100Y          0x          0x");
    assert!(!text[..text.find("/app").unwrap()].contains('T'), "no walk yet");
}

#[test]
fn a_read_of_many_groups_is_bounded() {
    let bed = Bed::new();
    for id in 100..1100 {
        bed.machine.group(id, &format!("/g{id}"));
        bed.machine.process(id, id, 1);
        bed.write("lru_gen", &format!("+ {id} 0 3")).unwrap();
    }
    bed.machine.world().look_ns = 10_000_000;
    bed.machine.world().looks = 0;
    assert_eq!(bed.read("lru_gen").lines().filter(|line| line.starts_with("memcg")).count(), 1002);
    let looks = bed.machine.world().looks;
    assert!((5..=12).contains(&looks), "{looks}");
    // The others come next.
    (0..150).for_each(|_| _ = bed.read("lru_gen"));
    assert!(bed.machine.world().looks >= 1000);
}

#[test]
fn generations_are_kept_of_so_many_groups() {
    let bed = Bed::new();
    for id in 100..100 + 4096 + 2 {
        bed.machine.group(id, &format!("/g{id}"));
        bed.machine.wait(1);
        bed.write("lru_gen", &format!("+ {id} 0 3")).unwrap();
    }
    assert_eq!(bed.shown(100).last().unwrap().0, 3, "the first was dropped");
    assert_eq!(bed.shown(102).last().unwrap().0, 4);
}

fn part() -> impl Strategy<Value = String> {
    let command = ("[+-]", 69u32..72, 0u32..2, 0u64..12, prop::option::of(0u32..250), prop::option::of(0u64..2000));
    let command = command.prop_map(|(letter, memcg, node, seq, swappiness, last)| {
        let more = swappiness.map(|s| format!(" {s}{}", last.map(|l| format!(" {l}")).unwrap_or_default()));
        format!("{letter} {memcg} {node} {seq}{}", more.unwrap_or_default())
    });
    prop_oneof![8 => command, 1 => ".*"]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn whatever_is_written_the_text_stays_in_form(
        writes in prop::collection::vec((prop::collection::vec(part(), 1..4), 0u8..10, 0u64..1000), 1..20),
    ) {
        let bed = Bed::new();
        bed.machine.process(5, 70, 1000);
        let mut before = 3;
        for (parts, other, used) in writes {
            match other {
                0 => _ = bed.write("enabled", &parts[0]),
                1 => _ = bed.write("min_ttl_ms", &used.to_string()),
                2 => _ = bed.write("enabled", "y"),
                _ => _ = bed.write("lru_gen", &parts.join(";")),
            }
            bed.machine.wait(used);
            bed.machine.touch(5, 0..used);
            for name in ["lru_gen", "lru_gen_full"] {
                prop_assert_eq!(parse(&bed.read(name)).unwrap().len(), 2);
            }
            let shown = bed.shown(70);
            let numbers: Vec<u64> = shown.iter().map(|(seq, _)| *seq).collect();
            prop_assert!((2..=4).contains(&numbers.len()), "{:?}", numbers);
            prop_assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{:?}", numbers);
            let last = *numbers.last().unwrap();
            prop_assert!(last >= before, "numbers only grow");
            before = last;
            let total: u64 = shown.iter().map(|(_, pages)| pages).sum();
            let on = bed.read("enabled").trim_end().ends_with(['1', '3', '5', '7']);
            prop_assert_eq!(total, if on { bed.machine.present(5) as u64 } else { 0 });
        }
    }
}
