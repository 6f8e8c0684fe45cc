//! The table of all tenants: a row for each, with use and limit.

use super::{empty_table, shown};
use comfy_table::Table;
use serde_json::Value;

/// Stands for a use that is not known.
const UNKNOWN: &str = "-";

pub(super) fn table(tenants: &[Value]) -> Table {
    let mut table = empty_table();
    let rows_of = |tenant: &Value| tenant["limits"].as_array().cloned().unwrap_or_default();
    // all tenants have the same limits
    let names = tenants.first().map(rows_of).unwrap_or_default();
    let names = names.iter().map(|row| row["name"].as_str().unwrap_or_default());
    let headings = names.map(|name| name.replace("_per_second", "/s").replace('_', " "));
    table.set_header(["tenant".to_owned()].into_iter().chain(headings));
    for tenant in tenants {
        let name = tenant["tenant"].as_str().unwrap_or_default().to_owned();
        table.add_row([name].into_iter().chain(rows_of(tenant).iter().map(cell)));
    }
    table
}

/// Use and limit, such as `3 / 100`.
fn cell(row: &Value) -> String {
    let is_size = row["name"].as_str().is_some_and(|name| name.contains("bytes"));
    let text = |field: &str, otherwise: &str| match &row[field] {
        Value::Null => otherwise.to_owned(),
        value => shown(value, is_size),
    };
    format!("{} / {}", text("used", UNKNOWN), text("limit", "none"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_has_use_and_limit() {
        let tenants = [
            json!({ "tenant": "team-a", "limits": [
                { "name": "active_series", "limit": 100, "used": 3, "peak": 7 },
                { "name": "bytes_per_second", "limit": null, "used": 2048, "peak": 2048 },
                { "name": "disk_bytes", "limit": 3u64 << 30, "used": 512, "peak": 512 },
            ] }),
            json!({ "tenant": "team-b", "limits": [
                { "name": "active_series", "limit": 100 },
                { "name": "bytes_per_second", "limit": 1 << 20 },
                { "name": "disk_bytes", "limit": null, "used": 0, "peak": 0 },
            ] }),
        ];
        let text = table(&tenants).to_string();
        let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default();
        let check = |name: &str, cells: &[&str]| {
            assert!(cells.iter().all(|cell| line(name).contains(cell)), "{name}: {text}");
        };
        check("tenant ", &["active series", "bytes/s", "disk bytes"]);
        check("team-a", &["3 / 100", "2.0 KiB / none", "512 B / 3.0 GiB"]);
        check("team-b", &["- / 100", "- / 1.0 MiB", "0 B / none"]);
        assert!(table(&[]).to_string().contains("tenant"));
    }
}
