//! The code of the fuzz targets. Each function panics if a decoder panics or breaks one of its guarantees.
//! The directory `fuzz/` calls these functions under cargo-fuzz, and the crate's tests call them with mutated
//! requests.

use crate::csv::Columns;
use crate::exposition::{Dialect, TextLabels};
use crate::graphite::TimeOfArrival;
use crate::influx::{self, NameRule, Names, Precision};
use crate::labels::labels_of;
use crate::remote_write::Version;
use crate::{
    Body, DecodeError, Decoder, Encoding, INFLATED_BYTES_MAX, Inflater, LabelForm, Request, SharedLabels,
    csv, decompress_snappy, exposition, graphite, jsonl, otlp, records, remote_write, whisper,
};
use model::caps::{ATTRIBUTE_PATH_BYTES_MAX, BATCH_ATTRIBUTES_MAX, BODY_BYTES_MAX, TIMESTAMP_MS_MAX};
use model::labels::is_canonical;
use model::{
    Accumulator, Attribute, AttributeValues, Batch, BatchExponential, ExponentialTotals, LabelsBuilder,
    Records, SeriesKey, TotalsPart, TotalsPlace, TotalsRoom,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use stdx::budget::{Account, IncrementalReservation, Reservation};

pub fn remote_write_body(version: Version, body: &[u8]) {
    decode::<remote_write::Decoder>(version, Body::snappy(body));
}

pub fn graphite_body(body: &[u8]) {
    decode::<graphite::Decoder>(TimeOfArrival::Is(7), Body { encoding: Encoding::Identity, bytes: body });
}

/// `has_frames`: whether the body is a sequence of length-prefixed pickles.
pub fn graphite_pickle(has_frames: bool, body: &[u8]) {
    let format = graphite::Format { has_frames, arrival: TimeOfArrival::Is(7) };
    decode::<graphite::pickle::Decoder>(format, Body { encoding: Encoding::Identity, bytes: body });
}

pub fn graphite_protobuf(has_frames: bool, body: &[u8]) {
    let format = graphite::Format { has_frames, arrival: TimeOfArrival::Is(7) };
    decode::<graphite::protobuf::Decoder>(format, Body { encoding: Encoding::Identity, bytes: body });
}

/// Lines of Influx' protocol.
pub fn influx_body(body: &[u8]) {
    let names = Arc::new(Names::new(NameRule::MeasurementAndField, Some(("db", "telegraf"))));
    let format = influx::Format { precision: Precision::Nanoseconds, arrival_ms: 7, names };
    decode::<influx::Decoder>(format, Body { encoding: Encoding::Identity, bytes: body });
}

pub fn json_lines(body: &[u8]) {
    let format = jsonl::Format { labels: Arc::new(SharedLabels::new([("job", "x")])), first_line: 1 };
    decode::<jsonl::Decoder>(format, Body { encoding: Encoding::Identity, bytes: body });
}

pub fn text_lines(dialect: Dialect, body: &[u8]) {
    let labels = Arc::new(TextLabels(SharedLabels::new([("job", "x")])));
    let format = exposition::Format { dialect, labels, arrival_ms: 7, first_line: 1 };
    decode::<exposition::Decoder>(format, Body { encoding: Encoding::Identity, bytes: body });
}

/// The first line is the map of columns.
pub fn csv_rows(body: &[u8]) {
    let (map, rows) = body.split_at(body.iter().position(|byte| *byte == b'\n').unwrap_or(body.len()));
    let Ok(columns) = Columns::parse(&String::from_utf8_lossy(map), SharedLabels::default()) else { return };
    let format = csv::Format { columns: Arc::new(columns), arrival_ms: 7, first_line: 1 };
    decode::<csv::Decoder>(format, Body { encoding: Encoding::Identity, bytes: rows });
}

/// Records of any format. Checks that columns and reservations are consistent.
pub fn records(format: records::Format, body: &[u8]) {
    let account = Account::new("fuzz", ACCOUNT_BYTES);
    let mut memory = account.reserve(0).expect("BUG: cannot reserve 0 bytes");
    let request = records::Request { body, arrival_us: 7, times: records::Times::ANY, first_line: 1 };
    let Ok(decoded) = records::decode(format, request, &mut memory) else { return };
    assert_eq!(memory.bytes(), decoded.records.memory_bytes() as u64);
    assert!(decoded.refused.first.len() as u64 <= decoded.refused.count);
    check_records(&decoded.records);
}

/// OpenTelemetry's logs or traces.
pub fn otlp_records(signal: records::otlp::Signal, media: otlp::Media, body: &[u8]) {
    records_of_streams(body, |request, memory| records::otlp::decode(signal, media, request, memory));
}

/// A bulk request of Elasticsearch.
pub fn bulk_records(body: &[u8]) {
    let options = records::bulk::Options { index: Some("logs".into()), is_brief: false };
    records_of_streams(body, |request, memory| {
        let (decoded, items) = records::bulk::decode(&options, request, memory)?;
        let bytes = items.json.iter().map(Vec::capacity).sum::<usize>();
        memory.resize(memory.bytes() - bytes as u64)?;
        let list = [b"[{\"x\":[", &*items.json.concat(), b"]}]"].concat();
        let again =
            records::Request { body: &list, arrival_us: 7, times: records::Times::ANY, first_line: 1 };
        let mut other = Account::new("fuzz", ACCOUNT_BYTES).reserve(0).expect("BUG: cannot reserve 0 bytes");
        let again = records::decode(records::Format::Json, again, &mut other);
        assert!(again.is_ok_and(|decoded| decoded.refused.count == 0), "{}", String::from_utf8_lossy(&list));
        assert_eq!(items.has_errors, decoded.refused.count > 0);
        Ok(decoded)
    });
}

/// A push request of Loki. `media` is that of the body, which is not compressed.
pub fn loki_records(media: otlp::Media, body: &[u8]) {
    records_of_streams(body, |request, memory| records::loki::decode(media, request, memory));
}

/// Records of several streams. Checks that columns and reservations are consistent.
fn records_of_streams(
    body: &[u8],
    decode: impl Fn(records::StreamsRequest<'_>, &mut Reservation) -> Result<records::DecodedStreams, DecodeError>,
) {
    let account = Account::new("fuzz", ACCOUNT_BYTES);
    let mut memory = account.reserve(0).expect("BUG: cannot reserve 0 bytes");
    let left_out = records::LeftOut::new();
    let request = records::StreamsRequest {
        body,
        arrival_us: 7,
        times: records::Times::ANY,
        stream: None,
        left_out: &left_out,
        records_bytes_max: usize::MAX,
    };
    let Ok(decoded) = decode(request, &mut memory) else { return };
    let bytes: usize = decoded.streams.iter().map(|(_, records)| records.memory_bytes()).sum();
    assert_eq!(memory.bytes(), bytes as u64);
    assert!(decoded.refused.first.len() as u64 <= decoded.refused.count);
    for (number, (stream, records)) in decoded.streams.iter().enumerate() {
        assert!(
            decoded.streams[..number].iter().all(|(other, _)| other != stream),
            "{stream} is there twice"
        );
        assert!(!records.is_empty(), "{stream}");
        check_records(records);
    }
}

fn check_records(records: &Records) {
    let mut memory = Account::new("fuzz", ACCOUNT_BYTES).reserve(0).expect("BUG: cannot reserve 0 bytes");
    let is_time = |us: &i64| (0..=1000 * TIMESTAMP_MS_MAX + 999).contains(us);
    assert!(records.times_us.iter().all(is_time), "a time is out of bounds");
    assert!(records.attributes.len() <= BATCH_ATTRIBUTES_MAX);
    for attribute in &records.attributes {
        let Attribute { path, rows, values } = attribute;
        assert!(path.len() <= ATTRIBUTE_PATH_BYTES_MAX, "a path of {} bytes", path.len());
        assert_eq!(rows.len(), values.len(), "{path:?}");
        assert!(rows.is_sorted_by(|a, b| a < b), "{path:?} has rows in a wrong order");
        assert!(rows.last().is_some_and(|row| (*row as usize) < records.len()), "{path:?}");
        if let AttributeValues::Json(texts) = values {
            for at in 0..texts.len() {
                let list = format!("[{{\"x\":{}}}]", texts.get(at));
                let request = records::Request {
                    body: list.as_bytes(),
                    arrival_us: 7,
                    times: records::Times::ANY,
                    first_line: 1,
                };
                let again = records::decode(records::Format::Json, request, &mut memory);
                assert!(again.is_ok(), "{list:?} is not valid: {again:?}");
            }
        }
    }
}

/// Checks that a body that arrives in pieces is decompressed like a whole one.
pub fn pieces_of_body(encoding: Encoding, body: &[u8]) {
    let account = Account::new("fuzz", u64::MAX);
    let mut memory = account.reserve(0).expect("BUG: cannot reserve 0 bytes");
    let mut whole = Vec::new();
    let expected =
        Body { encoding, bytes: body }.decompress(&mut whole, &mut IncrementalReservation::new(&mut memory));
    let pieces = inflated(encoding, body);
    match (expected, pieces) {
        (Ok(()), pieces) => assert_eq!(pieces.as_ref(), Ok(&whole)),
        // a limit on the whole body, or an error in what follows the end of a frame
        (Err(_), Ok(pieces)) => assert!(pieces.len() > BODY_BYTES_MAX || encoding != Encoding::Identity),
        (Err(_), Err(_)) => {}
    }
}

fn inflated(encoding: Encoding, body: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut inflater = Inflater::new(encoding)?;
    let (mut out, mut total) = (Vec::new(), Vec::new());
    let (mut rest, mut length) = (body, 1);
    while !rest.is_empty() {
        let taken = inflater.push(&rest[..rest.len().min(length)], &mut out)?;
        assert!(out.len() <= INFLATED_BYTES_MAX, "{} bytes at once", out.len());
        assert!(taken > 0 || !out.is_empty(), "no progress");
        total.append(&mut out);
        (rest, length) = (&rest[taken..], length % 1000 + 7);
    }
    while !inflater.finish(&mut out)? {
        assert!(out.len() <= INFLATED_BYTES_MAX, "{} bytes at once", out.len());
        total.append(&mut out);
    }
    total.append(&mut out);
    Ok(total)
}

pub fn otlp(media: otlp::Media, body: &[u8]) {
    let translation = otlp::Translation {
        promoted: otlp::Promoted::All,
        has_scope_labels: true,
        delta: otlp::Delta::Accumulated,
        ..otlp::Translation::default()
    };
    let format = otlp::Format::new(media, Arc::new(translation));
    decode::<otlp::Decoder>(format, Body { encoding: Encoding::Identity, bytes: body });
}

fn decode<D: Decoder>(format: D::Format, body: Body<'_>) {
    let batch = decode_once::<D>(format.clone(), body);
    if D::HAS_TOTALS && !batch.exponentials.is_empty() {
        let mut sums: BTreeMap<SeriesKey, Accumulator> = BTreeMap::new();
        let total_of = |one: &BatchExponential| {
            let sum = sums.entry(one.key).or_insert_with(|| Accumulator::new(0, 0));
            Some(sum.add_exponential(&one.increment, &one.counts, true).map(|(_, sum)| sum))
        };
        let totals: ExponentialTotals = batch.exponentials.iter().map(total_of).collect();
        let offsets: Arc<[u32]> = batch.exponentials.iter().map(|one| one.offset).collect();
        assert!(offsets.is_sorted_by(|a, b| a < b), "points have the same place");
        let bytes = batch.message.as_deref().unwrap_or(body.bytes);
        let message = Body { encoding: Encoding::Identity, bytes };
        let room = TotalsRoom { series: 100, label_bytes: 10_000 };
        let mut next = Some(TotalsPlace::default());
        while let Some(from) = next {
            let part = TotalsPart { totals: Arc::clone(&totals), offsets: Arc::clone(&offsets), from, room };
            next = decode_once::<D>(D::with_totals(format.clone(), part), message).left;
        }
    }
}

fn decode_once<D: Decoder>(format: D::Format, body: Body<'_>) -> Batch {
    let mut batch = Batch::default();
    let account = Account::new("fuzz", ACCOUNT_BYTES);
    let mut memory = account.reserve(0).expect("BUG: cannot reserve 0 bytes");
    let mut decoder = D::new(SEED);
    let decoded = decoder.decode(Request { format: format.clone(), body }, &mut batch, &mut memory);
    let grown = batch.memory_bytes() + decoder.memory_bytes();
    let reserved_bytes = memory.bytes() + ONE_SERIES_BYTES;
    assert!(
        decoded.is_err() || grown as u64 <= reserved_bytes,
        "{grown} bytes in use, {} reserved",
        memory.bytes()
    );
    check(&batch, D::label_form(&format));
    if decoded.is_err() {
        assert!(
            batch.floats.series.is_empty() && batch.bytes.is_empty(),
            "a failed request leaves data in the batch"
        );
    } else {
        assert!(body.decoded_len().is_ok(), "decoded a body with an invalid declared length");
    }
    batch
}

/// Compresses a message, then decodes it. Random input gets further here than in [`remote_write_body`],
/// because it need not be a valid snappy block.
pub fn remote_write_message(version: Version, message: &[u8]) {
    let body = snap::raw::Encoder::new().compress_vec(message);
    remote_write_body(version, &body.expect("BUG: the input is too large for a snappy block"));
}

/// Checks that our snappy decompressor and the `snap` crate return the same result.
pub fn snappy_block(body: &[u8]) {
    let mut ours = Vec::new();
    let decompressed = decompress_snappy(body, &mut ours);
    if Body::snappy(body).decoded_len().is_err() {
        assert!(decompressed.is_err(), "decompressed a body with an invalid declared length");
        return;
    }
    match snap::raw::Decoder::new().decompress_vec(body) {
        Ok(theirs) => assert!(
            decompressed.is_ok() && ours == theirs,
            "the snap crate accepts the body, but our result fails or differs"
        ),
        Err(e) => assert!(decompressed.is_err(), "the snap crate refuses the body, but ours does not: {e}"),
    }
}

/// Checks that the points of a Whisper file come in the order of time, and that there are no more of them than the file
/// has.
pub fn whisper_file(bytes: &[u8]) {
    let Ok(file) = whisper::File::parse(bytes) else { return };
    let (mut points, mut last_s) = (0, i64::MIN);
    file.each(i64::MAX, |_, at_s, _| {
        assert!(at_s > last_s, "{at_s} comes after {last_s}");
        (points, last_s) = (points + 1, at_s);
    });
    let room: u64 = file.header.archives.iter().map(|archive| u64::from(archive.points)).sum();
    assert!(points <= room, "{points} points in a file with room for {room}");
}

pub fn series_labels(raw: &[u8]) {
    let mut builder = LabelsBuilder::new();
    if let Ok(labels) = labels_of(raw, &mut builder) {
        assert!(is_canonical(labels.as_bytes()), "{labels:?} is not canonical");
        let again = labels_of(labels.as_bytes(), &mut builder);
        assert_eq!(again.as_ref(), Ok(&labels), "canonical labels are not their own canonical form");
    }
}

const SEED: u64 = 7;

const ONE_SERIES_BYTES: u64 = 512 << 10;

/// The decoder's memory budget. It is too small for some inputs, so that the fuzzer also exercises exhausted
/// memory.
const ACCOUNT_BYTES: u64 = 4 << 20;

fn check(batch: &Batch, form: &dyn LabelForm) {
    assert_eq!(batch.floats.timestamps.len(), batch.floats.values.len());
    let mut next_sample = 0;
    for series in &batch.floats.series {
        assert_eq!(series.samples.start, next_sample, "samples are not in the order of their series");
        next_sample = series.samples.end;
        let raw = batch.label_bytes(series);
        if form.is_encoded() {
            assert_eq!(series.key, SeriesKey::of(raw, SEED));
            series_labels(raw);
        } else if let Ok(labels) = form.labels_of(&batch.bytes, &series.labels, &mut LabelsBuilder::new()) {
            assert!(is_canonical(labels.as_bytes()), "{labels:?} is not canonical");
        }
        form.describe(&batch.bytes, &series.labels);
    }
    assert_eq!(next_sample as usize, batch.floats.timestamps.len(), "a sample has no series");
    assert!(batch.floats.exemplars.iter().all(|(at, _)| (*at as usize) < batch.floats.series.len()));
    for (_, labels) in &batch.refused {
        assert!(batch.bytes.get(labels.start as usize..labels.end as usize).is_some());
    }
}
