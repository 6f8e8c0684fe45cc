//! Damages files of events.

use super::*;
use stdx::damage::{damage, mutations};

/// However a file is damaged, what is found was stored, and new events can be stored.
#[tokio::test]
async fn damaged_files_lose_only_the_damaged_events() {
    let (mut rng, dir, of) = (Rng::announced(), tempfile::tempdir().unwrap(), tenant("a"));
    let events = open(dir.path());
    for number in 0..8 {
        events.append(&of, event(number, &format!("number {number}"), "a b"), FILE_BYTES_MIN).await.unwrap();
    }
    let stored = found(&events, &of);
    let whole = fs::read(file_of(dir.path(), &of)).unwrap();
    for _ in 0..mutations(500) {
        let mut bytes = whole.clone();
        damage(&mut bytes, &mut rng);
        fs::write(file_of(dir.path(), &of), &bytes).unwrap();
        let events = open(dir.path());
        let left = found(&events, &of);
        assert!(left.iter().all(|found| stored.contains(found)), "{}", String::from_utf8_lossy(&bytes));
        let id = events.append(&of, event(9, "new", ""), FILE_BYTES_MIN).await.unwrap();
        let mut expected = left;
        expected.push((id, 9, "new".into(), String::new(), "more".into()));
        assert_eq!(found(&events, &of), expected);
        events.expire(&of, 5).unwrap();
        expected.retain(|(_, when_ms, ..)| *when_ms >= 5);
        assert_eq!(found(&events, &of), expected);
    }
}

/// The copies of damaged lines.
fn quarantine(dir: &Path) -> Vec<Vec<u8>> {
    let Ok(files) = fs::read_dir(dir.join("events/quarantine")) else { return Vec::new() };
    files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect()
}

/// A damaged line was acknowledged, wherever it is. So it is kept, and its id is not used again.
#[tokio::test]
async fn a_damaged_byte_loses_one_or_two_events_and_no_id_is_used_again() {
    let (mut rng, of, dir) = (Rng::announced(), tenant("a.b"), tempfile::tempdir().unwrap());
    let events = open(dir.path());
    for number in 1..=5 {
        events.append(&of, event(number, &"x".repeat(number as usize), ""), FILE_BYTES_MIN).await.unwrap();
    }
    let (stored, whole) = (found(&events, &of), fs::read(file_of(dir.path(), &of)).unwrap());
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    let mut places: Vec<_> = (last..whole.len()).collect();
    places.extend((0..mutations(100)).map(|_| rng.below(last as u64) as usize));
    for at in places {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("events")).unwrap();
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << rng.below(8);
        fs::write(file_of(dir.path(), &of), &bytes).unwrap();
        let events = open(dir.path());
        let mut left = found(&events, &of);
        let lost: Vec<_> = stored.iter().filter(|event| !left.contains(event)).collect();
        assert!(lost.len() <= 2 && left.len() + lost.len() == 5, "byte {at}: {left:?}");
        // the damage is found by upkeep or by a write, and what was known then is known after a restart
        let events = if rng.chance(0.5) {
            events.expire(&of, 0).unwrap();
            open(dir.path())
        } else {
            events
        };
        let id = events.append(&of, event(9, "new", ""), FILE_BYTES_MIN).await.unwrap();
        assert!(id > 5, "byte {at}: id {id} is used again");
        left.push((id, 9, "new".into(), String::new(), "more".into()));
        assert_eq!(found(&events, &of), left, "byte {at}");
        let (copies, start) = (quarantine(dir.path()), whole[..at].iter().rposition(|byte| *byte == b'\n'));
        // the digits of a checksum may be capital letters
        let is_valid = at - start.map_or(0, |end| end + 1) < 8 && bytes[at].eq_ignore_ascii_case(&whole[at]);
        assert_eq!(copies.len(), usize::from(!is_valid), "byte {at}");
        assert!(lost.is_empty() || !is_valid, "byte {at}");
        assert!(copies.iter().all(|copy| bytes.windows(copy.len()).any(|part| part == copy)), "byte {at}");
        let left = found(&events, &of);
        assert_eq!(found(&open(dir.path()), &of), left);
    }
}

