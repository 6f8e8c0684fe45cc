//! What may be held and done at once: memory, requests, new series, new tenants, and the time of background work.

pub(crate) mod budget;
pub(crate) mod gate;
pub(crate) mod head_memory;
pub(crate) mod head_watermarks;
pub(crate) mod headroom;
pub(crate) mod new_tenants;
pub(crate) mod open_files;
pub(crate) mod pacer;
pub(crate) mod shortage;
