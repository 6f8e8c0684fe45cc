//! Recognizes the requests that write samples.
//!
//! | path ends with | |
//! | --- | --- |
//! | `/v1/metrics`, `/opentelemetry/api/v1/push` | OpenTelemetry's points, in protobuf or JSON |
//! | `/write` with another ending than `/api/v1/write`; `/api/v2/write` | Influx' lines |
//! | `/api/v1/import` | JSON lines |
//! | `/api/v1/import/prometheus`, `/metrics/job/…` | text |
//! | `/api/v1/import/csv` | tables |
//! | `/api/v1/graphite` | Graphite's lines |
//! | the method of OpenTelemetry's metrics, over gRPC | OpenTelemetry's points, each message after a prefix |
//! | anything else, if the body is protobuf and compressed with snappy or zstd | remote write, also on Thanos' path |

use crate::capture::file::parse::{Extra, Kind, csv, influx, text};
use crate::generate::template::Version;
use crate::grpc;
use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use flate2::read::MultiGzDecoder;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName};
use hyper::{Method, Uri};
use model::caps::BODY_BYTES_MAX;
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::io::Read;

/// Limit on the window of zstd: a body needs no larger one.
const WINDOW_LOG_MAX: u32 = 26;

const _: () = assert!(1 << WINDOW_LOG_MAX == BODY_BYTES_MAX);

const TENANT: HeaderName = HeaderName::from_static("x-scope-orgid");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const THANOS_TENANT: HeaderName = HeaderName::from_static("thanos-tenant");
const THANOS_PATH: &str = "/api/v1/receive";

/// A request that writes samples.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WriteRequest {
    pub(super) kind: Kind,
    pub(super) encoding: Encoding,
    /// True for gRPC: a prefix says whether the message behind it is compressed, and how long it is.
    pub(super) is_framed: bool,
    /// Empty if the request names none.
    pub(super) tenant: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
    Zstd,
    Snappy,
}

impl WriteRequest {
    /// What was not sent over HTTP.
    pub(super) fn plain(kind: Kind) -> Self {
        Self { kind, encoding: Encoding::Identity, is_framed: false, tenant: String::new() }
    }

    /// The content of a body.
    pub(super) fn content<'a>(&self, body: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        if !self.is_framed {
            return self.encoding.decode(body);
        }
        let (is_compressed, message) = grpc::message(body).context("the body is not one whole message")?;
        if is_compressed { self.encoding.decode(message) } else { Encoding::Identity.decode(message) }
    }

    /// `None` for a request that writes no samples, or whose form is unknown.
    pub(super) fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<Self> {
        if !matches!(*method, Method::POST | Method::PUT) {
            return None;
        }
        let text = |name: &HeaderName| headers.get(name)?.to_str().ok();
        let content_type = text(&CONTENT_TYPE).unwrap_or_default();
        let is_framed = grpc::is_grpc(headers);
        let encoding = if is_framed { GRPC_ENCODING } else { CONTENT_ENCODING };
        let encoding = match text(&encoding).map(str::to_ascii_lowercase).as_deref() {
            None | Some("" | "identity") => Encoding::Identity,
            Some("gzip") => Encoding::Gzip,
            Some("zstd") => Encoding::Zstd,
            Some("snappy") => Encoding::Snappy,
            Some(_) => return None,
        };
        let path = uri.path();
        let kind = match is_framed {
            true => path.ends_with(grpc::EXPORT).then_some(Kind::OtlpGrpc)?,
            false => kind(path, uri.query().unwrap_or_default(), content_type, encoding)?,
        };
        let thanos = text(&THANOS_TENANT).filter(|_| path.ends_with(THANOS_PATH));
        let tenant = text(&TENANT).or(thanos).unwrap_or_default().to_owned();
        Some(Self { kind, encoding, is_framed, tenant })
    }
}

