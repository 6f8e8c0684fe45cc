//! Reads every acknowledged sample back after the load.

use crate::drive::addresses::{Addresses, read_url};
use crate::drive::options::RunOptions;
use crate::drive::tenants::Tenant;
use crate::result::RunResult;
use crate::scenario::Scenario;
use crate::show::progress::Observer;
use crate::verify::ledger::Ledger;
use crate::verify::{VerifyOptions, VerifyReport, verify};

pub(crate) async fn read_back(
    scenario: &Scenario,
    ledgers: &[(usize, Ledger)],
    tenants: &[Tenant],
    addresses: &Addresses,
    options: &RunOptions,
    observer: &dyn Observer,
    result: &mut RunResult,
) {
    const EXAMPLES_MAX: usize = 3;
    let mut all = VerifyReport::default();
    for (number, ledger) in ledgers {
        let tenant = &tenants[*number];
        let spec = &scenario.verify;
        let verify_options = VerifyOptions {
            headers: tenant.headers.clone(),
            access: options.access.clone(),
            patience: spec.patience.0,
            page_samples: spec.page.whole().max(1),
            connections: spec.connections,
            timeout: addresses.timeout,
            examples_max: EXAMPLES_MAX,
            tolerance: spec.tolerance,
            read_api: scenario.read_api(),
            step_ms: scenario.read_step_ms(),
            ..VerifyOptions::new(tenant.fill(&read_url(scenario)))
        };
        match verify(&verify_options, ledger, observer).await {
            Ok(report) => all.join(&report, EXAMPLES_MAX),
            Err(why) => {
                let VerifyReport { read_back, lost, doubled, wrong, .. } = all;
                result.unverified = Some(format!("{}: {why:#}", tenant.name));
                result.warnings.push(format!(
                    "not read back: {}: {why:#}; before the failure, {read_back} samples were found, {lost} lost, {doubled} \
                     doubled, {wrong} wrong",
                    tenant.name
                ));
                return;
            }
        }
    }
    if all.rounded > 0 {
        result.warnings.push(format!(
            "samples returned with rounded values: {}; the relative error is up to {}, which \
             verify.tolerance permits",
            all.rounded, scenario.verify.tolerance
        ));
    }
    result.verify = Some(all);
}
