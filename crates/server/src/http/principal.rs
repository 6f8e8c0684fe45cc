//! Identifies the caller of a request, and the tenants that the request is for.

use super::App;
use super::error::{ApiError, Cause, WriteError, is_refused};
use crate::audit::{Audit, Operation};
use crate::auth::{
    Access, CREDENTIAL_BYTES_MAX, Caller, Credential, Original, Presented, Reach, unauthenticated,
};
use crate::listen::{Connection, Peer};
use crate::refusal::Refusal;
use crate::tls::ClientNames;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use model::{ErrorKind, Principal, TenantId, TenantSet};
use std::net::SocketAddr;
use std::sync::Arc;

/// Header in which the client names its tenant, as in Cortex, Mimir and Loki.
const HEADER: &str = "x-scope-orgid";

/// Header in which clients of Thanos name their tenant, on its path only.
const THANOS_HEADER: &str = "thanos-tenant";

const THANOS_PATH: &str = "/api/v1/receive";

/// A common misspelling of the header. If it were ignored, the request would go to another tenant than the
/// client intends.
const MISSPELT: &str = "x-scope-origid";

/// The text that a request gives as its tenant.
pub(super) fn named_tenant(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(HEADER).map(HeaderValue::as_bytes)
}

/// Refuses a request whose caller does not have the right `access`, before its body is read.
pub(super) async fn identify(
    State((app, access)): State<(App, Access)>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get().copied().unwrap_or(Peer::unknown());
    let asked = matches!(access, Access::Admin | Access::TenantAdmin)
        .then(|| (request.method().clone(), request.uri().clone(), Operation::default()));
    let (method, path) = (request.method(), request.uri().path());
    let original = Original { method, path, headers: request.headers() };
    let names = request.extensions().get::<ClientNames>();
    let caller = match caller(&app, access, original, peer, names).await {
        Ok(caller) => caller,
        Err(refusal) => {
            match &asked {
                Some(asked) => {
                    let tenant = named_tenant(request.headers());
                    app.audit.refused_operation(peer.0.ip(), asked, tenant, &refusal);
                }
                None if matches!(refusal.kind, ErrorKind::Unauthenticated | ErrorKind::Forbidden) => {
                    app.audit.refused(peer.0.ip(), request.uri().path(), &refusal);
                }
                None => {}
            }
            let cause = (refusal.cause() != refusal.message).then(|| Cause(refusal.cause().into()));
            let mut response = match access {
                Access::Write => WriteError(refusal).into_response(),
                _ => ApiError::from(refusal).into_response(),
            };
            if let Some(cause) = cause {
                response.extensions_mut().insert(cause);
            }
            return response;
        }
    };
    let Caller { name, principal, tenants, reach } = caller;
    if let Some(connection) = request.extensions().get::<Connection>() {
        match &principal {
            Some(principal) => connection.serves(share_of(&app, &principal.tenant)),
            None => connection.serves_operator(),
        }
    }
    request.extensions_mut().insert(AdminReach(reach));
    if let Some((.., operation)) = &asked {
        principal.iter().for_each(|principal| operation.note_tenant(&principal.tenant));
        request.extensions_mut().insert(operation.clone());
    }
    let principal = principal.map(RequestPrincipal);
    if let Some(tenants) = tenants {
        request.extensions_mut().insert(RequestTenants(tenants));
    }
    if let Some(principal) = &principal {
        request.extensions_mut().insert(principal.clone());
    }
    let audit = Arc::clone(&app.audit);
    let mut line = asked.map(|asked| Line { audit, caller: name, client: peer.0, asked, status: None });
    let mut response = next.run(request).await;
    let status = response.status();
    line.iter_mut().for_each(|line| line.status = Some(status));
    if let Some(principal) = principal
        && is_refused(&response)
    {
        response.extensions_mut().insert(principal); // attributes the refusal to its tenant
    }
    response
}

/// An administrative request. When this is dropped, it is logged: also if the client has gone away before the answer, because what it asked for
/// goes on.
struct Line {
    audit: Arc<Audit>,
    caller: Arc<str>,
    client: SocketAddr,
    asked: (Method, Uri, Operation),
    status: Option<StatusCode>,
}

