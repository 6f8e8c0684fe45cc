//! Where a scenario's target is.

use super::tenants::Tenant;
use crate::drive::write::request_headers;
use crate::http::{Access, Client, Endpoint};
use crate::scenario::Scenario;
use anyhow::Result;
use std::time::Duration;

/// Where a scenario's target is, resolved once.
#[derive(Debug)]
pub(crate) struct Addresses {
    /// For each tenant, those that writers take in turn.
    write: Vec<Vec<Endpoint>>,
    /// For each tenant.
    read: Vec<Endpoint>,
    version: crate::generate::template::Version,
    pub(crate) timeout: Duration,
}

impl Addresses {
    pub(crate) async fn resolve(scenario: &Scenario, tenants: &[Tenant], access: &Access) -> Result<Self> {
        let spec = &scenario.target;
        let mut this =
            Self { write: Vec::new(), read: Vec::new(), version: spec.protocol, timeout: spec.timeout.0 };
        for tenant in tenants {
            let mut write = Vec::new();
            for url in spec.write.all() {
                write.push(Endpoint::resolve(&tenant.fill(url), access).await?);
            }
            this.read.push(Endpoint::resolve(&tenant.fill(&read_url(scenario)), access).await?);
            this.write.push(write);
        }
        Ok(this)
    }

    /// The path that a tenant writes to.
    pub(crate) fn write_path(&self, tenant: usize) -> String {
        self.write[tenant][0].path().to_owned()
    }

    pub(crate) fn writer(&self, tenant: &Tenant, writer: usize) -> Result<Client> {
        let endpoints = &self.write[tenant.number];
        let headers = request_headers(self.version, &tenant.headers)?;
        Ok(Client::new(endpoints[writer % endpoints.len()].clone(), headers, self.timeout))
    }

    /// A client that asks, and what stands before the path of each question.
    pub(crate) fn reader(&self, tenant: &Tenant) -> Result<(Client, String)> {
        let endpoint = &self.read[tenant.number];
        let path = endpoint.path().trim_end_matches('/').to_owned();
        Ok((Client::new(endpoint.clone(), crate::http::headers(&tenant.headers)?, self.timeout), path))
    }
}

/// Where a scenario's target is asked; of which tenant is not filled in.
pub(crate) fn read_url(scenario: &Scenario) -> String {
    let spec = &scenario.target;
    spec.read.clone().unwrap_or_else(|| crate::verify::read_url_for(&spec.write.all()[0]))
}
