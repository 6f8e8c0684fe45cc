//! Protects against web pages of other sites, which can make a browser send requests to this server.
//!
//! - *DNS rebinding*: the attacker's domain resolves to this machine, so the page may read answers. `Host` is
//!   that domain. A server on a loopback address refuses names that are not its own.
//! - *cross-origin request*: the page cannot read the answer, but the request takes effect. `Origin` is not the
//!   server's own.
//!
//! Programs other than browsers send no `Origin`.

use super::error::ApiError;
use super::principal::named_tenant;
use super::{App, admin};
use crate::audit::Operation;
use crate::listen::Peer;
use crate::refusal::Refusal;
use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use model::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// As a value of `allow_host`, permits every name.
const ANY: &str = "*";

#[derive(Debug, Clone)]
pub(crate) struct BrowserGuard {
    /// Names in `allow_host`, in lower case. `localhost` and IP addresses are always permitted.
    allowed: Arc<[String]>,
    is_strict: bool,
}

impl BrowserGuard {
    /// If the listener has a loopback address, or `allow_host` has names, requests for unknown host names are
    /// refused. With `*` in `allow_host`, no host is refused.
    pub(crate) fn new(listener: SocketAddr, allow_host: &[String]) -> Self {
        let allowed: Arc<[String]> = allow_host.iter().map(|name| name.to_ascii_lowercase()).collect();
        let is_local = listener.ip().to_canonical().is_loopback();
        let is_strict = (is_local || !allowed.is_empty()) && !allowed.iter().any(|name| name == ANY);
        Self { allowed, is_strict }
    }

    fn admits(&self, host: &str) -> bool {
        if !self.is_strict {
            return true;
        }
        let Ok(authority) = host.parse::<Authority>() else { return false };
        let name = authority.host().trim_end_matches('.').to_ascii_lowercase();
        name == "localhost" || is_address(&name) || self.allowed.contains(&name)
    }

    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
        let given = headers.get_all(HOST).iter().map(text);
        let refused = given.chain(uri.authority().map(Authority::as_str)).find(|host| !self.admits(host));
        refused.map_or(Ok(()), |host| {
            let message = format!(
                "unknown host {host:?}: use an IP address, localhost, or a name listed in the setting allow_host"
            );
            Err(ApiError::forbidden(StatusCode::MISDIRECTED_REQUEST, "host", message))
        })
    }

    /// Refuses requests from pages of other sites. Pages of this server and of the hosts in `allow_host` may
    /// change data.
    fn check_origin(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let own: Vec<_> = headers.get_all(HOST).iter().map(|host| text(host).to_ascii_lowercase()).collect();
        let refused = headers.get_all(ORIGIN).iter().map(text).find(|origin| {
            let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
            let authority = authority.to_ascii_lowercase();
            let name = authority.parse::<Authority>().map(|a| a.host().to_owned()).unwrap_or_default();
            !own.contains(&authority) && !self.allowed.contains(&name)
        });
        refused.map_or(Ok(()), |origin| {
            let message = format!(
                "cross-origin request from {origin:?} refused; to allow it, list its host in the setting allow_host"
            );
            Err(ApiError::forbidden(StatusCode::FORBIDDEN, "origin", message))
        })
    }
}

fn is_address(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    bare.map_or_else(|| name.parse::<IpAddr>().is_ok(), |name| name.parse::<Ipv6Addr>().is_ok())
}

/// Returns `?` for a header that is not ASCII. No host has this name.
fn text(value: &HeaderValue) -> &str {
    value.to_str().unwrap_or("?")
}

pub(crate) async fn host(
    State((app, guard)): State<(App, BrowserGuard)>,
    request: Request,
    next: Next,
) -> Response {
    match guard.check_host(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => refuse(&app, &request, error),
    }
}

pub(crate) async fn origin(
    State((app, guard)): State<(App, BrowserGuard)>,
    request: Request,
    next: Next,
) -> Response {
    match guard.check_origin(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => refuse(&app, &request, error),
    }
}

/// Refuses a request. If it is one of administration, it leaves a line in the audit log.
fn refuse(app: &App, request: &Request, error: ApiError) -> Response {
    if admin::is_path(request.uri().path()) {
        let peer = request.extensions().get().copied().unwrap_or(Peer::unknown());
        let asked = (request.method().clone(), request.uri().clone(), Operation::default());
        let refusal = Refusal::new(ErrorKind::Forbidden, error.reason(), error.to_string());
        app.audit.refused_operation(peer.0.ip(), &asked, named_tenant(request.headers()), &refusal);
    }
    error.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "127.0.0.1:9009";
    const OPEN: &str = "0.0.0.0:9009";

    fn guard(listener: &str, allow_host: &[&str]) -> BrowserGuard {
        let allow_host: Vec<_> = allow_host.iter().map(|name| (*name).to_owned()).collect();
        BrowserGuard::new(listener.parse().unwrap(), &allow_host)
    }

    #[test]
    fn a_listener_for_this_machine_has_the_names_of_this_machine() {
        let own = ["127.0.0.1:9009", "127.0.0.1", "[::1]:9009", "localhost:1", "LocalHost.", "10.1.2.3"];
        let others =
            ["evil.example", "localhost.evil.example:9009", "127.0.0.1.evil.example", "", "a b", "[::1"];
        for listener in [LOCAL, "[::1]:9009", "[::ffff:127.0.0.1]:9009"] {
            let guard = guard(listener, &["Metrics.example"]);
            assert_eq!(own.iter().filter(|host| !guard.admits(host)).collect::<Vec<_>>(), [&""; 0]);
            assert_eq!(others.iter().filter(|host| guard.admits(host)).collect::<Vec<_>>(), [&""; 0]);
            assert!(guard.admits("metrics.EXAMPLE:80"));
        }
        assert!(guard(LOCAL, &["*"]).admits("evil.example"));
        assert!(guard(OPEN, &[]).admits("evil.example"), "the names of a public listener are unknown");
        assert!(!guard(OPEN, &["metrics.example"]).admits("evil.example"));
    }

    #[test]
    fn every_name_that_a_request_has_counts() {
        let check = |uri: &str, hosts: &[&str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(HOST, host.parse().unwrap());
            }
            guard(LOCAL, &[]).check_host(&uri.parse().unwrap(), &headers).is_ok()
        };
        assert!(check("/x", &[]), "HTTP/1.0");
        assert!(check("/x", &["localhost"]));
        assert!(!check("/x", &["localhost", "evil.example"]));
        assert!(!check("http://evil.example/x", &["localhost"]));
    }

    #[test]
    fn only_own_pages_change_something() {
        let check = |host: &str, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            origin.map(|origin| headers.insert(ORIGIN, origin.parse().unwrap()));
            guard(OPEN, &["metrics.example"]).check_origin(&headers).is_ok()
        };
        assert!(check(LOCAL, None), "a program");
        assert!(check("localhost:9009", Some("http://localhost:9009")));
        assert!(check("10.0.0.1:9009", Some("https://Metrics.example:444")), "behind a proxy");
        for origin in ["null", "http://localhost:9010", "http://evil.example", "localhost:9009", ""] {
            assert!(!check("localhost:9009", Some(origin)), "{origin}");
        }
    }
}
