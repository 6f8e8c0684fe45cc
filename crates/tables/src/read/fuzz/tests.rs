use super::*;
use crate::date::Date;
use crate::kind::metrics::METRICS;
use crate::read::small_columns::fetch_chunks;
use crate::write::FileWriter;
use crate::write::Stretch;
use model::{Labels, SeriesKey};
use stdx::damage::each_damaged;

fn written(series: usize, samples: usize) -> Bytes {
    const DAY: i64 = 1_795_219_200_000;
    let times: Vec<i64> = (0..samples as i64).map(|i| DAY + i * 15_000 + i % 3).collect();
    let mut all: Vec<Labels> = (0..series)
        .map(|i| {
            let (name, pod) = (format!("m{}", i % 3), format!("pod-{i}"));
            Labels::from_pairs(&[("__name__", &name), ("Zone", ["", "a"][i % 2]), ("pod", &pod)])
        })
        .collect();
    all.sort_by(|a, b| a.as_ref().cmp_in_tables(b.as_ref()));
    let mut writer = FileWriter::new(&METRICS, Date::of(DAY), Vec::new(), 1 << 20).unwrap();
    for (i, labels) in all.iter().enumerate() {
        let value = |t: &i64| match i % 4 {
            0 => 0.1 + 0.2,
            1 => (*t as f64).sqrt(),
            _ => (t % 1000) as f64 / 100.0,
        };
        let values: Vec<f64> = times.iter().map(value).collect();
        let (labels, key) = (labels.as_ref(), SeriesKey(i as u128));
        writer.push(&Stretch { labels, key, timestamps: &times, values: &values }).unwrap();
    }
    writer.finish().unwrap().1.into()
}

#[test]
fn damaged_files() {
    each_damaged(&[written(1, 3).to_vec(), written(20, 40).to_vec()], 1000, file);
}

#[test]
fn damaged_columns() {
    let corpus = [1, 60].map(|series| {
        let file = written(series, 2);
        let chunks =
            fetch_chunks(&file, &Footer::read(&METRICS, &file).unwrap(), 0, small_columns::ALL).unwrap();
        let mut contents = (series as u16).to_le_bytes().to_vec();
        for (column, chunk) in chunks.iter().enumerate() {
            let mut rest = &*chunk.bytes;
            while !rest.is_empty() {
                put_page(&mut contents, column as u8, &Unpacked::take(&mut rest).unwrap());
            }
        }
        contents
    });
    each_damaged(&corpus, 4000, row_group);
}

#[test]
fn damaged_values() {
    let file = written(40, 50);
    let parquet = Footer::read(&METRICS, &file).unwrap();
    let mut corpus = Vec::new();
    for chunk in parquet.parquet().row_group(0).columns() {
        let (start, len) = chunk.byte_range();
        let bytes = file.slice(start as usize..(start + len) as usize);
        let mut rest = &*bytes;
        corpus.push(rest.to_vec());
        while !rest.is_empty() {
            let mut page = Unpacked::take(&mut rest).unwrap();
            for _ in 0..3 {
                corpus.push([&(page.header.levels as u16).to_le_bytes(), page.rest()].concat());
                if page.levels().is_err() {
                    break;
                }
            }
        }
    }
    each_damaged(&corpus, 4000, values);
}
