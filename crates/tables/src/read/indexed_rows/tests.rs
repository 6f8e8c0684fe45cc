use super::*;
use crate::date::Date;
use crate::kind::metrics::METRICS;
use crate::read::fuzz::FullyCachedFile;
use crate::read::{Cursor, Select};
use crate::write::FileWriter;
use crate::write::Stretch;
use bytes::Bytes;
use model::{Labels, SeriesKey};

/// If a damaged footer says that two columns have the same page, the page that is cached for one column must not be
/// used for the other.
#[test]
fn a_page_claimed_by_two_columns_is_cached_for_one() {
    const DAY: i64 = 1_795_219_200_000;
    let times: Vec<i64> = (0..100).map(|i| DAY + 1000 * i).collect();
    let mut writer = FileWriter::new(&METRICS, Date::of(DAY), Vec::new(), 1 << 20).unwrap();
    for (name, value) in [("a", 1.5), ("b", 1.0 / 3.0)] {
        let (labels, values) = (Labels::from_pairs(&[("__name__", name)]), vec![value; 100]);
        let (labels, key) = (labels.as_ref(), SeriesKey(7));
        writer.push(&Stretch { labels, key, timestamps: &times, values: &values }).unwrap();
    }
    let file: Bytes = writer.finish().unwrap().1.into();
    let footer = Footer::read(&METRICS, &file).unwrap();
    let leaf = |name| prune::leaf(footer.parquet(), name).unwrap();
    let read = |changed: &Arc<Footer>, cached_file: &FullyCachedFile| {
        let mut cursor =
            Cursor::new(cached_file as &dyn Ranges, Arc::clone(changed), Arc::new(Select::ALL), 1 << 20);
        let mut samples = Samples::default();
        while cursor.advance()? {
            cursor.read(&mut samples)?;
        }
        Ok::<_, TableError>(samples.len())
    };
    for name in [metrics::TIMESTAMPS, metrics::MANTISSAS, metrics::FLOATS] {
        let mut index = footer.parquet().offset_index().unwrap().clone();
        index[0][leaf(name)] = index[0][leaf(metrics::TIMESTAMPS)].clone();
        let changed = footer.parquet().clone().into_builder().set_offset_index(Some(index)).build();
        let changed = Arc::new(Footer::check(&METRICS, "", changed).unwrap());
        let cached_file = FullyCachedFile::of(file.clone());
        for _ in 0..2 {
            match (name, read(&changed, &cached_file)) {
                (metrics::TIMESTAMPS, Ok(200)) => {}
                (metrics::MANTISSAS | metrics::FLOATS, Err(TableError::Damaged { .. })) => {}
                (_, other) => panic!("{name}: {other:?}"),
            }
        }
    }
}
