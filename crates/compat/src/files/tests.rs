use super::{Combined, Files};
use crate::admin::Admin;
use crate::errno::Errno;
use crate::kdamond::{Kdamond, Observer, Starter};
use crate::refused::Refused;
use crate::settings::Settings;
use crate::tree::{Inode, ROOT, Tree};
use std::sync::Arc;

struct Never;

impl Starter for Never {
    fn start(&self, _: &str, _: Settings, _: Option<Observer>) -> Result<Box<dyn Kdamond>, Refused> {
        Err(Refused::new("this is a test"))
    }
}

fn admin() -> Arc<dyn Files> {
    Arc::new(Admin::new(Tree::damon(), Box::new(Never)))
}

fn find(files: &Combined, path: &str) -> Result<Inode, Errno> {
    path.split('/').try_fold(ROOT, |at, name| files.lookup(at, name))
}

/// Two trees and one file of the second.
fn combined() -> Combined {
    let mut files = Combined::new();
    let first = files.add(admin());
    let second = admin();
    let file = second.lookup(second.lookup(second.lookup(ROOT, "admin").unwrap(), "kdamonds").unwrap(), "nr_kdamonds");
    let number = files.add(second);
    files.place("sys/kernel/mm/damon", first, ROOT);
    files.place("sys/module/damon", number, ROOT);
    files.place("sys/module/nr", number, file.unwrap());
    files
}

#[test]
fn each_entry_belongs_to_the_files_at_its_place() {
    let files = combined();
    let [first, second] = ["sys/kernel/mm/damon", "sys/module/damon"]
        .map(|place| find(&files, &format!("{place}/admin/kdamonds/nr_kdamonds")).unwrap());
    assert_ne!(first, second);
    assert_eq!(files.write(first, b"2\n"), Ok(2));
    assert_eq!(files.read(first).unwrap(), b"2\n");
    assert_eq!(files.read(second).unwrap(), b"0\n");
    assert!(find(&files, "sys/kernel/mm/damon/admin/kdamonds/1/state").is_ok());
    assert_eq!(find(&files, "sys/module/damon/admin/kdamonds/1/state"), Err(Errno::NoEntry));
    // The same file under another name.
    let alone = find(&files, "sys/module/nr").unwrap();
    assert_eq!(files.write(alone, b"1"), Ok(1));
    assert_eq!(files.read(second).unwrap(), b"1\n");
}

#[test]
fn every_folder_lists_its_entries_and_leads_back_up() {
    let files = combined();
    let names = |at| files.list(at).unwrap().into_iter().map(|e| (e.name, e.is_folder)).collect::<Vec<_>>();
    let sys = find(&files, "sys").unwrap();
    assert_eq!(names(sys), [("kernel".to_owned(), true), ("module".to_owned(), true)]);
    assert_eq!(names(find(&files, "sys/module").unwrap()), [("damon".to_owned(), true), ("nr".to_owned(), false)]);
    assert_eq!(files.attr(sys).unwrap().folders, Some(2));
    assert_eq!(files.attr(find(&files, "sys/module").unwrap()).unwrap().folders, Some(1));
    assert_eq!(find(&files, "sys/kernel/mm/damon/.."), find(&files, "sys/kernel/mm"));
    assert_eq!(find(&files, "sys/kernel/mm/damon/admin/.."), find(&files, "sys/kernel/mm/damon"));
    assert_eq!(find(&files, "sys/.."), Ok(ROOT));
    assert_eq!(files.lookup(ROOT, ".."), Ok(ROOT));
}

#[test]
fn numbers_that_were_never_given_are_nothing() {
    let files = combined();
    for inode in [0, 99, 3 << 48 | 1, Inode::MAX] {
        assert_eq!(files.attr(inode), Err(Errno::NoEntry), "{inode:x}");
        assert_eq!(files.read(inode), Err(Errno::NoEntry), "{inode:x}");
        assert_eq!(files.write(inode, b"1"), Err(Errno::NoEntry), "{inode:x}");
    }
    assert_eq!(files.read(ROOT), Err(Errno::Invalid));
    assert!(files.attr(1 << 48 | 99_999).is_err());
}
