//! Which tenant a request is for.

use crate::refusal::Refusal;
use axum::http::HeaderMap;
use model::TenantId;

/// The header that names a tenant, as in Cortex, Mimir and Loki.
const HEADER: &str = "x-scope-orgid";

/// A way to get that name wrong that is seen in the wild; taken for "no tenant" it would mix data up.
const MISSPELT: &str = "x-scope-origid";

/// The tenant that the headers name; `anonymous` where they name none.
pub(crate) fn tenant_of(headers: &HeaderMap) -> Result<TenantId, Refusal> {
    if headers.contains_key(MISSPELT) {
        return Err(Refusal::invalid(
            "tenant",
            "unknown header X-Scope-OrigID: the tenant's header is X-Scope-OrgID",
        ));
    }
    let mut given = headers.get_all(HEADER).iter();
    let Some(first) = given.next() else { return Ok(TenantId::anonymous()) };
    if given.next().is_some() {
        return Err(Refusal::invalid("tenant", "header X-Scope-OrgID is given more than once"));
    }
    let text = first
        .to_str()
        .map_err(|_| Refusal::invalid("tenant", "header X-Scope-OrgID is not printable ASCII"))?;
    TenantId::parse(text).map_err(|e| Refusal::invalid("tenant", format!("header X-Scope-OrgID: {e}")))
}
