//! Graphite's functions beside a real graphite-web. `scripts/test-servers.sh` installs it.

mod choices;
mod data;
mod differential;
mod oracle;
mod ours;
mod page;
mod points;
mod recorded;
mod rules;
mod signatures;
mod targets;
