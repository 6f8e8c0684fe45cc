use super::*;
use parquet::basic::Encoding;
use parquet::data_type::Int64Type;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use std::sync::Arc;
use stdx::rng::Rng;

/// Values of a page written by the Parquet library.
fn encoded(values: &[i64]) -> Vec<u8> {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let schema = parquet::schema::parser::parse_message_type("message m { required int64 v; }").unwrap();
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::DELTA_BINARY_PACKED)
        .set_data_page_size_limit(1 << 30)
        .set_data_page_row_count_limit(1 << 30);
    let mut file = Vec::new();
    let mut writer =
        SerializedFileWriter::new(&mut file, Arc::new(schema), Arc::new(properties.build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(values, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let reader = SerializedFileReader::new(bytes::Bytes::from(file)).unwrap();
    let mut pages = reader.get_row_group(0).unwrap().get_column_page_reader(0).unwrap();
    pages.get_next_page().unwrap().unwrap().buffer().to_vec()
}

fn open(values: &[i64]) -> Packed {
    let mut seen = Vec::new();
    let mut step = |step: i64| seen.push(seen.last().unwrap_or(&0_i64).wrapping_add(step));
    let mut see = |steps: Steps<'_>| match steps {
        Steps::First(value) => step(value),
        Steps::Alike(len, alike) => (0..len).for_each(|_| step(alike)),
        Steps::Each(least, more) => more.iter().for_each(|more| step(least.wrapping_add(*more as i64))),
    };
    let packed = Packed::open(encoded(values), 0, values.len(), Some(&mut see)).unwrap();
    assert_eq!(seen, values);
    packed
}

fn walk(rng: &mut Rng, len: usize, bits: u32) -> Vec<i64> {
    let mut value = rng.next_u64() as i64;
    let step = |rng: &mut Rng| rng.next_u64().checked_shr(64 - bits).unwrap_or(0) as i64;
    (0..len)
        .map(|_| {
            value = value.wrapping_add(step(rng));
            value
        })
        .collect()
}

#[test]
fn reads_what_the_library_wrote() {
    let mut rng = Rng::announced();
    for bits in 0..=64 {
        for len in [1, 2, 64, 65, 256, 257, 258, 1000] {
            let values = walk(&mut rng, len, bits);
            let packed = open(&values);
            for _ in 0..20 {
                let start = rng.below(len as u64 + 1) as usize;
                let end = start + rng.below((len - start) as u64 + 1) as usize;
                let mut read = Vec::new();
                packed.read(start..end, &mut read);
                assert_eq!(read, values[start..end], "{bits} bits, {start}..{end} of {len}");
            }
        }
    }
}

#[test]
fn ranges_of_a_page_read_as_in_the_whole_page() {
    let mut rng = Rng::announced();
    let mut left_out = 0;
    for _ in 0..300 {
        let len = 1 + rng.below(6000) as usize;
        let bits = rng.below(65) as u32;
        let values = walk(&mut rng, len, bits);
        let mut range = |len_max: usize| {
            let start = rng.below(len as u64 + 1) as usize;
            start..start + (rng.below(len_max as u64) as usize).min(len - start)
        };
        let wanted: Vec<_> = (0..3).map(|_| range(600)).collect();
        let (whole, part) = (open(&values), open(&values).only(wanted.iter().cloned()));
        assert!(part.memory_bytes() <= whole.memory_bytes());
        left_out += usize::from(!part.whole);
        for (i, range) in wanted.into_iter().chain((0..20).map(|_| range(2000))).enumerate() {
            assert!(whole.holds(&range));
            assert!(i >= 3 || part.holds(&range), "{range:?} of {len}");
            if part.holds(&range) {
                let mut read = Vec::new();
                part.read(range.clone(), &mut read);
                assert_eq!(read, values[range.clone()], "{range:?} of {len}");
            }
            assert_eq!(whole.narrow(range.clone(), -5, 1 << 20), part.narrow(range, -5, 1 << 20));
        }
    }
    assert!(left_out > 20, "{left_out}");
}

#[test]
fn narrows_to_blocks() {
    let mut rng = Rng::announced();
    let values: Vec<i64> = (0..5000).map(|i| i * 10).collect();
    let packed = open(&values);
    for _ in 0..2000 {
        let start = rng.below(5000) as usize;
        let range = start..start + rng.below(5001 - start as u64) as usize;
        let from = rng.below(51_000) as i64 - 500;
        let to = from + rng.below(51_000) as i64;
        let narrow = packed.narrow(range.clone(), from, to);
        assert!(narrow.start >= range.start && narrow.end <= range.end.max(narrow.start), "{narrow:?}");
        let wanted = |i: &usize| (from..=to).contains(&values[*i]);
        let all: Vec<_> = range.clone().filter(wanted).collect();
        let kept: Vec<_> = narrow.clone().filter(wanted).collect();
        assert_eq!(all, kept, "{range:?} from {from} to {to} became {narrow:?}");
        assert!(narrow.len() <= all.len() + 2 * 256, "{range:?} from {from} to {to} became {narrow:?}");
    }
}

#[test]
fn damage_is_reported_without_a_panic() {
    let mut rng = Rng::announced();
    let values = walk(&mut rng, 700, 13);
    let bytes = encoded(&values);
    assert!(Packed::open(bytes.clone(), 0, 699, None).is_none(), "another number of values");
    for len in 0..bytes.len() {
        assert!(
            Packed::open(bytes[..len].to_vec(), 0, 700, None).is_none(),
            "{len} of {} bytes",
            bytes.len()
        );
    }
    for _ in 0..5000 {
        let mut bytes = bytes.clone();
        let at = rng.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << rng.below(8);
        if let Some(packed) = Packed::open(bytes, 0, 700, None) {
            packed.read(0..700, &mut Vec::new());
        }
    }
}
