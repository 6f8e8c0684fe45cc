//! Formats that servers of Graphite use among each other: Python's pickle and MessagePack of graphite-web, and the
//! messages of go-graphite's protocol buffers.

use super::write_values;
use crate::http::error::ApiError;
use crate::http::graphite::msgpack::MsgPack;
use crate::http::graphite::pickle::Pickle;
use crate::http::graphite::protobuf::{Message, bytes_len, integer_len};
use crate::http::json::Json;
use crate::http::queries::admission::check_canceled;
use crate::http::queries::query_threads::Turn;
use query::graphite::{Aggregate, Series};

/// The fields of a series, in pickle and MessagePack.
const FIELDS: [&str; 9] = [
    "name",
    "start",
    "end",
    "step",
    "values",
    "pathExpression",
    "valuesPerPoint",
    "consolidationFunc",
    "xFilesFactor",
];

const fn name_of(consolidation: Aggregate) -> &'static str {
    match consolidation {
        Aggregate::Average | Aggregate::Percentile(_) => "average",
        Aggregate::AvgZero => "avg_zero",
        Aggregate::Sum => "sum",
        Aggregate::Min => "min",
        Aggregate::Max => "max",
        Aggregate::First => "first",
        Aggregate::Last => "last",
        Aggregate::Median => "median",
        Aggregate::Count => "count",
        Aggregate::Diff => "diff",
        Aggregate::Range => "range",
        Aggregate::Multiply => "multiply",
        Aggregate::Stddev => "stddev",
        Aggregate::AbsMax => "absmax",
        Aggregate::AbsMin => "absmin",
    }
}

pub(super) fn pickle(all: &[Series], turn: &Turn) -> Result<Json, ApiError> {
    let mut out = Json::within(&turn.limits.answers);
    let mut pickle = Pickle::begin(&mut out);
    pickle.begin_list();
    for series in all {
        check_canceled(turn)?;
        pickle.begin_dict();
        for field in FIELDS {
            pickle.string(field);
            match field {
                "name" => pickle.string(&series.name),
                "start" => pickle.integer(series.start_s),
                "end" => pickle.integer(series.end_s),
                "step" => pickle.integer(series.step_s),
                "values" => {
                    pickle.begin_list();
                    write_values(&series.values, turn, |_, value| pickle.number(value))?;
                    pickle.end_list();
                }
                "pathExpression" => pickle.string(&series.path_expression),
                "valuesPerPoint" => pickle.integer(series.values_per_point as i64),
                "consolidationFunc" => pickle.string(name_of(series.consolidation)),
                _ => pickle.number(series.x_files_factor),
            }
        }
        pickle.end_dict();
    }
    pickle.end_list();
    pickle.end();
    Ok(out.finish()?)
}

pub(super) fn msgpack(all: &[Series], turn: &Turn) -> Result<Json, ApiError> {
    let mut out = Json::within(&turn.limits.answers);
    let mut pack = MsgPack::new(&mut out);
    pack.list(all.len());
    for series in all {
        check_canceled(turn)?;
        pack.map(FIELDS.len() as u8);
        for field in FIELDS {
            pack.string(field);
            match field {
                "name" => pack.string(&series.name),
                "start" => pack.integer(series.start_s),
                "end" => pack.integer(series.end_s),
                "step" => pack.integer(series.step_s),
                "values" => {
                    pack.list(series.values.len());
                    write_values(&series.values, turn, |_, value| pack.number(value))?;
                }
                "pathExpression" => pack.string(&series.path_expression),
                "valuesPerPoint" => pack.integer(series.values_per_point as i64),
                "consolidationFunc" => pack.string(name_of(series.consolidation)),
                _ => pack.number(series.x_files_factor),
            }
        }
    }
    Ok(out.finish()?)
}

/// `MultiFetchResponse` of `carbonapi_v2_pb`. A missing value is 0, and marked as absent.
pub(super) fn protobuf_v2(all: &[Series], turn: &Turn) -> Result<Json, ApiError> {
    let mut out = Json::within(&turn.limits.answers);
    for series in all {
        check_canceled(turn)?;
        let Series { name, start_s, step_s, values, .. } = series;
        let stop_s = stop_of(series);
        let numbers = [(2, *start_s), (3, stop_s), (4, *step_s)];
        let numbers_len: usize = numbers.iter().map(|(_, number)| integer_len(*number)).sum();
        let len = bytes_len(name.len()) + numbers_len + bytes_len(8 * values.len()) + bytes_len(values.len());
        let mut message = Message::new(&mut out);
        message.begin(1, len);
        message.text(1, name);
        numbers.iter().for_each(|(field, number)| message.integer(*field, *number));
        message.begin(5, 8 * values.len());
        write_values(values, turn, |_, value| {
            message.bytes(&if value.is_nan() { 0.0 } else { value }.to_le_bytes());
        })?;
        message.begin(6, values.len());
        write_values(values, turn, |_, value| message.bytes(&[u8::from(value.is_nan())]))?;
    }
    Ok(out.finish()?)
}

/// `MultiFetchResponse` of `carbonapi_v3_pb`. A missing value is NaN.
pub(super) fn protobuf_v3(all: &[Series], from_s: i64, until_s: i64, turn: &Turn) -> Result<Json, ApiError> {
    let mut out = Json::within(&turn.limits.answers);
    for series in all {
        check_canceled(turn)?;
        let Series { name, path_expression, consolidation, start_s, step_s, values, .. } = series;
        let texts = [(1, name.as_str()), (2, &**path_expression), (3, name_of(*consolidation))];
        let times = [(4, *start_s), (5, stop_of(series)), (6, *step_s)];
        let request = [(11, from_s), (12, until_s)];
        let texts_len: usize = texts.iter().map(|(_, text)| bytes_len(text.len())).sum();
        let integers_len: usize = times.iter().chain(&request).map(|(_, number)| integer_len(*number)).sum();
        let mut message = Message::new(&mut out);
        message.begin(1, texts_len + integers_len + 5 + bytes_len(8 * values.len()));
        texts.iter().for_each(|(field, text)| message.text(*field, text));
        times.iter().for_each(|(field, number)| message.integer(*field, *number));
        message.float(7, series.x_files_factor as f32);
        message.begin(9, 8 * values.len());
        write_values(values, turn, |_, value| message.bytes(&value.to_le_bytes()))?;
        request.iter().for_each(|(field, number)| message.integer(*field, *number));
    }
    Ok(out.finish()?)
}

fn stop_of(series: &Series) -> i64 {
    series.start_s.saturating_add(series.step_s.saturating_mul(series.values.len() as i64))
}
