//! End-to-end tests with the real executable, real sockets and a real file system. The first line of each
//! module says what it tests.

mod harness;

mod across_tenants;
mod administration;
mod aggregation_rules;
mod amplification;
mod authentication;
mod bad_queries;
mod bad_series;
mod carbon_rules;
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
mod graphite_render;
mod hostile_tenant;
mod imports;
mod influx;
mod ingest_rules;
mod lab;
mod lab_drivers;
mod lab_signals;
mod lake;
mod memory;
mod otlp;
mod overload;
mod overrides;
mod queries;
mod read_api;
mod real_prometheus;
mod reference;
mod replicas;
mod scripts;
mod self_monitoring;
mod senders;
mod slow;
#[cfg(feature = "sql")]
mod sql;
mod statsd;
mod streams;
mod tenants;
mod tls;
mod tokens;
mod traffic;
mod transfer;
mod vmagent;
mod whisper;
#[cfg(not(feature = "sql"))]
mod without_sql;
mod write_api;
mod wrong_credentials;
