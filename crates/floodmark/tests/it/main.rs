//! End to end: the real executable, real sockets, a real file system.
//!
//! - `harness`: starts the executable, sends HTTP requests to it, and fails a test if the server's log has an
//!   unexpected warning
//! - `write_api`, `bad_series`, `slow`: remote write, and all kinds of invalid or slow writes
//! - `graphite`: Graphite's plaintext protocol
//! - `read_api`, `bad_queries`: Prometheus' query API, and all kinds of invalid queries
//! - `queries`: lists, logs and cancellation of queries, for operators
//! - `command_line`: pipes, colours, addresses, settings, exit statuses, generated man pages and completions
//! - `reference`: the documents name everything that exists and nothing else
//! - `deploy`: the dashboard and the alert rules are valid, and use metrics that exist
//! - `golden`: data directories of earlier versions
//! - `consistency`: stored samples equal those sent
//! - `durability`, `damage`, `disk_full`: acknowledged samples survive
//! - `lake`: sealed samples are in tables exactly once
//! - `overload`, `amplification`: overload; small inputs that expand into much memory or work
//! - `authentication`: valid and invalid credentials, and what they allow
//! - `self_monitoring`: the server's own metrics as series
//! - `wrong_credentials`: no wrong credential is accepted, and no secret is written to a file or log
//! - `forward_auth`: another service authenticates requests
//! - `tokens`: JSON Web Tokens of other services, and many ways to forge them
//! - `across_tenants`: queries of several tenants at once
//! - `tls`, `administration`: encrypted connections; a listener for operators
//! - `tenants`, `overrides`: limits of tenants, changed at run time, and a hundred times under load
//! - `hostile_tenant`: effects of one tenant with valid credentials on others
//! - `replicas`: pairs of Prometheus servers whose samples are stored once
//! - `memory`: the process takes no more memory than `--memory`
//! - `churn`: constant series churn, with kill -9 in between
//! - `floods`: many new series, new tenants and returning senders at once, beside known series
//! - `transfer`: import, export and inspect
//! - `lab`, `lab_signals`: scenarios with faults, wrong answers and full disks; Ctrl-C and closed terminals
//! - `traffic`: traffic is recorded and replayed, and its report is opened in a browser
//! - `scripts`: the scripts in `bench/`
//! - `real_prometheus`: comparison with a real Prometheus

mod harness;

mod across_tenants;
mod administration;
mod amplification;
mod authentication;
mod bad_queries;
mod bad_series;
mod churn;
mod command_line;
mod consistency;
mod damage;
mod deploy;
mod disk_bytes;
mod disk_full;
mod durability;
mod floods;
mod forward_auth;
mod golden;
mod graphite;
mod hostile_tenant;
mod lab;
mod lab_signals;
mod lake;
mod memory;
mod overload;
mod overrides;
mod queries;
mod read_api;
mod real_prometheus;
mod reference;
mod replicas;
mod scripts;
mod self_monitoring;
mod slow;
mod tenants;
mod tls;
mod tokens;
mod traffic;
mod transfer;
mod write_api;
mod wrong_credentials;
