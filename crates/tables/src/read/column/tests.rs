use super::*;
use crate::block::{Date, Stretch};
use crate::read::fuzz::Contents;
use crate::read::listing;
use crate::write::FileWriter;
use model::Labels;

const DICTIONARY: u8 = DICTIONARY_PAGE as u8;
const DATA: u8 = DATA_PAGE as u8;

/// Pages of texts, each with its kind, its levels and what is in it.
fn chunk(rows: usize, levels: usize, pages: &[(u8, u16, &[u8])]) -> Chunk {
    let mut bytes = Vec::new();
    for (kind, levels, contents) in pages {
        // a dictionary is plain, and what points into it has the encoding 8
        let encoding = if *kind == DICTIONARY { 0 } else { 8 };
        Contents { column: 0, kind: *kind, encoding, levels: *levels, bytes: contents }
            .put_framed(&mut bytes);
    }
    Chunk { bytes: bytes.into(), rows, levels }
}

/// The texts "a" and "b".
const A_B: &[u8] = &[1, 0, 0, 0, b'a', 1, 0, 0, 0, b'b'];

/// Runs of levels: how many of which.
fn levels(runs: &[(u8, u8)]) -> Vec<u8> {
    let mut out = vec![2 * runs.len() as u8, 0, 0, 0];
    out.extend(runs.iter().flat_map(|(count, level)| [2 * count, *level]));
    out
}

fn texts(texts: &Texts) -> Vec<&str> {
    let all: Vec<_> = texts.all().collect();
    texts.codes.iter().map(|code| all[*code as usize]).collect()
}

#[test]
fn one_dictionary_comes_first() {
    let (dictionary, data) = ((DICTIONARY, 2, A_B), (DATA, 3, &[1, 2 << 1, 1, 1 << 1, 0][..]));
    let check =
        |levels, pages: &[_]| chunk(levels, levels, pages).texts().map(|found| texts(&found).join(""));
    assert_eq!(check(3, &[dictionary, data]), Ok("bba".into()));
    assert_eq!(check(6, &[dictionary, data, data]), Ok("bbabba".into()));
    for (levels, pages) in [
        (3, vec![dictionary, dictionary, data]),
        (3, vec![dictionary, data, dictionary]),
        (3, vec![data, dictionary]),
        (2, vec![dictionary, data]),
        (4, vec![dictionary, data]),
        (3, vec![(DICTIONARY, 1, A_B), data]),
    ] {
        assert!(check(levels, &pages).is_err(), "{levels} of {pages:?}");
    }
}

#[test]
fn lists_begin_and_end() {
    let check = |repeated: &[(u8, u8)], defined: &[(u8, u8)], codes: &[u8]| {
        let page = [&levels(repeated), &levels(defined), &[1][..], codes].concat();
        let levels: u16 = repeated.iter().map(|(count, _)| u16::from(*count)).sum();
        let rows =
            repeated.iter().filter(|(_, level)| *level == 0).map(|(count, _)| usize::from(*count)).sum();
        let chunk = chunk(rows, levels.into(), &[(DICTIONARY, 2, A_B), (DATA, levels, &page)]);
        let listed = chunk.listed().map(|found| texts(&found).join(""));
        let lists = chunk.lists().map(|(found, ends)| (texts(&found).join(""), ends));
        assert!(lists.is_err() || listed == lists.clone().map(|(found, _)| found), "{lists:?}");
        lists
    };
    // two of two, an empty one, one of one
    let found = check(&[(1, 0), (1, 1), (1, 0), (1, 0)], &[(2, 1), (1, 0), (1, 1)], &[3 << 1, 1]);
    assert_eq!(found, Ok(("bbb".into(), vec![2, 2, 3])));
    assert_eq!(check(&[(1, 1), (2, 0)], &[(3, 1)], &[3 << 1, 1]), Err(MORE_OR_FEWER), "nobody began it");
    assert_eq!(check(&[(2, 0)], &[(1, 1)], &[2 << 1, 1]), Err(LEVELS));
    assert_eq!(check(&[(2, 0)], &[(2, 2)], &[2 << 1, 1]), Err(LEVELS), "a level of two");
}

#[test]
fn names_and_values_stand_side_by_side() {
    let chunk = |defined: &[(u8, u8)], codes: &[u8]| {
        let page = [&levels(&[(3, 0)]), &levels(defined), &[1][..], codes].concat();
        chunk(3, 3, &[(DICTIONARY, 2, A_B), (DATA, 3, &page)])
    };
    let (all, two) = (&[(3, 1)], &[(2, 1), (1, 0)]);
    let (aab, bbb) = (&[2 << 1, 0, 1 << 1, 1], &[3 << 1, 1]);
    let check = |label, names: Chunk, values: Chunk| listing::values_of(label, &names, &values);
    assert_eq!(check("a", chunk(all, aab), chunk(all, aab)), Ok(vec!["a".into()]));
    assert_eq!(check("b", chunk(all, aab), chunk(all, aab)), Ok(vec!["b".into()]));
    assert_eq!(check("a", chunk(all, bbb), chunk(all, aab)), Ok(vec![]));
    assert_eq!(check("b", chunk(all, aab), chunk(two, &[2 << 1, 0])), Err(row::UNPAIRED));
    assert_eq!(check("a", chunk(two, &[2 << 1, 0]), chunk(all, aab)), Err(row::UNPAIRED));
}

/// What a footer says of the lengths of columns is believed as far as they fit.
#[test]
fn columns_are_as_long_as_their_row_group() {
    const DAY: i64 = 1_795_219_200_000;
    let mut writer = FileWriter::new(Date::of(DAY), Vec::new(), 1 << 20).unwrap();
    for pod in ["a", "b", "c"] {
        let labels = Labels::from_pairs(&[("__name__", "m"), ("job", "j"), ("pod", pod)]);
        let key = SeriesKey(7);
        let stretch = Stretch { labels: labels.as_ref(), key, timestamps: &[DAY], values: &[1.0] };
        writer.push(&stretch).unwrap();
    }
    let file: Bytes = writer.finish().unwrap().1.into();
    let footer = Footer::read(&file).unwrap();
    let all = fetch_chunks(&file, &footer, 0, ALL).unwrap();
    assert_eq!(all.map(|chunk| (chunk.rows, chunk.levels)), [3, 6, 6, 3, 3, 3, 3, 3, 3].map(|n| (3, n)));
    // those of samples lie between
    for leaf in (0..=9).filter(|leaf| *leaf != 7) {
        for len in [-1, 0, 2, 4, i64::MAX] {
            let mut file_metadata = footer.parquet().clone().into_builder();
            let mut group = file_metadata.take_row_groups().remove(0).into_builder();
            let mut columns = group.take_columns();
            columns[leaf] = columns[leaf].clone().into_builder().set_num_values(len).build().unwrap();
            let group = group.set_column_metadata(columns).build().unwrap();
            let changed = Footer::check("", file_metadata.add_row_group(group).build()).unwrap();
            let fetched = fetch_chunks(&file, &changed, 0, ALL);
            // lists may hold more than one entry a row
            let fits = matches!(leaf, 1 | 2) && len == 4;
            assert_eq!(fetched.is_ok(), fits, "column {leaf} of {len}");
        }
    }
}
