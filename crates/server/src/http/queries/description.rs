//! Describes a reading request in lists and logs.

use crate::http::json::Json;
use crate::listen::Peer;
use model::TenantSet;
use std::borrow::Cow;
use std::sync::Arc;

/// A longer query is cut to this length in lists and logs.
const TEXT_BYTES_MAX: usize = 4 << 10;

pub(crate) const EXPORT_PATH: &str = "/api/v1/export";

#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) tenants: TenantSet,
    /// Path of the route, even if the request had a prefix such as `/prometheus`.
    pub(crate) path: &'static str,
    /// The PromQL expression or the selectors. Its memory is part of the request's reservation.
    pub(crate) text: Arc<str>,
    pub(crate) times: Times,
    pub(crate) peer: Peer,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    pub(crate) start_ms: Option<i64>,
    pub(crate) end_ms: Option<i64>,
    pub(crate) step_ms: Option<i64>,
}

impl Times {
    pub(crate) fn at(at_ms: i64) -> Self {
        Self { start_ms: Some(at_ms), end_ms: Some(at_ms), step_ms: None }
    }

    pub(crate) fn of(range: model::TimeRange) -> Self {
        let given = |ms, open| Some(ms).filter(|ms| *ms != open);
        Self {
            start_ms: given(range.start_ms, i64::MIN),
            end_ms: given(range.end_ms, i64::MAX),
            step_ms: None,
        }
    }
}

impl Description {
    /// True for an export. Its duration depends mostly on how fast its client reads.
    pub(crate) fn is_export(&self) -> bool {
        self.path == EXPORT_PATH
    }

    pub(crate) fn short_text(&self) -> Cow<'_, str> {
        match self.text.len() <= TEXT_BYTES_MAX {
            true => Cow::Borrowed(&self.text),
            false => Cow::Owned(format!("{}…", &self.text[..self.text.floor_char_boundary(TEXT_BYTES_MAX)])),
        }
    }

    #[cfg(test)]
    pub(crate) fn for_test() -> Self {
        Self {
            tenants: model::TenantId::anonymous().into(),
            path: "/api/v1/query",
            text: "up".into(),
            times: Times::at(1_500),
            peer: Peer::unknown(),
        }
    }

    /// Writes the fields of the description into a JSON object that is already open.
    pub(crate) fn write(&self, json: &mut Json) {
        json.raw(r#""tenant":"#);
        json.string(&self.tenants.to_string());
        json.raw(r#","client":"#);
        json.string(&self.peer.0.to_string());
        json.raw(r#","path":"#);
        json.string(self.path);
        json.raw(r#","query":"#);
        json.string(&self.short_text());
        let Times { start_ms, end_ms, step_ms } = self.times;
        for (name, ms) in [("start", start_ms), ("end", end_ms), ("step", step_ms)] {
            if let Some(ms) = ms {
                json.raw(",");
                json.string(name);
                json.raw(":");
                json.time(ms);
            }
        }
    }
}
