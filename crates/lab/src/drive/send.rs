//! A connection: sends the requests of its source in order, with retries.

pub(crate) mod exchange;
pub(crate) mod generated;
pub(crate) mod lead;
pub(crate) mod sender;
pub(crate) mod time_share;
pub(crate) mod timer;
