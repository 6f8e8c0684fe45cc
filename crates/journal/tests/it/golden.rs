//! Users have the bytes of such a segment file on their disks, so a change requires a new format version.

use crate::conform::{scratch, small_segments};
use expect_test::expect;
use journal::faulty::segment_files;
use journal::{Files, Item, Journal, Offset, Options};
use std::fs;

fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (i, line) in bytes.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|b| *b != 0)) {
        let bytes: Vec<String> = line.iter().map(|b| format!("{b:02x}")).collect();
        out += &format!("{:04x}: {}\n", 16 * i, bytes.join(" "));
    }
    out
}

#[test]
fn a_segment_of_two_groups() {
    let dir = scratch();
    let options = Options { seed: 42, ..small_segments() };
    let mut journal = Files::open(dir.path(), 3, options.clone()).unwrap();
    journal.begin().unwrap();
    journal.append(b"first").unwrap();
    journal.append(b"").unwrap();
    journal.sync().unwrap();
    journal.begin().unwrap();
    journal.append(b"the second group").unwrap();
    journal.sync().unwrap();
    drop(journal);

    let file = segment_files(dir.path(), 3).unwrap().pop().unwrap();
    assert_eq!(file.file_name().unwrap(), "00000000000000000000.journal");
    expect![[r#"
        0000: 46 4c 44 4d 4b 4a 4e 4c 01 00 00 00 03 00 00 00
        0010: 00 00 00 00 00 00 00 00 71 dc 8f 38 04 93 36 fd
        0030: 00 00 00 00 00 00 00 00 00 00 00 00 bf 17 10 a0
        0200: 46 4c 44 4d 4b 4a 4e 4c 01 00 00 00 03 00 00 00
        0210: 00 00 00 00 00 00 00 00 71 dc 8f 38 04 93 36 fd
        0230: 00 00 00 00 00 00 00 00 00 00 00 00 bf 17 10 a0
        0400: 05 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
        0410: 53 aa b0 16 1c 0f 0f 37 50 a1 3e 8a b8 98 08 e5
        0420: 66 69 72 73 74 00 00 00 00 01 00 00 00 01 00 00
        0430: 00 00 00 00 00 c2 94 d3 38 05 80 06 2d 00 00 00
        0440: 00 c1 f8 55 50 10 00 00 00 00 00 00 00 02 00 00
        0450: 00 00 00 00 00 dd 5d 37 47 df f8 80 75 d2 bb cf
        0460: 98 cc 6d 06 86 74 68 65 20 73 65 63 6f 6e 64 20
        0470: 67 72 6f 75 70
    "#]]
    .assert_eq(&hex(&fs::read(&file).unwrap()));

    let journal = Files::open(dir.path(), 3, options).unwrap();
    let mut reader = journal.read(Offset(0)).unwrap();
    for expected in [&b"first"[..], b"", b"the second group"] {
        let Some(Item::Entry(entry)) = reader.next().unwrap() else { panic!("a record") };
        assert_eq!(entry.payload, expected);
    }
    assert_eq!(reader.next().unwrap(), None);
}
