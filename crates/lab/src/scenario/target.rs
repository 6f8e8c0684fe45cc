//! Target of a load: addresses, credentials and faults.

use super::units::Span;
use crate::generate::template::Version;
use crate::http::TlsFiles;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Target of a load.
///
/// In URLs and header values, `{tenant}` is the tenant's name and `{index}` its number.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TargetSpec {
    /// URLs for writing. Writers take them in turn.
    pub write: Texts,
    /// URL for queries, without `/api/v1/query`. By default, it follows from `write`.
    pub read: Option<String>,
    pub headers: Headers,
    /// Header with the tenant's name; empty for targets without tenants.
    pub tenant_header: String,
    /// Names of tenants are this prefix and a number.
    pub tenant_prefix: String,
    /// Label with the tenant's name in every series. It separates tenants in a target without tenants.
    pub tenant_label: Option<String>,
    /// Remote write 1.0 or 2.0.
    pub protocol: Version,
    pub timeout: Span,
    pub auth: Option<Auth>,
    /// TLS files in PEM format, relative to the scenario's file.
    pub tls: TlsFiles,
    pub pid: Option<u32>,
    pub cgroup: Option<PathBuf>,
    /// URL of the target's own metrics, as Prometheus text.
    pub metrics: Option<String>,
    pub data_dir: Option<PathBuf>,
    /// Command that starts the target. `{port}` is a free port, also in addresses. `{data}` is a new directory, also
    /// in `data_dir`. `find-minimum` replaces `{memory}` and `{cores}`.
    pub start: Option<String>,
    /// URL that answers with success when the target is ready. By default, the write addresses must accept
    /// connections.
    pub ready: Option<String>,
    /// The target's network namespace, for the fault `cut`.
    pub namespace: Option<String>,
}

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

impl Default for TargetSpec {
    fn default() -> Self {
        Self {
            write: Texts::One("http://127.0.0.1:9009/api/v1/write".into()),
            read: None,
            headers: Headers::default(),
            tenant_header: "X-Scope-OrgID".into(),
            tenant_prefix: "tenant-".into(),
            tenant_label: None,
            protocol: Version::V1,
            timeout: Span::seconds(30.0),
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

/// Headers by name. Values are never shown, because some are secrets.
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
    /// Leaves out the secrets.
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
    /// From the start of the load.
    pub at: Span,
    #[serde(rename = "do")]
    pub kind: FaultKind,
    /// After this time, the fault is reverted or the target is started again.
    #[serde(rename = "for", default)]
    pub lasts: Span,
    /// Command that starts a target again after `kill`, if the run did not start the target.
    #[serde(default)]
    pub restart: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Kills the target with `kill -9` and starts it again.
    Kill,
    /// Suspends the target, whose connections stay open, and resumes it later.
    Pause,
    /// Limits the writes of the target's control group to a megabyte per second.
    SlowDisk,
    /// Takes down the interfaces of the target's network namespace.
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
