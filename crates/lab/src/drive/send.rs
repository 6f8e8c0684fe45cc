//! A connection: sends the requests of its source, generated or recorded, in order, and repeats them until they are
//! accepted.

pub(crate) mod exchange;
pub(crate) mod generated;
pub(crate) mod lead;
pub(crate) mod sender;
pub(crate) mod time_share;
pub(crate) mod timer;
