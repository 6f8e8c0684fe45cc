//! Formats of answers. To add one: a variant, its name in `NAMES` and `of`, its content type, and its encoder in a
//! module of its own.

mod json;

use super::request::RenderRequest;
use crate::http::error::ApiError;
use crate::http::json::Json;
use crate::http::params::Params;
use crate::http::queries::query_threads::Turn;
use query::graphite::Series;

/// Formats that the parameter `format` may name.
const NAMES: &str = "json";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Json,
}

impl Format {
    pub(super) fn of(params: &Params) -> Result<Self, ApiError> {
        // graphite-web draws a picture if no format is given
        match params.get("format").unwrap_or("png") {
            "json" => Ok(Self::Json),
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
        }
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
        }
    }
}
