use super::*;
use crate::date::Date;
use crate::kind::metrics::METRICS;
use crate::write::{FileWriter, Stretch};
use bytes::Bytes;
use model::{Labels, SeriesKey};

/// Columns that claim to be longer than the file are rejected.
#[test]
fn columns_are_as_long_as_their_row_group() {
    const DAY: i64 = 1_795_219_200_000;
    let mut writer = FileWriter::new(&METRICS, Date::of(DAY), Vec::new(), 1 << 20).unwrap();
    for pod in ["a", "b", "c"] {
        let labels = Labels::from_pairs(&[("__name__", "m"), ("job", "j"), ("pod", pod)]);
        let key = SeriesKey(7);
        let stretch = Stretch { labels: labels.as_ref(), key, timestamps: &[DAY], values: &[1.0] };
        writer.push(&stretch).unwrap();
    }
    let file: Bytes = writer.finish().unwrap().1.into();
    let footer = Footer::read(&METRICS, &file).unwrap();
    let all = fetch_chunks(&file, &footer, 0, ALL).unwrap();
    assert_eq!(all.map(|chunk| (chunk.rows, chunk.levels)), [3, 6, 6, 3, 3, 3, 3, 3, 3].map(|n| (3, n)));
    // columns 7, 10 and 11 have samples and are not small
    for leaf in (0..=9).filter(|leaf| *leaf != 7) {
        for len in [-1, 0, 2, 4, i64::MAX] {
            let mut file_metadata = footer.parquet().clone().into_builder();
            let mut group = file_metadata.take_row_groups().remove(0).into_builder();
            let mut columns = group.take_columns();
            columns[leaf] = columns[leaf].clone().into_builder().set_num_values(len).build().unwrap();
            let group = group.set_column_metadata(columns).build().unwrap();
            let changed = Footer::check(&METRICS, "", file_metadata.add_row_group(group).build()).unwrap();
            let fetched = fetch_chunks(&file, &changed, 0, ALL);
            // a row may have several labels, so these columns may be longer
            let fits = matches!(leaf, 1 | 2) && len == 4;
            assert_eq!(fetched.is_ok(), fits, "column {leaf} of {len}");
        }
    }
}
