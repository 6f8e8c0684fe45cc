//! Limits of the node: memory, concurrent requests, and time of background work.

pub(crate) mod budget;
pub(crate) mod fair_permits;
pub(crate) mod gate;
pub(crate) mod head_memory;
pub(crate) mod headroom;
pub(crate) mod open_files;
pub(crate) mod pacer;
pub(crate) mod replicas;
pub(crate) mod tenant_state;
