use crate::http::error::ApiError;
use crate::http::params::Params;
use protocol::exposition::{self, Dialect};

pub(super) const LINE_SAMPLES: usize = 10_000;
const LINE_SAMPLES_MAX: usize = 1_000_000;

#[derive(Debug, Clone, Copy)]
pub(super) enum Format {
    Lines { samples: usize },
    Text(Dialect),
}

impl Format {
    pub(super) fn of(params: &Params) -> Result<Self, ApiError> {
        match params.get("format") {
            None | Some("jsonl") => {
                let samples = match params.get("max_rows_per_line").map(str::parse) {
                    None => LINE_SAMPLES,
                    Some(Ok(n)) => usize::clamp(n, 1, LINE_SAMPLES_MAX),
                    Some(Err(_)) => return Err(ApiError::bad_param("max_rows_per_line", "not a number")),
                };
                Ok(Self::Lines { samples })
            }
            Some("prometheus") => Ok(Self::Text(Dialect::Prometheus)),
            Some("openmetrics") => Ok(Self::Text(Dialect::OpenMetrics)),
            Some(other) => {
                let why = format!("{other:?} is not jsonl, prometheus or openmetrics");
                Err(ApiError::bad_param("format", why))
            }
        }
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Lines { .. } => "application/stream+json",
            Self::Text(Dialect::Prometheus) => "text/plain; version=0.0.4; charset=utf-8",
            Self::Text(Dialect::OpenMetrics) => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    pub(super) const fn end(self) -> &'static [u8] {
        match self {
            Self::Lines { .. } => b"",
            Self::Text(dialect) => exposition::end(dialect),
        }
    }
}
