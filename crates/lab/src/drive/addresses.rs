use super::tenants::Tenant;
use crate::drive::send::wire::Wire;
use crate::generate::driver::Transport;
use crate::generate::protocol::Protocol;
use crate::grpc;
use crate::http::{Access, Client, Endpoint, headers};
use crate::scenario::Scenario;
use crate::socket::{Killed, Socket};
use anyhow::{Result, anyhow, bail};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long a target may take until it listens.
const START_WAIT: Duration = Duration::from_secs(3);
const START_POLL: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Addresses {
    /// Endpoints to which each tenant writes. The writers of a tenant take them in turn.
    write: Vec<Vec<Endpoint>>,
    read: Vec<Endpoint>,
    protocol: Protocol,
    killed: Killed,
    pub(crate) timeout: Duration,
}

impl Addresses {
    pub(crate) async fn resolve(
        scenario: &Scenario,
        tenants: &[Tenant],
        access: &Access,
        killed: &Killed,
    ) -> Result<Self> {
        let spec = &scenario.target;
        let mut this = Self {
            write: Vec::new(),
            read: Vec::new(),
            protocol: spec.protocol,
            killed: killed.clone(),
            timeout: spec.timeout.0,
        };
        for tenant in tenants {
            let mut write = Vec::new();
            for url in spec.write.all() {
                let url = tenant.fill(url);
                write.push(endpoint(spec.protocol, &url, access).await?);
            }
            this.read.push(Endpoint::resolve(&tenant.fill(&read_url(scenario)), access).await?);
            this.write.push(write);
        }
        Ok(this)
    }

    /// For targets without answers: fails if a tenant's samples can be sent to none of its addresses. Nothing is sent. A target that is starting has
    /// [`START_WAIT`].
    pub(crate) async fn check_write(&self, scenario: &Scenario, tenants: &[Tenant]) -> Result<()> {
        let (began, mut reached) = (Instant::now(), BTreeSet::new());
        for tenant in tenants {
            let endpoints = &self.write[tenant.number];
            let is_reached = |reached: &BTreeSet<_>| {
                endpoints.iter().any(|endpoint| reached.contains(&endpoint.address()))
            };
            while !is_reached(&reached) {
                let mut failed = None;
                for endpoint in endpoints {
                    let mut socket = Socket::new(endpoint, self.timeout, self.killed.clone());
                    match socket.connect().await {
                        Ok(()) => _ = reached.insert(endpoint.address()),
                        Err(failure) => failed = Some(failure),
                    }
                }
                let Some(failure) = failed.filter(|_| !is_reached(&reached)) else { break };
                if began.elapsed() > START_WAIT {
                    let url = tenant.fill(&scenario.target.write.all()[0]);
                    bail!(
                        "the target does not listen at {url} (set another address with --target, --host and --port, or \
                         target.write of a scenario): {failure}"
                    );
                }
                tokio::time::sleep(START_POLL).await;
            }
        }
        Ok(())
    }

    /// Fails if queries to an address cannot succeed: there is no connection, or the target refuses all of them.
    pub(crate) async fn check_read(&self, scenario: &Scenario, tenants: &[Tenant]) -> Result<()> {
        for tenant in tenants {
            let (mut client, prefix) = self.reader(tenant)?;
            crate::verify::try_query(&mut client, &prefix, scenario.read_api()).await.map_err(|why| {
                let url = tenant.fill(&read_url(scenario));
                anyhow!("cannot read back from {url} (set another URL with --read-url, or target.read of a scenario): {why}")
            })?;
        }
        Ok(())
    }

    pub(crate) fn write_path(&self, tenant: usize) -> String {
        match self.protocol.transport() {
            Transport::Grpc => grpc::EXPORT.to_owned(),
            _ => self.write[tenant][0].path().to_owned(),
        }
    }

    pub(crate) fn writer(&self, tenant: &Tenant, writer: usize) -> Result<Wire> {
        let endpoints = &self.write[tenant.number];
        let endpoint = &endpoints[writer % endpoints.len()];
        let headers = || request_headers(self.protocol, &tenant.headers);
        Ok(match self.protocol.transport() {
            Transport::Http => Wire::Http(Client::new(endpoint.clone(), headers()?, self.timeout)),
            Transport::Grpc => Wire::Grpc(grpc::Client::new(endpoint.clone(), headers()?, self.timeout)),
            Transport::Lines | Transport::Stream | Transport::Flushed => {
                Wire::Socket(Socket::new(endpoint, self.timeout, self.killed.clone()))
            }
        })
    }

    /// Returns a client for a tenant's queries, and the prefix of the path of each query.
    pub(crate) fn reader(&self, tenant: &Tenant) -> Result<(Client, String)> {
        let endpoint = &self.read[tenant.number];
        let path = endpoint.path().trim_end_matches('/').to_owned();
        Ok((Client::new(endpoint.clone(), headers(&tenant.headers)?, self.timeout), path))
    }
}

/// Resolves an address to which samples are written.
pub(super) async fn endpoint(protocol: Protocol, url: &str, access: &Access) -> Result<Endpoint> {
    match protocol.transport() {
        Transport::Http => Endpoint::resolve(url, access).await,
        Transport::Grpc => Endpoint::resolve_http2(url, access).await,
        Transport::Lines | Transport::Stream | Transport::Flushed => {
            Endpoint::resolve_socket(url, access).await
        }
    }
}

/// URL for queries. It still contains the placeholders `{tenant}` and `{index}`.
pub(crate) fn read_url(scenario: &Scenario) -> String {
    let spec = &scenario.target;
    let usual = || match spec.protocol.transport() {
        Transport::Grpc => crate::verify::read_url_on_host_of(&spec.write.all()[0]),
        _ => crate::verify::read_url_for(&spec.write.all()[0]),
    };
    spec.read.clone().unwrap_or_else(usual)
}

/// Headers of a write request. The default headers can be overridden by `pairs`.
fn request_headers(protocol: Protocol, pairs: &[(String, String)]) -> Result<HeaderMap> {
    let mut map = HeaderMap::new();
    map.insert(CONTENT_TYPE, HeaderValue::from_static(protocol.content_type()));
    if let Some(version) = protocol.version() {
        map.insert(CONTENT_ENCODING, HeaderValue::from_static("snappy"));
        map.insert("x-prometheus-remote-write-version", HeaderValue::from_static(version.header()));
    }
    let agent = concat!("floodmark-lab/", env!("CARGO_PKG_VERSION"));
    map.insert(USER_AGENT, HeaderValue::from_static(agent));
    let own = headers(pairs)?;
    for name in own.keys() {
        map.remove(name);
    }
    map.extend(own);
    Ok(map)
}
