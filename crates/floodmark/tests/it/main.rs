//! End-to-end tests with the real executable, real sockets and a real file system. The first line of each
//! module says what it tests.

mod harness;

mod across_tenants;
mod administration;
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
mod whisper;
mod write_api;
mod wrong_credentials;
