//! A journal that is older than the tables, or that has lost its name.

use super::super::home::Home;
use super::super::mark::Mark;
use super::*;
use journal::{JournalId, Offset};

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

fn put_back(copied: &Path, dir: &Path) {
    fs::remove_dir_all(dir).unwrap();
    copy(copied, dir);
}

/// The copy's journal assigns offsets again, which its tables had already. The numbers of records are powers of three, so that
/// their sum shows which are missing or double.
#[test]
fn an_older_journal_beside_newer_tables_stores_each_record_once() {
    let (dir, copied) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (home, copied) = (dir.path().join("streams"), copied.path().join("streams"));
    let mut running = Running::start(dir.path());
    running.store("s", 1).unwrap();
    assert_eq!(running.load("s"), 1);
    running.store("s", 3).unwrap();
    running.stop();
    copy(&home, &copied);

    let mut running = Running::start(dir.path());
    running.store("s", 9).unwrap();
    running.store("other", 1).unwrap();
    assert_eq!((running.load("s"), running.rows("other")), (13, 1));
    running.stop();

    for (n, all) in [(27, 40), (81, 121)] {
        put_back(&copied, &home);
        let mut running = Running::start(dir.path());
        running.store("s", n).unwrap();
        assert_eq!(running.load("s"), all);
        running.store("other", n).unwrap();
        assert_eq!(running.load("other"), all - 12);
        running.stop();
    }
    // what was written since then is found again
    let mut running = Running::start(dir.path());
    assert_eq!((running.load("s"), running.load("other")), (121, 109));
    running.store("s", 243).unwrap();
    assert_eq!(running.load("s"), 364);
    running.stop();
}

#[test]
fn a_journal_that_lost_its_name_doubles_no_record() {
    let dir = TempDir::new().unwrap();
    let home = dir.path().join("streams");
    let mut running = Running::start(dir.path());
    running.store("s", 1).unwrap();
    assert_eq!(running.load("s"), 1);
    running.store("s", 3).unwrap();
    running.stop();
    fs::remove_file(find(&home.join("journal"), "source")).unwrap();
    let mut running = Running::start(dir.path());
    assert_eq!(running.load("s"), 4);
    running.store("s", 9).unwrap();
    running.stop();

    let mark = fs::read(home.join("mark")).unwrap();
    for lost in [None, Some(vec![0; mark.len()]), Some(vec![7; 99]), Some(vec![])] {
        match lost {
            Some(bytes) => fs::write(home.join("mark"), bytes).unwrap(),
            None => fs::remove_file(home.join("mark")).unwrap(),
        }
        let mut running = Running::start(dir.path());
        let refusal = running.store("s", 27).unwrap_err();
        assert!(refusal.message.contains("stored twice"), "{refusal:?}");
        assert!(!running.loader.load_next());
        running.stop();
    }
    fs::write(home.join("mark"), mark).unwrap();
    let mut running = Running::start(dir.path());
    running.store("s", 27).unwrap();
    assert_eq!(running.load("s"), 40);
    running.stop();
}

/// A version before names were noted used the name of the journal.
#[test]
fn batches_of_an_earlier_version_keep_the_name_of_their_journal() {
    let dir = TempDir::new().unwrap();
    let home = |fresh_id| {
        let options =
            journal::Options { fresh_id, durability: journal::Durability::Os, ..Default::default() };
        Home { dir: dir.path().into(), options }
    };
    let settings = journal::Settings::Files { dir: dir.path().join("journal"), options: home(5).options };
    let mut journal = journal::open(&settings, 0).unwrap();
    journal.begin().unwrap();
    journal.append(&payload("s", 1)).unwrap();
    journal.sync().unwrap();
    drop(journal);
    let old_mark = [0; 1024];
    fs::write(dir.path().join("mark"), old_mark).unwrap();
    let (journal, mark) = home(6).open().unwrap();
    let name_of = |mark: &Mark, offset| mark.source_of(Offset(offset)).unwrap().name;
    let name = |number| JournalId { number, partition: 0 }.to_string();
    assert_eq!((name_of(&mark, 0), mark.source_of(Offset(0)).unwrap().end), (name(5), 1));
    assert_eq!(name_of(&mark, 1), name(6));
    drop((journal, mark));
    let (_, mark) = home(7).open().unwrap();
    assert_eq!(name_of(&mark, 0), name(5));
    assert_eq!(name_of(&mark, 1), name(7));

    fs::write(dir.path().join("mark"), old_mark).unwrap();
    fs::remove_file(find(&dir.path().join("journal"), "source")).unwrap();
    // the second time too
    for fresh_id in [8, 9] {
        let error = home(fresh_id).open().unwrap_err().to_string();
        assert!(error.contains("stored twice"), "{error}");
    }
    fs::write(dir.path().join("journal/0/source"), "damaged").unwrap();
    for fresh_id in [8, 9] {
        home(fresh_id).open().unwrap_err();
    }
    fs::write(dir.path().join("journal/0/source"), "0000000000000005").unwrap();
    let (_, mark) = home(10).open().unwrap();
    assert_eq!((name_of(&mark, 0), name_of(&mark, 1)), (name(5), name(10)));
}

/// A mark with names from the offset 1 on: the journal had deleted the first batch, which comes back.
#[test]
fn a_batch_that_the_journal_had_deleted_is_not_loaded_again() {
    let dir = TempDir::new().unwrap();
    let mut running = Running::start(dir.path());
    running.store("s", 1).unwrap();
    assert_eq!(running.load("s"), 1);
    running.stop();
    let mut running = Running::start(dir.path());
    running.store("s", 3).unwrap();
    running.stop();
    let path = dir.path().join("streams/mark");
    let disk: Arc<dyn journal::Disk> = Arc::new(journal::disk::Os);
    let mut mark = Mark::open(&disk, &path).unwrap();
    assert_eq!(mark.names_begin(), Offset(0));
    mark.begin_name(Offset(1), Offset(2), 5).unwrap();
    assert_eq!(mark.names_begin(), Offset(1));
    running = Running::start(dir.path());
    assert_eq!(running.load("s"), 4);
    assert_eq!(running.node.streams().shared.buffer.first(), None);
    running.stop();
}

/// Otherwise, what was not replayed would be in tables after the deletion.
#[test]
fn nothing_is_deleted_while_the_journal_cannot_be_read() {
    let dir = TempDir::new().unwrap();
    let mut running = Running::start(dir.path());
    running.store("s", 1).unwrap();
    assert_eq!(running.load("s"), 1);
    running.store("s", 3).unwrap();
    running.stop();
    let mark = dir.path().join("streams/mark");
    let whole = fs::read(&mark).unwrap();
    fs::remove_file(&mark).unwrap();
    let running = Running::start(dir.path());
    let scope = Scope::Stream((TenantId::anonymous(), stream("s")));
    let refusal = running.runtime.block_on(running.node.streams().delete(scope)).unwrap_err();
    assert!(refusal.message.contains("stored twice"), "{refusal:?}");
    running.runtime.block_on(running.node.streams().flush()).unwrap_err();
    assert_eq!(running.rows("s"), 1);
    running.stop();
    fs::write(&mark, whole).unwrap();
    let mut running = Running::start(dir.path());
    assert_eq!(running.load("s"), 4);
    running.stop();
}