fn kind(path: &str, query: &str, content_type: &str, encoding: Encoding) -> Option<Kind> {
    let ends = |with: &str| path.ends_with(with);
    if ends("/v1/metrics") || ends("/opentelemetry/api/v1/push") {
        return Some(if content_type.starts_with("application/json") { Kind::OtlpJson } else { Kind::Otlp });
    }
    let all = |name: &'static str| {
        parameters(query).filter(move |(key, _)| key == name).map(|(_, value)| value.into_owned())
    };
    let one = |name| all(name).next();
    let extra = || -> Option<Vec<Extra>> {
        let split = |text: String| text.split_once('=').map(|(name, value)| (name.into(), value.into()));
        all("extra_label").map(split).collect()
    };
    let timestamp_ms = || one("timestamp").map(|text| text.parse().ok());
    if ends("/api/v1/import/csv") {
        let mut options = csv::Options::of(&one("format")?)?;
        options.has_header = one("header").is_some_and(|text| text == "true");
        (options.extra, options.timestamp_ms) = (extra()?, timestamp_ms().unwrap_or(None));
        return Some(Kind::Csv(options));
    }
    if ends("/api/v1/import") {
        return Some(Kind::JsonLines(extra()?));
    }
    if ends("/api/v1/graphite")
        && !content_type.contains("python-pickle")
        && !content_type.contains("protobuf")
    {
        return Some(Kind::GraphiteLines);
    }
    let pushed = path.split_once("/metrics/job").map(|(_, labels)| labels);
    if (ends("/api/v1/import/prometheus") || pushed.is_some()) && !content_type.contains("protobuf") {
        let mut extra = extra()?;
        if let Some(labels) = pushed {
            extra.extend(path_labels(labels)?);
        }
        let seconds = content_type.starts_with("application/openmetrics-text");
        let timestamp_ms = timestamp_ms().unwrap_or(None);
        return Some(Kind::Text(text::Options { seconds, timestamp_ms, extra }));
    }
    let is_protobuf = content_type.is_empty() || content_type.contains("protobuf");
    if is_protobuf && matches!(encoding, Encoding::Snappy | Encoding::Zstd) {
        return Some(Kind::RemoteWrite(Version::of_content_type(content_type)));
    }
    if ends("/write") && !ends("/api/v1/write") {
        return Some(Kind::Influx(influx::Options::of(one("precision").as_deref(), one("db"))?));
    }
    None
}

fn parameters(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        Cow::<str>::Owned(percent_decode_str(&text).decode_utf8_lossy().into_owned())
    };
    query.split('&').filter(|pair| !pair.is_empty()).map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(name), decode(value))
    })
}

/// Labels of a Pushgateway's path, after `/metrics/job`: `/backup/instance/web1`, or `@base64/…`.
fn path_labels(path: &str) -> Option<Vec<Extra>> {
    let mut parts = path.split('/');
    let mut names = std::iter::once(format!("job{}", parts.next()?));
    let mut labels = Vec::new();
    loop {
        let Some(name) = names.next().or_else(|| parts.next().map(str::to_owned)) else {
            return Some(labels);
        };
        let value = parts.next()?;
        let label = match name.strip_suffix("@base64") {
            Some(name) => {
                let engines = [URL_SAFE_NO_PAD, URL_SAFE, STANDARD_NO_PAD, STANDARD];
                let bytes = engines.iter().find_map(|engine| engine.decode(value).ok())?;
                (name.to_owned(), String::from_utf8(bytes).ok()?)
            }
            None => (name, percent_decode_str(value).decode_utf8().ok()?.into_owned()),
        };
        labels.push(label);
    }
}

impl Encoding {
    /// Decompresses a body. Fails if it has more than [`BODY_BYTES_MAX`].
    pub(super) fn decode(self, body: &[u8]) -> Result<Cow<'_, [u8]>> {
        let limited = |reader: &mut dyn Read| -> Result<Vec<u8>> {
            let mut content = Vec::new();
            reader.take(BODY_BYTES_MAX as u64 + 1).read_to_end(&mut content)?;
            Ok(content)
        };
        let content = match self {
            Self::Identity => Cow::Borrowed(body),
            Self::Gzip => limited(&mut MultiGzDecoder::new(body))?.into(),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(body)?;
                decoder.window_log_max(WINDOW_LOG_MAX)?;
                limited(&mut decoder)?.into()
            }
            Self::Snappy => {
                let bytes = snap::raw::decompress_len(body).context("cannot read the length of the body")?;
                if bytes > BODY_BYTES_MAX {
                    bail!("the body decompresses to {bytes} bytes, the limit is {BODY_BYTES_MAX}");
                }
                let content = snap::raw::Decoder::new().decompress_vec(body);
                content.context("cannot decompress the body")?.into()
            }
        };
        ensure!(content.len() <= BODY_BYTES_MAX, "the body decompresses to more than {BODY_BYTES_MAX} bytes");
        Ok(content)
    }
}

#[cfg(test)]
mod tests;
