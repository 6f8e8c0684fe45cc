//! Endpoints that take samples, one module for each protocol.

pub(super) mod remote_write;
