//! The newest data in memory: series index and compressed recent samples
