//! The request to the service of forward authentication, and how its answer is read.

use crate::auth::grant::{Grant, Roles, Tenants, caller_name};
use crate::auth::unauthenticated;
use crate::refusal::Refusal;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::response;
use hyper::{HeaderMap, Method, StatusCode, Uri};
use model::{TenantPatterns, TenantSet};
use std::sync::Arc;
use std::time::Duration;

pub(crate) const HEADERS_MAX: usize = 16;

/// Limit on the bytes of a request's headers that are passed on to the service.
const HEADER_BYTES_MAX: usize = 16 << 10;

/// Limit on the tenants in an answer. The tenant of each later request is compared with all of them.
const TENANTS_MAX: usize = 100;

#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) uri: Uri,
    pub(crate) headers: Vec<HeaderName>,
    pub(crate) tenant_header: HeaderName,
    /// The service names the caller's roles in this header of its answer. If `None`, all of `roles` are granted.
    pub(crate) roles_header: Option<HeaderName>,
    /// The service names the caller in this header of its answer, for logs and errors.
    pub(crate) user_header: Option<HeaderName>,
    /// Set in `auth_file`. An answer of the service cannot allow other tenants or roles.
    pub(crate) tenants: Arc<TenantPatterns>,
    pub(crate) roles: Roles,
    pub(crate) timeout: Duration,
    /// Answers that accept a credential are cached for this long, refusals for `remember_refusals`.
    pub(crate) remember: Duration,
    pub(crate) remember_refusals: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Original<'a> {
    pub(crate) method: &'a Method,
    /// Without the query string, which may contain data.
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
}

#[derive(Debug, Clone)]
pub(super) enum Answer {
    Accepted(Arc<Grant>),
    Unknown,
    Forbidden,
    /// The service was not asked, or its answer could not be used.
    None(Refusal),
}

impl Service {
    /// Returns the headers to send to the service, or `None` if the request has no credentials.
    pub(crate) fn question(
        &self,
        original: Original<'_>,
        tenants: Option<&TenantSet>,
    ) -> Result<Option<HeaderMap>, Refusal> {
        let mut question = HeaderMap::new();
        let mut bytes = 0;
        for name in &self.headers {
            for value in original.headers.get_all(name) {
                bytes += name.as_str().len() + value.len();
                if bytes > HEADER_BYTES_MAX {
                    let message = format!("the credentials have more than {HEADER_BYTES_MAX} bytes");
                    return Err(unauthenticated(message));
                }
                question.append(name.clone(), value.clone());
            }
        }
        if question.is_empty() {
            return Ok(None);
        }
        let own = [
            ("x-original-method", Some(original.method.as_str().to_owned())),
            ("x-original-uri", Some(original.path.to_owned())),
            ("x-scope-orgid", tenants.map(ToString::to_string)),
        ];
        for (name, value) in own {
            // the client may have sent a header with this name to deceive the service
            question.remove(name);
            if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
                question.insert(HeaderName::from_static(name), value);
            }
        }
        Ok(Some(question))
    }

    pub(super) fn read(&self, response: &response::Parts) -> Answer {
        match response.status {
            status if status.is_success() => Answer::Accepted(Arc::new(self.grant(&response.headers))),
            StatusCode::UNAUTHORIZED => Answer::Unknown,
            StatusCode::FORBIDDEN => Answer::Forbidden,
            status => {
                tracing::warn!(%status, "the service of forward authentication answered with an unexpected status");
                Answer::None(unavailable("it answered with an unexpected status"))
            }
        }
    }

    /// Reads the rights from the headers of an accepting answer. A missing or repeated header allows nothing.
    fn grant(&self, headers: &HeaderMap) -> Grant {
        let text = |name: &HeaderName| {
            let mut values = headers.get_all(name).iter();
            let first = values.next().and_then(|value| value.to_str().ok());
            first.filter(|_| values.next().is_none()).unwrap_or_default()
        };
        let words = |text: &str, separators: &[char]| -> Vec<String> {
            let words = text.split(|c: char| separators.contains(&c)).map(str::trim);
            words.filter(|word| !word.is_empty()).take(TENANTS_MAX).map(str::to_owned).collect()
        };
        let tenants = TenantPatterns::new(words(text(&self.tenant_header), &['|', ',']));
        let roles = match &self.roles_header {
            Some(name) => {
                let roles = words(text(name), &[',', ' ']);
                self.roles.and(Roles::among(roles.iter().map(String::as_str)))
            }
            None => self.roles,
        };
        // without tenants in `auth_file`, the service can only grant the role of an operator of the whole node
        let tenants = match self.tenants.is_empty() {
            true => Tenants::of(Arc::clone(&self.tenants)),
            false => Tenants::within(tenants, &self.tenants),
        };
        let user = self.user_header.as_ref().map(text).filter(|user| !user.is_empty());
        Grant { name: caller_name("forward", user), tenants, roles }
    }
}

pub(super) fn unavailable(why: &str) -> Refusal {
    Refusal::busy(
        "auth_unavailable",
        format!("the authentication service is not available (auth_file, [forward]): {why}"),
    )
}
