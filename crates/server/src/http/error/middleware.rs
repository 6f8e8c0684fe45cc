use super::{Cause, RefusalDetails, is_refused};
use crate::http::principal::RequestPrincipal;
use crate::http::recent_refusals::{Refused, metric_of};
use crate::http::{App, status};
use crate::listen::Peer;
use crate::refusal::OTHER;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

/// The ways to authenticate. Every answer with status 401 lists them in `WWW-Authenticate`.
const SCHEMES: [&str; 2] = [r#"Bearer realm="floodmark""#, r#"Basic realm="floodmark", charset="UTF-8""#];

/// Header with the reason of a refusal.
const REASON: HeaderName = HeaderName::from_static("x-floodmark-reason");

/// Completes every response to a request that was refused, at least in part: counts and records the refusal, and adds
/// `Retry-After` if a retry can succeed.
pub(crate) async fn finish(State(app): State<App>, request: Request, next: Next) -> Response {
    let user_agent = request.headers().get(header::USER_AGENT).cloned();
    let is_probe = status::READY_PATHS.contains(&request.uri().path());
    let peer = request.extensions().get().copied().unwrap_or(Peer::unknown());
    let mut response = next.run(request).await;
    let status = response.status();
    if !is_refused(&response) {
        return response;
    }
    let why = response.extensions_mut().remove().unwrap_or_else(|| RefusalDetails {
        reason: reason_of(status),
        retry_after: None,
        message: String::new(),
        series: None,
    });
    app.metrics.refusals.count(why.reason);
    response.headers_mut().insert(REASON, HeaderValue::from_static(why.reason));
    let tenant = response.extensions_mut().remove().map(|RequestPrincipal(principal)| principal.tenant);
    if !is_probe {
        let cause: Option<Cause> = response.extensions_mut().remove();
        let message = cause.as_ref().map_or(why.message.as_str(), |Cause(text)| text);
        let user_agent = user_agent.as_ref().and_then(|agent| agent.to_str().ok());
        let refused = Refused {
            tenant: tenant.clone(),
            reason: why.reason,
            status: Some(status.as_u16()),
            metric: why.series.as_deref().map_or("", metric_of),
            message: format_args!("{message}"),
            series: why.series.as_deref().unwrap_or_default(),
            address: Some(peer.0.ip()),
            user_agent: user_agent.unwrap_or_default(),
        };
        let has_data = || tenant.as_ref().is_none_or(|tenant| app.node.reads().has_data(tenant));
        app.recent_refusals.add(&refused, has_data);
    }
    if status == StatusCode::UNAUTHORIZED {
        for scheme in SCHEMES {
            response.headers_mut().append(header::WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
        }
    }
    if let Some(retry_after) = why.retry_after {
        let wait = app.node.writes().time_until(retry_after, tenant.as_ref());
        let seconds = app.metrics.jitter.spread(wait);
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Derives a reason from the status, for errors of the router, which have no [`RefusalDetails`].
fn reason_of(status: StatusCode) -> &'static str {
    match status {
        StatusCode::METHOD_NOT_ALLOWED => "method",
        StatusCode::BAD_REQUEST => "bad_data",
        _ => OTHER,
    }
}
