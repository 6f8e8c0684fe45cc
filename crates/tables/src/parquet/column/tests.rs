use super::*;
use crate::read::fuzz::Contents;

pub(crate) const DICTIONARY: u8 = DICTIONARY_PAGE as u8;
pub(crate) const DATA: u8 = DATA_PAGE as u8;

/// A column of strings with these pages, each given by its kind, its number of values and nulls, and its contents.
pub(crate) fn chunk(rows: usize, levels: usize, pages: &[(u8, u16, &[u8])]) -> Chunk {
    let mut bytes = Vec::new();
    for (kind, levels, contents) in pages {
        // plain encoding (0), or indexes into a dictionary (8)
        let encoding = if *kind == DICTIONARY { 0 } else { 8 };
        Contents { column: 0, kind: *kind, encoding, levels: *levels, bytes: contents }
            .put_framed(&mut bytes);
    }
    Chunk { bytes: bytes.into(), rows, levels }
}

/// The strings "a" and "b" in plain encoding.
pub(crate) const A_B: &[u8] = &[1, 0, 0, 0, b'a', 1, 0, 0, 0, b'b'];

/// Encodes runs of levels. Each run is a number of repetitions and the level that is repeated.
pub(crate) fn levels(runs: &[(u8, u8)]) -> Vec<u8> {
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
fn list_boundaries_follow_repetition_levels() {
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
    // three rows, whose lists have two, no and one string
    let found = check(&[(1, 0), (1, 1), (1, 0), (1, 0)], &[(2, 1), (1, 0), (1, 1)], &[3 << 1, 1]);
    assert_eq!(found, Ok(("bbb".into(), vec![2, 2, 3])));
    assert_eq!(check(&[(1, 1), (2, 0)], &[(3, 1)], &[3 << 1, 1]), Err(MORE_OR_FEWER), "no list has begun");
    assert_eq!(check(&[(2, 0)], &[(1, 1)], &[2 << 1, 1]), Err(LEVELS));
    assert_eq!(check(&[(2, 0)], &[(2, 2)], &[2 << 1, 1]), Err(LEVELS), "a level of two");
}
