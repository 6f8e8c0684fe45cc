//! Columns of attributes.

use super::*;
use tables::TableError;

#[test]
fn later_blocks_add_columns_and_old_files_have_nulls_there() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let text = AttributeValue::Text;
    let names = |table: &Table| -> Vec<String> {
        table.attributes().list().iter().map(|column| column.name.to_string()).collect()
    };
    let first = batch("s", records(&[&[("level", text("info"))], &[("level", text("warn"))]]));
    commit(&table, 0, std::slice::from_ref(&first));
    assert_eq!(names(&table), ["level"]);
    let old = table.files().unwrap().all().to_vec();
    let rare: &[(&str, AttributeValue<'_>)] =
        &[("level", AttributeValue::Int(5)), ("user.name", text("ada"))];
    let rest: &[(&str, AttributeValue<'_>)] = &[("user.name", text("bob")), ("date", AttributeValue::Int(1))];
    let second = batch("s", records(&[&[rare], [rest; 12].as_slice()].concat()));
    commit(&table, 1, std::slice::from_ref(&second));
    assert_eq!(names(&table), ["level", "user.name", "date_int"], "one level in 13 is an integer: too few");
    let reopened = open(&folder);
    assert_eq!(reopened.attributes().list(), table.attributes().list());
    for table in [&table, &reopened] {
        assert!(old.iter().all(|file| table.files().unwrap().all().contains(file)));
        assert_eq!(contents(table, RecordSelect::ALL), all_expected(&[first.clone(), second.clone()]));
    }
    // a column stays, however rare its attribute becomes
    let levels =
        batch("s", records(&[&[&[("level", text("x"))] as &[_]], [&[] as &[_]; 50].as_slice()].concat()));
    commit(&reopened, 2, std::slice::from_ref(&levels));
    let found = contents(&reopened, RecordSelect::ALL);
    assert_eq!(found, all_expected(&[first, second, levels]));
    assert_eq!(found.iter().filter(|row| row.columns.contains("level")).count(), 3);
}

#[test]
fn a_column_that_contradicts_another_process_must_be_staged_again() {
    let folder = TempDir::new().unwrap();
    let (table, other) = (open(&folder), open(&folder));
    let of = |value| [batch("s", records(&[&[("status", value)]]))];
    let (ints, texts) = (of(AttributeValue::Int(200)), of(AttributeValue::Text("ok")));
    let mut theirs = block(&other, 0, &texts, SMALL);
    theirs.source = "k".into();
    commit(&table, 0, &ints);
    other.refresh().unwrap();
    let good = block(&table, 1, &ints, SMALL);
    let error = other.commit(&[good.clone(), theirs], NOW).unwrap_err();
    assert!(matches!(&error, TableError::Outdated { column, .. } if column == "status"), "{error}");
    table.refresh().unwrap();
    assert_eq!(
        table.commit(&[good], NOW).unwrap(),
        [Outcome::Already { floodmark: 1 }],
        "the block before is committed"
    );
    let mut theirs = block(&other, 0, &texts, SMALL);
    theirs.source = "k".into();
    assert!(matches!(other.commit(&[theirs], NOW).unwrap()[..], [Outcome::Committed { .. }]));
    let names: Vec<_> = other.attributes().list().iter().map(|column| column.name.to_string()).collect();
    assert_eq!(names, ["status", "status_text"]);
    assert_eq!(contents(&other, RecordSelect::ALL), all_expected(&[ints.clone(), ints, texts].concat()));
}

/// Stagers of one process never contradict each other, in whatever order their files are committed.
#[test]
fn writers_of_one_process_choose_the_same_columns() {
    let folder = TempDir::new().unwrap();
    let table = open(&folder);
    let of = |value| [batch("s", records(&[&[("status", value)]]))];
    let (ints, texts) = (of(AttributeValue::Int(200)), of(AttributeValue::Text("ok")));
    let mut blocks: Vec<_> =
        (0..4).map(|n| block(&table, n, if n % 2 == 0 { &ints } else { &texts }, SMALL)).collect();
    blocks.iter_mut().zip(["a", "b", "c", "d"]).for_each(|(block, source)| {
        block.source = source.into();
        block.after = None;
    });
    blocks.reverse();
    assert_eq!(table.commit(&blocks, NOW).unwrap().len(), 4);
    assert_eq!(
        contents(&table, RecordSelect::ALL),
        all_expected(&[ints.clone(), ints, texts.clone(), texts].concat())
    );
}
