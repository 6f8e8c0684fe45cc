//! Bytes to batches and back: no socket, no clock, no threads
