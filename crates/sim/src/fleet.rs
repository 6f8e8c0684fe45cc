//! The tenants of a run and their series, which are the same for all tenants.

use crate::plan::Plan;
use model::{Labels, TenantId};
use std::collections::BTreeMap;

pub const METRICS: [&str; 3] = ["a", "b", "c"];

#[derive(Debug)]
pub struct Fleet {
    pub tenants: Vec<TenantId>,
    pub series: Vec<Labels>,
    numbers: BTreeMap<String, usize>,
}

impl Fleet {
    pub fn new(plan: &Plan) -> Self {
        let tenant = |n| TenantId::parse(&format!("tenant-{n}")).expect("BUG: the tenant's name is invalid");
        let labels = |n: usize| {
            Labels::from_pairs(&[("__name__", METRICS[n % METRICS.len()]), ("series", &format!("s{n}"))])
        };
        let series: Vec<_> = (0..plan.series).map(labels).collect();
        let numbers = series.iter().enumerate().map(|(n, labels)| (labels.to_string(), n)).collect();
        Self { tenants: (0..plan.tenants).map(tenant).collect(), series, numbers }
    }

    pub fn series_of(&self, labels: &str) -> Option<usize> {
        self.numbers.get(labels).copied()
    }

    pub fn directory_of(&self, tenant: usize) -> String {
        format!("{}/", self.tenants[tenant].as_str())
    }
}
