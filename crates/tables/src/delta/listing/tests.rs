use super::*;

/// A log with these files. Names that begin with `-` are empty files.
fn listing(names: &[&str], hint: Hint) -> Listing {
    let folder = Path::from("t/_delta_log");
    let object = |name: &&str| ObjectMeta {
        location: Path::from(format!("t/_delta_log/{}", name.trim_start_matches('-'))),
        last_modified: std::time::UNIX_EPOCH.into(),
        size: u64::from(!name.starts_with('-')),
        e_tag: None,
        version: None,
    };
    Listing::of(&folder, names.iter().map(object).collect(), hint)
}

fn entry(version: u64) -> String {
    format!("{version:020}.json")
}

#[test]
fn names() {
    let version = |name: &str| parse(name).map(|(version, part)| (version, part.files()));
    assert_eq!(version("00000000000000000012.json"), Some((12, 1)));
    assert_eq!(version("00000000000000000012.crc"), Some((12, 1)));
    assert_eq!(version("00000000000000000012.checkpoint.parquet"), Some((12, 1)));
    assert_eq!(version("00000000000000000012.checkpoint.0000000001.0000000003.parquet"), Some((12, 3)));
    let uuid = "00000000000000000012.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json";
    assert_eq!(version(uuid), Some((12, 1)));
    for none in [
        "_last_checkpoint",
        "12.json",
        "0000000000000000001x.crc",
        "+0000000000000000001.crc",
        "00000000000000000012.checkpoint.x.parquet",
        "00000000000000000012.00000000000000000014.compacted.json",
        "_damaged-00000000000000000012-checkpoint-parquet-0",
    ] {
        assert_eq!(version(none), None, "{none}");
    }
}

#[test]
fn a_log_is_whole_from_a_checkpoint_or_from_its_beginning() {
    let names: Vec<String> = (3..6).map(entry).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let log = listing(&names, Hint::None);
    assert_eq!(log.gap(Some(2)), None);
    assert_eq!(log.gap(Some(5)), None);
    assert_eq!(log.gap(None), Some(Gap::Missing(0, 2)));
    assert_eq!(log.gap(Some(0)), Some(Gap::Missing(1, 2)));
    let empty = listing(&[&entry(0), "-00000000000000000001.json", &entry(2)], Hint::None);
    assert_eq!((empty.gap(None), empty.gap(Some(1))), (Some(Gap::Empty(1)), None));
    // if the checkpoint cannot be used, the entries up to its version are missing
    let ahead = listing(&[&entry(0), "00000000000000000002.checkpoint.parquet"], Hint::None);
    assert_eq!((ahead.gap(None), ahead.gap(Some(2))), (Some(Gap::Missing(1, 2)), None));
    assert_eq!(listing(&[], Hint::None).gap(None), Some(Gap::Missing(0, 0)));
}

#[test]
fn checkpoints_are_found_the_last_first() {
    let names = [
        "00000000000000000001.checkpoint.parquet",
        "00000000000000000002.checkpoint.0000000001.0000000002.parquet",
        "00000000000000000003.checkpoint.0000000001.0000000002.parquet",
        "00000000000000000003.checkpoint.0000000002.0000000002.parquet",
        "00000000000000000003.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet",
        "00000000000000000004.json",
        "deeper/00000000000000000005.checkpoint.parquet",
    ];
    let log = listing(&names, Hint::At(3));
    let found: Vec<(u64, usize)> = log.checkpoints().map(|c| (c.version, c.files.len())).collect();
    assert_eq!(found, [(3, 1), (3, 2), (1, 1)]);
    assert_eq!(log.wrong_hint(), None);
    assert!(listing(&names, Hint::At(4)).wrong_hint().is_some_and(|reason| reason.contains('4')));
    assert_eq!(Hint::of(b"{\"version\":7,\"size\":1}"), Hint::At(7));
    for bad in ["", "{}", "{\"version\":7", "\u{1}"] {
        assert_eq!(Hint::of(bad.as_bytes()), Hint::Unreadable, "{bad}");
    }
}
