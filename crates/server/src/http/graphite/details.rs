//! `/metrics/details`: when metrics were last written, in the formats of go-carbon.
//!
//! go-carbon also knows the sizes of a metric's files, and when they were last read. Here, metrics have no files of their
//! own, so these fields keep their default value, which is not written in either format.

use super::answer::{Callback, limit, respond};
use super::ask::{Ask, Asked};
use super::protobuf::{Message, bytes_len, integer_len};
use crate::http::App;
use crate::http::error::{ApiError, TextError};
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::principal::ReadTenant;
use crate::http::queries::admission::check_canceled;
use crate::http::queries::query_threads::Turn;
use crate::listen::Peer;
use crate::machine::{DiskSpace, disk_space};
use crate::query_source::label_queries::{Detail, Details};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use std::sync::Arc;

/// Number of metrics written between two checks for cancellation.
const CHECK_METRICS: usize = 1_000;

const PROTOBUF_V3: &str = "application/x-carbonapi-v3-pb";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    ProtobufV2,
    ProtobufV3,
}

pub(super) async fn details(
    State(app): State<App>,
    peer: Peer,
    tenant: Result<ReadTenant, ApiError>,
    headers: HeaderMap,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let (ReadTenant(tenant), params) = (tenant?, params?);
    let (format, callback) = (Format::of(&headers, &params)?, Callback::of(&params, app.node.settings())?);
    let pattern: Arc<str> = params.last("query").unwrap_or("**").into();
    let (after, limit) = (params.last("after").unwrap_or_default().to_owned(), limit(&params)?);
    let ask = Ask { tenant, path: "/metrics/details", text: Arc::clone(&pattern), peer };
    let content_type = match format {
        Format::Json => callback.content_type(),
        Format::ProtobufV2 => "application/x-protobuf",
        Format::ProtobufV3 => PROTOBUF_V3,
    };
    let answer = ask.json(&app, move |asked, out| {
        let Asked { app, turn, .. } = asked;
        let found = asked.path_queries().details(&asked.parse(&pattern)?, &after, limit)?;
        out.warn(&found.left_out);
        let space = disk_space(&app.node.settings().data_dir);
        match format {
            Format::Json => {
                callback.begin(out);
                json(&found, space, turn, out)?;
                callback.end(out);
            }
            Format::ProtobufV2 | Format::ProtobufV3 => protobuf(&found, space, turn, out)?,
        }
        Ok(())
    });
    Ok(respond(answer.await?, content_type))
}

impl Format {
    /// As in go-carbon, the header `Accept` takes precedence over `format`.
    fn of(headers: &HeaderMap, params: &Params) -> Result<Self, ApiError> {
        if headers.get_all(header::ACCEPT).iter().any(|accept| accept == PROTOBUF_V3) {
            return Ok(Self::ProtobufV3);
        }
        match params.last("format").unwrap_or("json") {
            "json" => Ok(Self::Json),
            "protobuf" | "protobuf3" | "carbonapi_v2_pb" => Ok(Self::ProtobufV2),
            "carbonapi_v3_pb" => Ok(Self::ProtobufV3),
            _ => {
                let known = "json, protobuf, protobuf3, carbonapi_v2_pb and carbonapi_v3_pb";
                Err(ApiError::bad_param("format", format!("only {known} are supported")))
            }
        }
    }
}

/// Seconds since 1970, or 0 if unknown.
fn mod_time_s(detail: &Detail<'_>) -> i64 {
    detail.newest_ms.map_or(0, |newest_ms| newest_ms.div_euclid(1000))
}

fn each(found: &Details, turn: &Turn, mut write: impl FnMut(usize, &Detail<'_>)) -> Result<(), ApiError> {
    for (i, detail) in found.iter().enumerate() {
        if i % CHECK_METRICS == 0 {
            check_canceled(turn)?;
        }
        write(i, &detail);
    }
    Ok(())
}

fn json(found: &Details, space: Option<DiskSpace>, turn: &Turn, out: &mut Json) -> Result<(), ApiError> {
    out.raw(r#"{"Metrics":["#);
    each(found, turn, |i, detail| {
        out.comma(i);
        out.raw("{");
        let mod_time_s = mod_time_s(detail);
        if mod_time_s != 0 {
            out.raw(r#""ModTime":"#);
            out.integer(mod_time_s);
            out.raw(",");
        }
        out.raw(r#""Name":"#);
        out.string(detail.path);
        out.raw("}");
    })?;
    let [free_bytes, total_bytes] = space.map_or([0; 2], |space| [space.free_bytes, space.total_bytes]);
    out.raw(&format!(r#"],"FreeSpace":{free_bytes},"TotalSpace":{total_bytes}}}"#));
    Ok(())
}

/// `MetricDetailsResponse` of `carbonapi_v3_pb`, which go-carbon uses for both versions.
fn protobuf(found: &Details, space: Option<DiskSpace>, turn: &Turn, out: &mut Json) -> Result<(), ApiError> {
    each(found, turn, |_, detail| {
        let mod_time_s = mod_time_s(detail);
        let own_len = integer_len(mod_time_s);
        let mut message = Message::new(out);
        message.begin(1, bytes_len(detail.path.len()) + bytes_len(own_len));
        message.text(1, detail.path);
        message.begin(2, own_len);
        message.integer(3, mod_time_s);
    })?;
    if let Some(DiskSpace { free_bytes, total_bytes }) = space {
        let mut message = Message::new(out);
        message.integer(2, free_bytes as i64);
        message.integer(3, total_bytes as i64);
    }
    Ok(())
}