impl Drop for Line {
    fn drop(&mut self) {
        let Self { audit, caller, client, asked: (method, uri, operation), status } = self;
        audit.served(caller, *client, (method, uri), operation, *status);
    }
}

/// Returns the tenant with its weight, which determines its share of the connections. `None` for a new
/// tenant.
fn share_of(app: &App, tenant: &TenantId) -> Option<(TenantId, u64)> {
    let writes = app.node.writes();
    let is_known = writes.tenants.is_known(tenant, writes.clock.instant());
    is_known.then(|| (tenant.clone(), app.node.overrides().current().of(tenant).share_weight as u64))
}

/// Credentials in the headers take precedence over the client certificate, because the certificate may belong
/// to a proxy.
async fn caller(
    app: &App,
    access: Access,
    original: Original<'_>,
    peer: Peer,
    names: Option<&ClientNames>,
) -> Result<Caller, Refusal> {
    let headers = original.headers;
    let tenants = tenants_of(headers, original.path)?;
    let mut decoded = Vec::new();
    let credential = match app.node.auth().is_required() {
        true => credential_of(headers, &mut decoded)?.or(names.map(Credential::Certificate)),
        false => None,
    };
    app.node.auth().identify(access, Presented { original, address: peer.0.ip(), credential, tenants }).await
}

fn tenants_of(headers: &HeaderMap, path: &str) -> Result<Option<TenantSet>, Refusal> {
    if headers.contains_key(MISSPELT) {
        return Err(Refusal::invalid(
            "tenant",
            "unknown header X-Scope-OrigID: the tenant's header is X-Scope-OrgID",
        ));
    }
    let thanos = headers.get_all(THANOS_HEADER).iter().filter(|_| path == THANOS_PATH);
    let mut given = headers.get_all(HEADER).iter().chain(thanos);
    let first = given.next();
    // a proxy sets one of them, and its callers must not set the other
    if given.next().is_some() {
        return Err(Refusal::invalid(
            "tenant",
            "the tenant is named more than once, by the header X-Scope-OrgID or THANOS-TENANT",
        ));
    }
    first.map(tenants_named).transpose()
}

fn tenants_named(header: &HeaderValue) -> Result<TenantSet, Refusal> {
    let text = header
        .to_str()
        .map_err(|_| Refusal::invalid("tenant", "header X-Scope-OrgID is not printable ASCII"))?;
    TenantSet::parse(text).map_err(|e| Refusal::invalid("tenant", format!("header X-Scope-OrgID: {e}")))
}

/// Returns the credential in the header `Authorization`. A password is decoded into the buffer `decoded`.
/// Errors never contain the credential.
fn credential_of<'a>(
    headers: &'a HeaderMap,
    decoded: &'a mut Vec<u8>,
) -> Result<Option<Credential<'a>>, Refusal> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let Some(header) = given.next() else { return Ok(None) };
    if given.next().is_some() {
        return Err(unauthenticated("header Authorization is given more than once"));
    }
    let bytes = header.as_bytes();
    if bytes.len() > CREDENTIAL_BYTES_MAX {
        return Err(unauthenticated(format!(
            "header Authorization has {} bytes, the limit is {CREDENTIAL_BYTES_MAX}",
            bytes.len()
        )));
    }
    let (scheme, rest) = bytes.split_at(bytes.iter().position(|byte| *byte == b' ').unwrap_or(bytes.len()));
    let rest = rest.trim_ascii();
    // clients of InfluxDB 2 use "Token"
    if scheme.eq_ignore_ascii_case(b"bearer") || scheme.eq_ignore_ascii_case(b"token") {
        return Ok(Some(Credential::Token(rest)));
    }
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return Err(unauthenticated("header Authorization must be Bearer, Basic or Token"));
    }
    let invalid =
        || unauthenticated("header Authorization: Basic must be followed by user:password in base64");
    *decoded = BASE64_STANDARD.decode(rest).map_err(|_| invalid())?;
    let colon = decoded.iter().position(|byte| *byte == b':').ok_or_else(invalid)?;
    let user = std::str::from_utf8(&decoded[..colon]).map_err(|_| invalid())?;
    Ok(Some(Credential::Password { user, password: &decoded[colon + 1..] }))
}

#[derive(Debug, Clone)]
pub(super) struct RequestPrincipal(pub(super) Principal);

