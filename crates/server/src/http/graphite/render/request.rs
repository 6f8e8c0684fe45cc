//! The parameters of `/render`.

use super::super::answer::Callback;
use super::format::Format;
use crate::http::error::ApiError;
use crate::http::params::Params;
use crate::http::queries::description::{Description, Times};
use crate::listen::Peer;
use crate::settings::Settings;
use jiff::tz::TimeZone;
use model::TenantId;
use query::graphite::TARGET_BYTES_MAX;
use query::graphite::at_time::{self, within_reach};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct RenderRequest {
    pub(super) targets: Vec<String>,
    pub(super) from_s: i64,
    pub(super) until_s: i64,
    pub(super) now_s: i64,
    pub(super) time_zone: TimeZone,
    pub(super) format: Format,
    pub(super) callback: Callback,
    /// Number of points that the client can show for each series.
    pub(super) max_data_points: Option<u64>,
    /// True if points without a value are left out, and series without values.
    pub(super) no_null_points: bool,
    pub(super) x_files_factor: Option<f64>,
    /// Values for the variables of `template`, from `template[name]=value`.
    pub(super) variables: Vec<(String, String)>,
    /// Keeps the memory of the texts reserved while the request waits and runs.
    _params: Params,
}

impl RenderRequest {
    /// Reads the parameters. `clock_ms` is the present time, unless the request gives another.
    pub(super) fn of(given: Params, settings: &Settings, clock_ms: i64) -> Result<Self, ApiError> {
        let params = &given;
        let time_zone = time_zone_of(params)?;
        let clock_s = clock_ms.div_euclid(1000);
        let time = |name: &str, text: &str, now_s: i64| {
            let parsed = at_time::parse(text, now_s, &time_zone);
            parsed.map(within_reach).map_err(|error| ApiError::bad_param(name, error))
        };
        let now_s = params.last("now").map_or(Ok(clock_s), |text| time("now", text, clock_s))?;
        let from_s = time("from", params.last("from").unwrap_or("-1d"), now_s)?;
        let until_s = params.last("until").map_or(Ok(now_s), |text| time("until", text, now_s))?;
        if from_s == until_s {
            return Err(ApiError::bad_data("invalid time range: from and until are the same time"));
        }
        let targets = params.all("target").chain(params.all("target[]"));
        let targets = targets.filter(|target| !target.trim().is_empty()).map(|target| {
            // a target that is too long is refused before the request waits for its turn
            match target.len() > TARGET_BYTES_MAX {
                true => Err(ApiError::bad_data(format!(
                    "target has {} bytes, the limit is {TARGET_BYTES_MAX}",
                    target.len()
                ))),
                false => Ok(target.to_owned()),
            }
        });
        let variable = |(name, value): (&str, &str)| {
            let name = name.strip_prefix("template[")?.strip_suffix(']')?;
            Some((name.to_owned(), value.to_owned()))
        };
        let no_null_points = params.all("noNullPoints").next().is_some();
        Ok(Self {
            targets: targets.collect::<Result<_, _>>()?,
            from_s: from_s.min(until_s),
            until_s: from_s.max(until_s),
            now_s,
            format: Format::of(params)?,
            callback: Callback::of(params, settings)?,
            max_data_points: max_data_points_of(params)?,
            no_null_points,
            x_files_factor: x_files_factor_of(params)?,
            variables: params.iter().filter_map(variable).collect(),
            time_zone,
            _params: given,
        })
    }

    pub(super) const fn content_type(&self) -> &'static str {
        match self.format.is_script() {
            true => self.callback.content_type(),
            false => self.format.content_type(),
        }
    }

    pub(super) fn description(&self, tenant: &TenantId, peer: Peer) -> Description {
        let ms = |seconds: i64| Some(seconds.saturating_mul(1000));
        let times = Times { start_ms: ms(self.from_s), end_ms: ms(self.until_s), step_ms: None };
        let text: Arc<str> = self.targets.join(", ").into();
        Description { tenants: tenant.clone().into(), path: "/render", text, times, peer }
    }
}

fn time_zone_of(params: &Params) -> Result<TimeZone, ApiError> {
    let Some(name) = params.last("tz") else { return Ok(TimeZone::UTC) };
    if matches!(name, "UTC" | "Etc/UTC") {
        return Ok(TimeZone::UTC);
    }
    TimeZone::get(name).map_err(|_| {
        let why = format!("the system has no time zone {:?}", name.chars().take(100).collect::<String>());
        ApiError::bad_param("tz", why)
    })
}

/// Reads `maxDataPoints`. As in graphite-web, a value that is not a number is ignored.
fn max_data_points_of(params: &Params) -> Result<Option<u64>, ApiError> {
    match params.last("maxDataPoints").and_then(|text| text.parse().ok()) {
        Some(0) => Err(ApiError::bad_param("maxDataPoints", "must be at least 1")),
        points => Ok(points),
    }
}

fn x_files_factor_of(params: &Params) -> Result<Option<f64>, ApiError> {
    let Some(text) = params.last("xFilesFactor") else { return Ok(None) };
    let factor = text.parse().ok().filter(|factor| (0.0..=1.0).contains(factor));
    factor.map(Some).ok_or_else(|| ApiError::bad_param("xFilesFactor", "must be a number from 0 to 1"))
}
