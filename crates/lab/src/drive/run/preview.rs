//! Prints what a scenario would send.

use crate::drive::tenants;
use crate::generate::protocol::Protocol;
use crate::generate::template::Renderer;
use crate::scenario::Scenario;
use anyhow::Result;
use std::io::Write;
use stdx::clock::{Clock, SystemClock};

/// Writes the points of the first round as lines, whatever the scenario's protocol.
pub fn print_round(scenario: &Scenario, out: &mut impl Write) -> Result<()> {
    for tenant in tenants::of(scenario, (1, 1), SystemClock.now_ms())? {
        let mut renderer = Renderer::new(Protocol::Graphite);
        for slot in 0..tenant.plan.slots_count() {
            let mut template = renderer.render(&tenant.plan, tenant.plan.slot(slot), 0);
            out.write_all(&template.body(&tenant.plan, 0))?;
        }
    }
    Ok(())
}
