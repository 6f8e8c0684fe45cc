//! `floodmark limits`: shows every limit of a running server with its use, origin, bounds and reason.
//!
//! - [`tenants`]: the table of all tenants

mod tenants;

use crate::cli::limits::LimitsArgs;
use crate::output::{print, say};
use anyhow::{Context, Result, bail};
use comfy_table::{ContentArrangement, Table, presets};
use hyper::{Method, Uri};
use lab::http::{Access, Client, Endpoint, TlsFiles, headers, percent};
use serde_json::{Value, json};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

/// The tables' width in characters if stdout is not a terminal.
const WIDTH: u16 = 160;

pub(crate) fn run(args: &LimitsArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if args.all {
        let tenants = runtime.block_on(all_tenants(args))?;
        return match args.json {
            true => say(format_args!("{:#}", json!({ "tenants": tenants }))),
            false => say(tenants::table(&tenants)),
        };
    }
    let data = runtime.block_on(one_tenant(args))?;
    if args.json {
        return say(format_args!("{data:#}"));
    }
    print(format_args!("{}\n", table(&data["node"])))?;
    match data["tenant"].as_str() {
        Some(tenant) => say(format_args!("\nTenant {tenant}\n{}", table(&data["limits"]))),
        None => Ok(()),
    }
}

async fn one_tenant(args: &LimitsArgs) -> Result<Value> {
    let tenant = args.tenant.as_deref().map_or_else(String::new, |name| format!("?tenant={}", percent(name)));
    Server::open(args).await?.ask(&format!("/api/v1/admin/limits{tenant}")).await
}

/// Asks page by page, because the server limits the tenants in an answer.
async fn all_tenants(args: &LimitsArgs) -> Result<Vec<Value>> {
    let mut server = Server::open(args).await?;
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let mut page = server.ask(&format!("/api/v1/admin/tenant_limits{after}")).await?;
        let tenants = page.get_mut("tenants").map(Value::take);
        let Some(Value::Array(tenants)) = tenants else { bail!("the answer has no tenants") };
        all.extend(tenants);
        match page["next"].as_str() {
            Some(next) => after = format!("?after={}", percent(next)),
            None => return Ok(all),
        }
    }
}

struct Server<'a> {
    target: &'a str,
    /// Path of the target, which precedes all paths.
    base: String,
    client: Client,
}

impl<'a> Server<'a> {
    async fn open(args: &'a LimitsArgs) -> Result<Self> {
        let host = args.target.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
        let tls = TlsFiles { ca: args.ca.clone(), ..TlsFiles::default() };
        // `--allow-host` is not required here, because this command sends no load
        let access = Access { hosts: host.into_iter().collect(), tls };
        let endpoint = Endpoint::resolve(&args.target, &access).await?;
        let mut given = Vec::new();
        if let Some(path) = &args.token_file {
            let token =
                std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            given.push(("Authorization".to_owned(), format!("Bearer {}", token.trim())));
        }
        let base = endpoint.path().trim_end_matches('/').to_owned();
        Ok(Self { target: &args.target, base, client: Client::new(endpoint, headers(&given)?, TIMEOUT) })
    }

    /// Returns the field `data` of an answer.
    async fn ask(&mut self, path: &str) -> Result<Value> {
        let Self { target, base, client } = self;
        let answer = client.send(Method::GET, &format!("{base}{path}"), bytes::Bytes::new()).await;
        let answer = answer.with_context(|| format!("no answer from {target}"))?;
        if !answer.status.is_success() {
            bail!("{target} answered {}: {}", answer.status.as_u16(), answer.text().trim_end());
        }
        let mut answer: Value = serde_json::from_slice(&answer.body).context("the answer is not JSON")?;
        Ok(answer["data"].take())
    }
}

fn empty_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if !table.is_tty() {
        table.set_width(WIDTH);
    }
    table
}

fn table(rows: &Value) -> Table {
    let mut table = empty_table();
    table.set_header(["limit", "value", "used", "peak", "origin", "bounds", "reason"]);
    for row in rows.as_array().into_iter().flatten() {
        let name = row["name"].as_str().unwrap_or_default();
        let shown = |field: &str| shown(&row[field], is_size(name));
        let origin = match row["from"].as_str() {
            Some(from) => format!("{}: {from}", shown("origin")),
            None => shown("origin"),
        };
        let cells = [
            name.to_owned(),
            shown("value"),
            shown("used"),
            shown("peak"),
            origin,
            shown("bounds"),
            shown("reason"),
        ];
        table.add_row(cells);
    }
    table
}

fn is_size(name: &str) -> bool {
    name.starts_with("memory of ") || name.ends_with("_bytes")
}

fn shown(value: &Value, is_size: bool) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) if is_size => number.as_u64().map_or_else(|| number.to_string(), size),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        value => value.to_string(),
    }
}

fn size(bytes: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_have_units_and_unknown_values_are_empty() {
        let rows = json!([
            { "name": "memory of head", "value": 1 << 20, "origin": "derived", "from": "memory", "used": 512, "peak": 1024 },
            { "name": "disk_bytes", "value": "90GiB", "origin": "derived", "used": 5u64 << 30 },
            { "name": "bytes_per_second", "value": 7340032, "origin": "flag" },
            { "name": "active_series", "value": "none", "origin": "default", "reason": "Limit on active series" },
        ]);
        let text = table(&rows).to_string();
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
        assert!(
            line("head").contains("1.0 MiB")
                && line("head").contains("512 B")
                && line("head").contains("derived: memory"),
            "{text}"
        );
        assert!(line("active_series").contains("none"), "{text}");
        assert!(line("disk_bytes").contains("5.0 GiB") && line("disk_bytes").contains("90GiB"), "{text}");
        assert!(line("bytes_per_second").contains("7340032"), "{text}");
    }
}
