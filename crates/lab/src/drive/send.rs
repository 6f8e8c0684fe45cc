//! One connection: the requests of its source, generated or recorded, in order and repeated until they are taken.

pub(crate) mod exchange;
pub(crate) mod generated;
pub(crate) mod lead;
pub(crate) mod sender;
pub(crate) mod time_share;
pub(crate) mod timer;
