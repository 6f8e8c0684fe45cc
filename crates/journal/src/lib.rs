//! The durable log: append, durable offset, read from an offset
