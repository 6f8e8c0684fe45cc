//! Graphite's functions beside a real graphite-web and a real carbonapi. `scripts/test-servers.sh` installs them.

mod carbonapi;
mod choices;
mod data;
mod differential;
mod oracle;
mod ours;
mod page;
mod points;
mod recorded;
mod rules;
mod second_reference;
mod signatures;
mod targets;
mod times;
