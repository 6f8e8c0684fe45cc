//! The target of a load, with its addresses, credentials and faults.

use super::units::Span;
use crate::generate::protocol::Protocol;
use crate::http::TlsFiles;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Says how to reach, start and observe a target.
///
/// In URLs and header values, `{tenant}` is replaced by the tenant's name and `{index}` by its number.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TargetSpec {
    /// Addresses to write to. The writers of a tenant use them in turn.
    pub write: Texts,
    /// URL for queries, without `/api/v1/query` or `/render`. By default, it is derived from `write`.
    pub read: Option<String>,
    /// How samples are queried. By default, it follows from `protocol`.
    pub read_api: Option<ReadApi>,
    pub headers: Headers,
    /// Name of the header that contains the tenant's name. Empty for targets without tenants. By default, it is
    /// `X-Scope-OrgID`, except for a single tenant of Graphite, whose points name no tenant either.
    pub tenant_header: Option<String>,
    /// A tenant's name consists of this prefix and a number.
    pub tenant_prefix: String,
    /// Adds a label with the tenant's name to every series, to tell the tenants apart in a target that does not
    /// support tenants.
    pub tenant_label: Option<String>,
    pub protocol: Protocol,
    pub timeout: Span,
    /// For Graphite's protocols: the target promises that points are durable this long after the socket took them. Points
    /// of a connection that breaks are owed only if they are older. Without a promise, none of them is owed. For statsd: a
    /// value that a query has returned is owed this long after its time (one second).
    pub commit_interval: Option<Span>,
    pub auth: Option<Auth>,
    /// TLS files in PEM format, relative to the scenario's file.
    pub tls: TlsFiles,
    pub pid: Option<u32>,
    pub cgroup: Option<PathBuf>,
    /// URL at which the target exposes its own metrics as Prometheus text.
    pub metrics: Option<String>,
    pub data_dir: Option<PathBuf>,
    /// Command that starts the target. It may contain placeholders: `{port}` is a free port and can also be used in
    /// addresses, `{data}` is a new directory and can also be used in `data_dir`. `{memory}` and `{cores}` are
    /// replaced by `find-minimum`.
    pub start: Option<String>,
    /// URL that answers with success when the target is ready. By default, the write addresses must accept
    /// connections.
    pub ready: Option<String>,
    /// Network namespace of the target, which the fault `cut` disconnects.
    pub namespace: Option<String>,
}

/// The usual header with the name of a tenant.
pub(super) const TENANT_HEADER: &str = "X-Scope-OrgID";

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Texts {
    One(String),
    Many(Vec<String>),
}

impl Texts {
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts,
        }
    }
}

impl TargetSpec {
    /// True if samples are sent as datagrams only, of which nobody knows whether they arrive. Of statsd's values, queries
    /// tell.
    pub fn is_datagrams(&self) -> bool {
        let addresses = self.write.all();
        !self.protocol.is_flushed()
            && !addresses.is_empty()
            && addresses.iter().all(|address| address.starts_with("udp://"))
    }
}

impl Default for TargetSpec {
    fn default() -> Self {
        Self {
            write: Texts::One("http://127.0.0.1:9009/api/v1/write".into()),
            read: None,
            read_api: None,
            headers: Headers::default(),
            tenant_header: None,
            tenant_prefix: "tenant-".into(),
            tenant_label: None,
            protocol: Protocol::V1,
            timeout: Span::seconds(30.0),
            commit_interval: None,
            auth: None,
            tls: TlsFiles::default(),
            pid: None,
            cgroup: None,
            metrics: None,
            data_dir: None,
            start: None,
            ready: None,
            namespace: None,
        }
    }
}

/// API by which samples are read back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadApi {
    #[default]
    Promql,
    /// Graphite's `/render`.
    Render,
}

impl std::str::FromStr for ReadApi {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "promql" => Ok(Self::Promql),
            "render" => Ok(Self::Render),
            _ => Err(format!("{text:?} must be promql or render")),
        }
    }
}

/// Headers by name. Their values are never printed, because some are secrets.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Headers(pub BTreeMap<String, String>);

impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Auth {
    Bearer {
        token: String,
    },
    Basic {
        user: String,
        password: String,
    },
    /// A token for each tenant, which the lab signs with HMAC-SHA-256.
    Jwt {
        secret: String,
        #[serde(default = "tenant_claim")]
        claim: String,
        #[serde(default)]
        claims: BTreeMap<String, String>,
        #[serde(default = "day")]
        valid_for: Span,
    },
}

impl std::fmt::Debug for Auth {
    /// Prints only the kind of authentication, and never the secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bearer { .. } => "Bearer",
            Self::Basic { .. } => "Basic",
            Self::Jwt { .. } => "Jwt",
        })
    }
}

fn tenant_claim() -> String {
    "tenant".into()
}

fn day() -> Span {
    Span::seconds(86_400.0)
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultSpec {
    /// When the fault begins, counted from the start of the load.
    pub at: Span,
    #[serde(rename = "do")]
    pub kind: FaultKind,
    /// The fault lasts this long. Then it is reverted, or the target is started again.
    #[serde(rename = "for", default)]
    pub lasts: Span,
    /// Command that starts the target again after `kill`. It is needed if the run did not start the target.
    #[serde(default)]
    pub restart: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Kills the target with `kill -9` and starts it again.
    Kill,
    /// Suspends the target without closing its connections, and resumes it later.
    Pause,
    /// Limits the writes of the target's control group to a megabyte per second.
    SlowDisk,
    /// Takes down all interfaces in the target's network namespace.
    Cut,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_headers_are_not_shown() {
        let headers = BTreeMap::from([("X-Api-Key".into(), "hunter2".into())]);
        let target = TargetSpec { headers: Headers(headers), ..TargetSpec::default() };
        let text = format!("{target:?}");
        assert!(text.contains("X-Api-Key") && !text.contains("hunter2"), "{text}");
    }
}
