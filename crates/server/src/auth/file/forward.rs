//! Section `[forward]` of `auth_file`: an external authentication service.

use super::jwt::text_of;
use super::{Fault, fault, patterns_of, roles_of, tenants_for, words};
use crate::auth::forward::service::{HEADERS_MAX, Service};
use crate::outgoing;
use hyper::Uri;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderName, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use std::time::Duration;
use stdx::units::duration_ms;
use toml::Spanned;
use toml::de::DeValue;

const TENANT_HEADER: HeaderName = HeaderName::from_static("x-scope-orgid");
const ROLES_HEADER: HeaderName = HeaderName::from_static("x-floodmark-roles");

/// Headers that concern only the client's connection to this server. They must not be passed on to the service.
const OWN: [HeaderName; 7] = [CONNECTION, CONTENT_LENGTH, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// If `roles_header` has this value, answers do not name roles.
const NONE: &str = "none";

/// Limits on `timeout` and on `remember`. The longer an answer is remembered, the later a revoked right loses
/// its effect.
const TIMEOUT_MS_MAX: i64 = 30_000;
const REMEMBER_MS_MAX: i64 = 3_600_000;

pub(super) fn service(at: usize, value: &Spanned<DeValue<'_>>) -> Result<Service, Fault> {
    let DeValue::Table(table) = value.get_ref() else {
        return fault(at, "forward must be a table [forward]");
    };
    let (mut uri, mut tenants, mut roles) = (None, None, None);
    let mut headers = vec![AUTHORIZATION, COOKIE];
    let (mut tenant_header, mut roles_header, mut user_header) = (TENANT_HEADER, Some(ROLES_HEADER), None);
    let [mut timeout, mut remember, mut remember_refusals] = [5, 60, 5].map(Duration::from_secs);
    for (key, value) in table {
        match &**key.get_ref() {
            "url" => uri = Some(uri_of(value)?),
            "headers" => headers = headers_of(value)?,
            "tenant_header" => tenant_header = header_of(text_of(value)?, value.span().start)?,
            "roles_header" if value.get_ref().as_str() == Some(NONE) => roles_header = None,
            "roles_header" => roles_header = Some(header_of(text_of(value)?, value.span().start)?),
            "user_header" => user_header = Some(header_of(text_of(value)?, value.span().start)?),
            "tenants" => tenants = Some(patterns_of(value)?),
            "roles" => roles = Some(roles_of(value)?),
            "timeout" => {
                timeout = duration_of(value, TIMEOUT_MS_MAX, "timeout must be a duration from 1ms to 30s")?
            }
            "remember" => remember = duration_of(value, REMEMBER_MS_MAX, REMEMBER)?,
            "remember_refusals" => remember_refusals = duration_of(value, REMEMBER_MS_MAX, REMEMBER)?,
            _ => {
                let known = "unknown key: valid keys are url, headers, tenant_header, roles_header, user_header, tenants, roles, timeout, \
                    remember and remember_refusals";
                return fault(key.span().start, known);
            }
        }
    }
    let (Some(uri), Some(roles)) = (uri, roles) else {
        return fault(at, "[forward] must have url and roles");
    };
    let tenants = tenants_for(roles, tenants, at)?;
    Ok(Service {
        uri,
        headers,
        tenant_header,
        roles_header,
        user_header,
        tenants,
        roles,
        timeout,
        remember,
        remember_refusals,
    })
}

const REMEMBER: &str = "remember and remember_refusals must be durations from 1ms to 1h";

fn uri_of(value: &Spanned<DeValue<'_>>) -> Result<Uri, Fault> {
    outgoing::parse(text_of(value)?).or_else(|reason| fault(value.span().start, reason))
}

fn header_of(text: &str, at: usize) -> Result<HeaderName, Fault> {
    match HeaderName::try_from(text) {
        Ok(name) if !OWN.contains(&name) => Ok(name),
        _ => fault(
            at,
            "must be the name of a header; headers of the connection, such as Host, are not allowed",
        ),
    }
}

fn headers_of(value: &Spanned<DeValue<'_>>) -> Result<Vec<HeaderName>, Fault> {
    let words = words(value, "headers must be an array of names")?;
    let names: Vec<_> =
        words.map(|word| word.and_then(|(text, at)| header_of(text, at))).collect::<Result<_, _>>()?;
    match names.len() {
        1..=HEADERS_MAX => Ok(names),
        _ => fault(value.span().start, format!("headers must have 1 to {HEADERS_MAX} names")),
    }
}

fn duration_of(value: &Spanned<DeValue<'_>>, ms_max: i64, must: &'static str) -> Result<Duration, Fault> {
    let ms = value.get_ref().as_str().and_then(duration_ms).filter(|ms| (1..=ms_max).contains(ms));
    ms.map_or_else(|| fault(value.span().start, must), |ms| Ok(Duration::from_millis(ms.unsigned_abs())))
}
