//! `/info`: steps, retention and aggregation of a metric, which carbon's rule files decide. The formats are go-carbon's.

use super::ask::Ask;
use super::protobuf::{Message, integer_len};
use crate::http::App;
use crate::http::error::{ApiError, TextError};
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::principal::ReadTenant;
use crate::listen::Peer;
use crate::query_source::label_queries::NodeOrder;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use paths::Pattern;
use rules::{Archive, Schema};
use std::sync::Arc;

/// The largest int32: 68 years. A retention without a limit is shown as this.
const SECONDS_MAX: u64 = i32::MAX as u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Json,
    Protobuf,
}

pub(super) async fn info(
    State(app): State<App>,
    peer: Peer,
    tenant: Result<ReadTenant, ApiError>,
    params: Result<Params, ApiError>,
) -> Result<Response, TextError> {
    let (ReadTenant(tenant), params) = (tenant?, params?);
    let format = Format::of(&params)?;
    let Some(name) = params.last("target") else {
        return Err(ApiError::bad_data("Missing required parameter 'target'").into());
    };
    let name: Arc<str> = name.into();
    let ask = Ask { tenant, path: "/info", text: Arc::clone(&name), peer };
    let content_type = match format {
        Format::Json => "application/json",
        Format::Protobuf => "application/x-protobuf",
    };
    let answer = ask.answer(&app, content_type, move |asked, out| {
        let queries = asked.queries(&asked.allowance());
        let only = Pattern::of_name(&name).map_err(|error| ApiError::bad_param("target", error));
        let nodes = queries.nodes(&mut std::iter::once(only), NodeOrder::ByPath)?;
        out.warn(&nodes.left_out);
        if !nodes.iter().any(|node| node.is_leaf) {
            if let Some(warning) = nodes.left_out.first() {
                // the metric may be in what could not be read
                return Err(ApiError::unavailable(warning));
            }
            let why = format!("there is no untagged metric {name}");
            return Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", why));
        }
        let rules = asked.app.node.rules().current();
        let schema = rules.schemas.rules().of(&name);
        match format {
            Format::Json => json(&name, &schema, out),
            Format::Protobuf => protobuf(&name, &schema, out),
        }
        Ok(())
    });
    answer.await
}

impl Format {
    fn of(params: &Params) -> Result<Self, ApiError> {
        match params.last("format").unwrap_or("json") {
            "json" => Ok(Self::Json),
            // carbonapi reads the same message when it asks for msgpack
            "protobuf" | "protobuf3" | "carbonapi_v2_pb" | "msgpack" => Ok(Self::Protobuf),
            _ => {
                let known = "json, protobuf, protobuf3, carbonapi_v2_pb and msgpack";
                Err(ApiError::bad_param("format", format!("only {known} are supported")))
            }
        }
    }
}

/// Seconds for which values are kept, and for each archive its step and number of points.
fn retentions(schema: &Schema<'_>) -> (u64, impl Iterator<Item = (i64, i64)>) {
    let bounded = |seconds: u64| seconds.min(SECONDS_MAX);
    let of = move |archive: &Archive| {
        let step_s = bounded(archive.step_s.max(1).into());
        (step_s as i64, (bounded(archive.retention_s()) / step_s).max(1) as i64)
    };
    (bounded(schema.retention_s().unwrap_or(u64::MAX)), schema.archives.iter().map(of))
}

fn json(name: &str, schema: &Schema<'_>, out: &mut Json) {
    let (retention_s, archives) = retentions(schema);
    out.raw(r#"{"name":"#);
    out.string(name);
    out.raw(r#","aggregationMethod":"#);
    out.string(schema.method.name());
    out.raw(&format!(r#","maxRetention":{retention_s},"xFilesFactor":"#));
    out.number(schema.x_files_factor);
    out.raw(r#","retentions":["#);
    for (i, (step_s, points)) in archives.enumerate() {
        out.comma(i);
        out.raw(&format!(r#"{{"secondsPerPoint":{step_s},"numberOfPoints":{points}}}"#));
    }
    out.raw("]}");
}

/// `InfoResponse` of `carbonapi_v2_pb`.
fn protobuf(name: &str, schema: &Schema<'_>, out: &mut Json) {
    let (retention_s, archives) = retentions(schema);
    let mut message = Message::new(out);
    message.text(1, name);
    message.text(2, schema.method.name());
    message.integer(3, retention_s as i64);
    message.float(4, schema.x_files_factor as f32);
    for (step_s, points) in archives {
        message.begin(5, integer_len(step_s) + integer_len(points));
        message.integer(1, step_s);
        message.integer(2, points);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::Method;

    #[test]
    fn seconds_are_numbers_of_32_bits() {
        let check = |archive: Archive, expected: (u64, (i64, i64))| {
            let archives = &[archive];
            let schema =
                Schema { number: 0, section: "test", archives, method: Method::Average, x_files_factor: 0.5 };
            let (retention_s, mut shown) = retentions(&schema);
            assert_eq!((retention_s, shown.next().unwrap()), expected, "{archive:?}");
        };
        const MAX: i64 = i32::MAX as i64;
        check(Archive { step_s: 60, points: 10 }, (600, (60, 10)));
        check(Archive { step_s: u32::MAX, points: 1 }, (MAX as u64, (MAX, 1)));
        check(Archive { step_s: 1, points: u32::MAX }, (MAX as u64, (1, MAX)));
    }
}