impl<S: Sync> FromRequestParts<S> for RequestPrincipal {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts.extensions.get().cloned().ok_or_else(|| {
            let message = "BUG: a tenant's route does not identify its callers";
            Refusal::new(ErrorKind::Internal, "bug", message).into()
        })
    }
}

#[derive(Debug, Clone)]
pub(super) struct AdminTenant(pub(super) TenantId);

impl<S: Sync> FromRequestParts<S> for AdminTenant {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        RequestPrincipal::from_request_parts(parts, state)
            .await
            .map(|RequestPrincipal(principal)| Self(principal.tenant))
    }
}

/// The tenants that an operation may show and change, on routes without a tenant of their own.
#[derive(Debug, Clone)]
pub(super) struct AdminReach(pub(super) Reach);

impl<S: Sync> FromRequestParts<S> for AdminReach {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts.extensions.get().cloned().ok_or_else(|| {
            let message = "BUG: an operator's route does not identify its callers";
            Refusal::new(ErrorKind::Internal, "bug", message).into()
        })
    }
}

/// The tenants that a request names, or else the default tenant of its caller.
#[derive(Debug, Clone)]
struct RequestTenants(TenantSet);

#[derive(Debug, Clone)]
pub(super) struct ReadTenants(pub(super) TenantSet);

impl<S: Sync> FromRequestParts<S> for ReadTenants {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let RequestPrincipal(principal) = RequestPrincipal::from_request_parts(parts, state).await?;
        let RequestTenants(tenants) =
            parts.extensions.get().cloned().unwrap_or_else(|| RequestTenants(principal.tenant.into()));
        match principal.rights.read {
            true => Ok(Self(tenants)),
            false => Err(Refusal::forbidden(format!("no right to read tenant {tenants}")).into()),
        }
    }
}

/// The tenant whose data a request reads, on routes where a request may name only one tenant.
#[derive(Debug, Clone)]
pub(super) struct ReadTenant(pub(super) TenantId);

impl<S: Sync> FromRequestParts<S> for ReadTenant {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let ReadTenants(tenants) = ReadTenants::from_request_parts(parts, state).await?;
        let message = "header X-Scope-OrgID names several tenants, but this path supports only one";
        tenants.only().cloned().map(Self).ok_or_else(|| Refusal::invalid("tenant", message).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: &[u8], expected: Result<Option<(&str, &[u8])>, ()>) {
        let headers = [(AUTHORIZATION, HeaderValue::from_bytes(header).unwrap())].into_iter().collect();
        let mut decoded = Vec::new();
        let found = credential_of(&headers, &mut decoded);
        let found = found.as_ref().map(|credential| {
            credential.map(|credential| match credential {
                Credential::Token(token) => ("", token),
                Credential::Password { user, password } => (user, password),
                Credential::Certificate(_) => panic!("no header has a certificate"),
            })
        });
        assert_eq!(found.map_err(|_| ()), expected, "{:?}", String::from_utf8_lossy(header));
    }

    #[test]
    fn credentials_of_headers() {
        check(b"Bearer abc", Ok(Some(("", b"abc"))));
        check(b"bearer   abc ", Ok(Some(("", b"abc"))));
        check(b"Bearer", Ok(Some(("", b""))));
        check(b"Token abc", Ok(Some(("", b"abc"))));
        check(b"Basic dXNlcjpwYTpzcw==", Ok(Some(("user", b"pa:ss"))));
        check(b"BASIC Og==", Ok(Some(("", b""))));
        check(b"Basic dXNlcg==", Err(()));
        check(b"Basic user:pass", Err(()));
        check(b"Digest abc", Err(()));
        check(b"", Err(()));
        // these limits are in docs/authentication.md
        let token = vec![b'x'; 8_186];
        check(&[b"Bearer ", &token[..8_185]].concat(), Ok(Some(("", &token[..8_185]))));
        check(&[b"Bearer ", &*token].concat(), Err(()));
        let basic = |both: usize| {
            let password = "p".repeat(both - 4);
            let header = format!("Basic {}", BASE64_STANDARD.encode(format!("user:{password}")));
            (header, password)
        };
        let (header, password) = basic(6_137);
        check(header.as_bytes(), Ok(Some(("user", password.as_bytes()))));
        check(basic(6_138).0.as_bytes(), Err(()));
    }
}
