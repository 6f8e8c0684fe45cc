//! PromQL over a source of series that the caller provides
