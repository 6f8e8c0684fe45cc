//! One connection: requests in the order of their series, repeated until they are taken.

pub(crate) mod duty;
pub(crate) mod exchange;
pub(crate) mod lead;
pub(crate) mod sender;
pub(crate) mod timer;
