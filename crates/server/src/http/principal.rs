//! Principal and tenant of a request.

use crate::refusal::Refusal;
use axum::http::{HeaderMap, HeaderValue};
use model::{Principal, TenantId};

/// The header that names a tenant, as in Cortex, Mimir and Loki.
const HEADER: &str = "x-scope-orgid";

/// Misspelling of the header that is seen in the wild. If it were ignored, data of different tenants would be mixed.
const MISSPELT: &str = "x-scope-origid";

/// The principal of a request. Without authentication it has all rights on the tenant that the headers name.
pub(crate) fn principal_of(headers: &HeaderMap) -> Result<Principal, Refusal> {
    tenant_of(headers).map(Principal::of)
}

/// The tenant of a reading request, if its principal may read it.
pub(crate) fn readable_tenant_of(headers: &HeaderMap) -> Result<TenantId, Refusal> {
    let principal = principal_of(headers)?;
    match principal.rights.read {
        true => Ok(principal.tenant),
        false => Err(Refusal::forbidden(format!("no right to read tenant {}", principal.tenant))),
    }
}

/// The tenant that the headers name; `anonymous` if they name none.
fn tenant_of(headers: &HeaderMap) -> Result<TenantId, Refusal> {
    if headers.contains_key(MISSPELT) {
        return Err(Refusal::invalid(
            "tenant",
            "unknown header X-Scope-OrigID: the tenant's header is X-Scope-OrgID",
        ));
    }
    let mut given = headers.get_all(HEADER).iter();
    let first = given.next();
    if given.next().is_some() {
        return Err(Refusal::invalid("tenant", "header X-Scope-OrgID is given more than once"));
    }
    tenant_named(first)
}

/// The header that names the tenant, if there is one.
pub(crate) fn tenant_header(headers: &HeaderMap) -> Option<HeaderValue> {
    headers.get(HEADER).cloned()
}

/// The tenant that a header names; `anonymous` without one.
pub(crate) fn tenant_named(header: Option<&HeaderValue>) -> Result<TenantId, Refusal> {
    let Some(header) = header else { return Ok(TenantId::anonymous()) };
    let text = header
        .to_str()
        .map_err(|_| Refusal::invalid("tenant", "header X-Scope-OrgID is not printable ASCII"))?;
    TenantId::parse(text).map_err(|e| Refusal::invalid("tenant", format!("header X-Scope-OrgID: {e}")))
}