#[tokio::test]
async fn an_unfinished_line_is_removed_and_a_damaged_header_keeps_the_next_id() {
    let (dir, of) = (tempfile::tempdir().unwrap(), tenant("a"));
    let events = open(dir.path());
    for number in 1..=4 {
        events.append(&of, event(number, "x", ""), FILE_BYTES_MIN).await.unwrap();
    }
    let file = file_of(dir.path(), &of);
    let whole = fs::read(&file).unwrap();
    for torn in [&whole[whole.len() - 40..whole.len() - 2], &b"0"[..], &[0; 5000][..]] {
        fs::write(&file, [&whole[..], torn].concat()).unwrap();
        assert_eq!(open(dir.path()).append(&of, event(5, "x", ""), FILE_BYTES_MIN).await.unwrap(), 5);
        assert_eq!(quarantine(dir.path()), Vec::<Vec<u8>>::new());
    }
    let events = open(dir.path());
    events.expire(&of, 100).unwrap();
    let mut header = fs::read(&file).unwrap();
    header[0] ^= 1;
    fs::write(&file, &header).unwrap();
    let registry = Registry::new();
    let events = Events::open(Arc::new(Os), dir.path(), Account::new("events", 1 << 20), &registry);
    assert!(events.append(&of, event(6, "x", ""), FILE_BYTES_MIN).await.unwrap() >= 6);
    assert_eq!(quarantine(dir.path()), [header]);
    let metrics = registry.render();
    assert!(metrics.contains("floodmark_graphite_damaged_event_lines_total 1"), "{metrics}");
    let shortest = Record { id: 1, when_ms: 0, what: "".into(), tags: "".into(), data: "".into() };
    assert_eq!(file::encode(&shortest).len() as u64, file::LINE_BYTES_MIN);
}

/// A disk that damages files again and again is not filled by the copies.
#[tokio::test]
async fn the_quarantine_is_bounded() {
    let (dir, of) = (tempfile::tempdir().unwrap(), tenant("a"));
    let events = open(dir.path());
    let (file, folder) = (file_of(dir.path(), &of), dir.path().join("events/quarantine"));
    let mut id = events.append(&of, event(1, "x", ""), FILE_BYTES_MIN).await.unwrap();
    let all_bytes = || -> u64 {
        fs::read_dir(&folder).unwrap().map(|copy| copy.unwrap().metadata().unwrap().len()).sum()
    };
    // so long that there is room for one more copy, and not for two
    fs::create_dir(&folder).unwrap();
    let other = fs::File::create(folder.join("b.0.lines")).unwrap();
    other.set_len(log::QUARANTINE_BYTES_MAX - 100).unwrap();
    for (number, copies) in [(2, 1), (3, 1), (4, 1)] {
        let mut bytes = fs::read(&file).unwrap();
        let last = bytes.len() - 3;
        bytes[last] ^= 1;
        fs::write(&file, &bytes).unwrap();
        let events = open(dir.path());
        let new_id = events.append(&of, event(number, "x", ""), FILE_BYTES_MIN).await.unwrap();
        assert!(new_id > id, "{new_id} after {id}");
        id = new_id;
        assert_eq!(found(&events, &of).len(), 1, "the damaged event is lost, and the new one is there");
        let kept = fs::read_dir(&folder).unwrap().count() - 1;
        assert_eq!(kept, copies, "after {number}");
        assert!(all_bytes() <= log::QUARANTINE_BYTES_MAX);
    }
    // the copies are removed by hand
    drop(other);
    fs::remove_file(folder.join("b.0.lines")).unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let last = bytes.len() - 3;
    bytes[last] ^= 1;
    fs::write(&file, &bytes).unwrap();
    open(dir.path()).expire(&of, 0).unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
}
