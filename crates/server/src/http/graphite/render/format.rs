//! Formats of answers. To add one: a variant, its name in `NAMES` and `of`, its content type, and its encoder in a
//! module of its own.

mod binary;
mod json;
mod text;

use super::request::RenderRequest;
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::queries::admission::check_canceled;
use crate::http::queries::query_threads::Turn;
use query::graphite::Series;

/// Formats that the parameter `format` may name.
const NAMES: &str =
    "json, raw, csv, dygraph, rickshaw, pickle, msgpack, protobuf, carbonapi_v2_pb and carbonapi_v3_pb";

/// Formats of graphite-web and carbonapi that are pictures.
const PICTURES: [&str; 3] = ["png", "svg", "pdf"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Raw,
    Csv,
    Dygraph,
    Rickshaw,
    Pickle,
    MsgPack,
    ProtobufV2,
    ProtobufV3,
}

impl Format {
    pub(super) fn of(params: &Params) -> Result<Self, ApiError> {
        let has = |name: &str| params.all(name).next().is_some();
        let without_format = match (has("rawData"), has("pickle")) {
            (true, _) => "raw",
            (_, true) => "pickle",
            // graphite-web draws a picture if no format is given
            _ => "png",
        };
        match params.last("format").unwrap_or(without_format) {
            "json" => Ok(Self::Json),
            "raw" => Ok(Self::Raw),
            "csv" => Ok(Self::Csv),
            "dygraph" => Ok(Self::Dygraph),
            "rickshaw" => Ok(Self::Rickshaw),
            "pickle" => Ok(Self::Pickle),
            "msgpack" => Ok(Self::MsgPack),
            "protobuf" | "protobuf3" | "carbonapi_v2_pb" => Ok(Self::ProtobufV2),
            "carbonapi_v3_pb" => Ok(Self::ProtobufV3),
            picture if PICTURES.contains(&picture) => {
                let why = format!(
                    "pictures are not drawn; ask for format=json, and let Grafana draw it ({NAMES} are supported)"
                );
                Err(ApiError::bad_param("format", why))
            }
            other => {
                let other: String = other.chars().take(100).collect();
                Err(ApiError::bad_param("format", format!("{other:?} is not supported, only {NAMES}")))
            }
        }
    }

    /// Encodes the answer. The encoder checks for cancellation, and reserves the memory of the answer.
    pub(super) fn encode(
        self,
        series: Vec<Series>,
        request: &RenderRequest,
        turn: &Turn,
    ) -> Result<Json, ApiError> {
        match self {
            Self::Json => json::encode(series, request, turn),
            Self::Raw => text::raw(&series, turn),
            Self::Csv => text::csv(&series, request, turn),
            Self::Dygraph => text::dygraph(&series, request, turn),
            Self::Rickshaw => text::rickshaw(&series, request, turn),
            Self::Pickle => binary::pickle(&series, turn),
            Self::MsgPack => binary::msgpack(&series, turn),
            Self::ProtobufV2 => binary::protobuf_v2(&series, turn),
            Self::ProtobufV3 => binary::protobuf_v3(&series, request.from_s, request.until_s, turn),
        }
    }

    /// The content type, unless the answer is JSONP.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Json | Self::Dygraph | Self::Rickshaw => "application/json",
            Self::Raw => "text/plain; charset=utf-8",
            Self::Csv => "text/csv",
            Self::Pickle => "application/pickle",
            Self::MsgPack => "application/x-msgpack",
            Self::ProtobufV2 | Self::ProtobufV3 => "application/x-protobuf",
        }
    }

    /// True if the answer may call a function of the client.
    pub(super) const fn is_script(self) -> bool {
        matches!(self, Self::Json | Self::Dygraph | Self::Rickshaw)
    }
}

/// Number of values that are written without asking whether the query is canceled. The slowest takes about a microsecond.
const VALUES_PER_CHECK: usize = 8192;

/// Writes each value, with its place.
fn write_values(values: &[f64], turn: &Turn, mut write: impl FnMut(usize, f64)) -> Result<(), ApiError> {
    for (i, value) in values.iter().enumerate() {
        if i % VALUES_PER_CHECK == 0 {
            check_canceled(turn)?;
        }
        write(i, *value);
    }
    Ok(())
}
