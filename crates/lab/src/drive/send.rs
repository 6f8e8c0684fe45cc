//! A connection that sends requests one after the other, and retries those that fail.

pub(crate) mod answered;
pub(crate) mod exchange;
pub(crate) mod generated;
pub(crate) mod lead;
pub(crate) mod owed;
pub(crate) mod sender;
pub(crate) mod time_share;
pub(crate) mod timer;
pub(crate) mod wire;
