use super::*;
use crate::parquet::column::tests::{A_B, DATA, DICTIONARY, chunk, levels};

#[test]
fn label_names_and_values_are_paired() {
    let of = |defined: &[(u8, u8)], codes: &[u8]| {
        let page = [&levels(&[(3, 0)]), &levels(defined), &[1][..], codes].concat();
        chunk(3, 3, &[(DICTIONARY, 2, A_B), (DATA, 3, &page)])
    };
    let (all, two) = (&[(3, 1)], &[(2, 1), (1, 0)]);
    let (aab, bbb) = (&[2 << 1, 0, 1 << 1, 1], &[3 << 1, 1]);
    let check = |label, names: Chunk, values: Chunk| values_of(label, &names, &values);
    assert_eq!(check("a", of(all, aab), of(all, aab)), Ok(vec!["a".into()]));
    assert_eq!(check("b", of(all, aab), of(all, aab)), Ok(vec!["b".into()]));
    assert_eq!(check("a", of(all, bbb), of(all, aab)), Ok(vec![]));
    assert_eq!(check("b", of(all, aab), of(two, &[2 << 1, 0])), Err(row::UNPAIRED));
    assert_eq!(check("a", of(two, &[2 << 1, 0]), of(all, aab)), Err(row::UNPAIRED));
}
