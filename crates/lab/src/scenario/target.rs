//! Target of a load: addresses, credentials and faults.

use super::units::Span;
use crate::generate::template::Version;
use crate::http::TlsFiles;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Target of a load.
///
/// In URLs and header values `{tenant}` is the tenant's name and `{index}` its number.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TargetSpec {
    /// URLs for writing. Several URLs are distributed over the writers.
    pub write: Texts,
    /// URL for queries, without `/api/v1/query`. If not given, it is derived from `write`.
    pub read: Option<String>,
    /// Headers of each request.
    pub headers: Headers,
    /// Header that names the tenant; empty for targets without tenants.
    pub tenant_header: String,
    /// Prefix of tenants' names. The number of the tenant follows.
    pub tenant_prefix: String,
    /// Label with the tenant's name, added to every series. It is for targets without tenants, which would
    /// otherwise mix the series of all tenants.
    pub tenant_label: Option<String>,
    /// Protocol: remote write 1.0 or 2.0.
    pub protocol: Version,
    /// Maximum time to wait for an answer.
    pub timeout: Span,
    /// Authentication of writers and readers.
    pub auth: Option<Auth>,
    /// TLS files in PEM format for `https`, relative to the scenario's file.
    pub tls: TlsFiles,
    /// The target's process on this machine.
    pub pid: Option<u32>,
    /// The target's control group.
    pub cgroup: Option<PathBuf>,
    /// URL of the target's own metrics (Prometheus text).
    pub metrics: Option<String>,
    /// Data directory of the target.
    pub data_dir: Option<PathBuf>,
    /// Command that starts the target. `{port}` stands for a free port, here and in addresses. `{data}`
    /// stands for a new directory, here and in `data_dir`. `find-minimum` replaces `{memory}` and `{cores}`.
    pub start: Option<String>,
    /// URL that answers with success once the target is ready. If not given, the target is ready when it
    /// listens on its write addresses.
    pub ready: Option<String>,
    /// The target's network namespace, for faults that cut the network.
    pub namespace: Option<String>,
}

/// One text or several.
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

/// Headers of requests, by name. No value is ever shown, because some values are secrets.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Headers(pub BTreeMap<String, String>);

impl std::fmt::Debug for Headers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Authentication of the lab.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Auth {
    /// A fixed token.
    Bearer { token: String },
    /// User and password.
    Basic { user: String, password: String },
    /// A token for each tenant, signed by HMAC with SHA-256. The lab creates the tokens.
    Jwt {
        secret: String,
        /// The claim that holds the tenant's name.
        #[serde(default = "tenant_claim")]
        claim: String,
        /// Claims that are the same for all tenants.
        #[serde(default)]
        claims: BTreeMap<String, String>,
        /// Lifetime of the tokens.
        #[serde(default = "day")]
        valid_for: Span,
    },
}

impl std::fmt::Debug for Auth {
    /// Formats everything but the secrets.
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

/// A fault injected into the target.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultSpec {
    /// Time of the fault, from the start of the load.
    pub at: Span,
    /// Kind of fault.
    #[serde(rename = "do")]
    pub kind: FaultKind,
    /// Duration of the fault. After it, the fault is reverted or the target is started again.
    #[serde(rename = "for", default)]
    pub lasts: Span,
    /// Command that starts a target again after `kill`, if the run did not start the target. The command is
    /// either the target itself, which keeps running after the run, or a command to a service manager.
    #[serde(default)]
    pub restart: Option<String>,
}

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Kills the target with `kill -9` and starts it again.
    Kill,
    /// Suspends the target and resumes it later. A suspended target answers nothing, but its connections stay
    /// open.
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
