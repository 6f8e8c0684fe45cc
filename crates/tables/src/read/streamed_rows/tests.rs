use super::*;
use crate::date::Date;
use crate::kind::metrics::METRICS;
use crate::read::Cursor;
use crate::write::{FileWriter, Stretch};
use bytes::Bytes;
use model::{Labels, SeriesKey};

const DAY: i64 = 1_795_219_200_000;

/// Labels that all series share take little in a file, and a lot when its rows are decoded.
#[test]
fn few_rows_with_long_labels_are_in_memory_at_a_time() {
    const ROWS: usize = 2_000;
    let long = "x".repeat(16_000);
    let mut writer = FileWriter::new(&METRICS, Date::of(DAY), Vec::new(), 1 << 20).unwrap();
    let mut held_bytes = 0;
    for i in 0..ROWS {
        let number = format!("{i:05}");
        let pairs = [("__name__", "m"), ("a", &long), ("b", &long), ("c", &long), ("n", &number)];
        let (labels, timestamps, values) = (Labels::from_pairs(&pairs), [DAY], [i as f64]);
        let (labels, key) = (labels.as_ref(), SeriesKey(i as u128));
        writer.push(&Stretch { labels, key, timestamps: &timestamps, values: &values }).unwrap();
        held_bytes = held_bytes.max(writer.held_bytes());
    }
    assert!(held_bytes < 10 << 20, "{held_bytes} bytes while the file is written");
    let file: Bytes = writer.finish().unwrap().1.into();
    assert!(file.len() < 200_000, "{} bytes", file.len());
    let footer = Arc::new(Footer::read(&METRICS, &file).unwrap());
    let (longest, mean) = footer.label_bytes().unwrap();
    assert!((48_000..49_000).contains(&longest) && mean == longest, "{longest}, {mean}");

    let windows = cut(&footer, 0, std::iter::once(0..ROWS).collect(), &Select::ALL, 1 << 20);
    assert!(windows.iter().flatten().all(|window| window.len() <= 100), "{windows:?}");
    assert_eq!(windows.iter().flatten().map(ExactSizeIterator::len).sum::<usize>(), ROWS);

    let mut cursor = Cursor::new(&file as &dyn Ranges, footer, Arc::new(Select::ALL), 1 << 20);
    let (mut rows, mut held_bytes) = (0, 0);
    while cursor.advance().unwrap() {
        rows += 1;
        held_bytes = held_bytes.max(cursor.held_bytes());
    }
    assert_eq!(rows, ROWS);
    assert!(held_bytes < 6 << 20, "{held_bytes} bytes while the file is read");
}
