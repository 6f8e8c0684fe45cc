//! Tests what is left on the simulated disk after a power loss.

use super::*;
use std::collections::BTreeSet;

const DIR: &str = "/d";
const PATH: &str = "/d/file";

fn disk(seed: u64) -> (SimDisk, Box<dyn DiskFile>) {
    let disk = SimDisk::new(seed, Arc::new(Power::default()));
    journal::disk::create_dir_all(&disk, Path::new(DIR), Access::Private).unwrap();
    let file = disk.open(Path::new(PATH), Mode::Create).unwrap();
    (disk, file)
}

fn content(disk: &SimDisk) -> Option<Vec<u8>> {
    journal::disk::read(disk, Path::new(PATH)).ok()
}

#[test]
fn what_is_synced_survives_and_what_is_not_may_not() {
    let mut left = BTreeSet::new();
    for seed in 0..200 {
        let (disk, file) = disk(seed);
        file.write_at(&[1; 700], 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new(DIR)).unwrap();
        file.write_at(&[2; 700], 700).unwrap();
        disk.lose_power();
        assert!(file.write_at(&[3], 0).is_err(), "a dead process can write");
        let found = content(&disk).unwrap();
        assert_eq!(found[..700], [1; 700], "seed {seed}");
        left.insert(found[700..].iter().filter(|byte| **byte == 2).count());
    }
    assert!(left.contains(&0) && left.contains(&700) && left.len() > 10, "{left:?}");
}

#[test]
fn a_name_survives_once_its_directory_is_synced() {
    let mut found = BTreeSet::new();
    for seed in 0..50 {
        let (disk, file) = disk(seed);
        file.write_at(b"new", 0).unwrap();
        file.sync_data().unwrap();
        let to = Path::new("/d/other");
        disk.rename(Path::new(PATH), to).unwrap();
        disk.lose_power();
        let names: Vec<_> = disk.list(Path::new(DIR), 10).unwrap().into_iter().map(|l| l.name).collect();
        found.insert(names);
    }
    // a rename is atomic, so the file never has both names
    let names = [vec![], vec!["file".to_string()], vec!["other".to_string()]];
    assert_eq!(found, BTreeSet::from(names));
}

#[test]
fn a_directory_survives_once_the_one_above_it_is_synced() {
    let (above, dir) = (Path::new("/a"), Path::new("/a/b"));
    let is_left = |seed, synced: &[&str]| {
        let disk = SimDisk::new(seed, Arc::new(Power::default()));
        disk.create_dir(above, Access::Private).unwrap();
        disk.create_dir(dir, Access::Private).unwrap();
        let file = disk.open(&dir.join("file"), Mode::Create).unwrap();
        file.sync_data().unwrap();
        synced.iter().for_each(|dir| disk.sync_dir(Path::new(dir)).unwrap());
        disk.lose_power();
        disk.open(&dir.join("file"), Mode::Read).is_ok()
    };
    assert!((0..50).all(|seed| is_left(seed, &["/", "/a", "/a/b"])));
    for synced in [&["/", "/a"], &["/a", "/a/b"], &["/", "/a/b"]] {
        let left = (0..50).filter(|seed| is_left(*seed, synced)).count();
        assert!((1..50).contains(&left), "{synced:?}: {left} of 50");
    }
}

#[test]
fn a_killed_process_loses_nothing_and_no_lock() {
    let (disk, file) = disk(7);
    let lock = || Disk::lock(&disk, Path::new("/d/LOCK"));
    let held = lock().unwrap();
    assert_eq!(lock().unwrap_err().kind(), ErrorKind::WouldBlock);
    file.write_at(b"kept", 0).unwrap();
    disk.kill();
    assert_eq!(content(&disk).unwrap(), b"kept");
    let held_again = lock().unwrap();
    drop(held);
    assert!(lock().is_err(), "dropping a dead process's lock released the new process's lock");
    drop(held_again);
    assert!(lock().is_ok());
}
