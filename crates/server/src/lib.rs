//! The shell: wiring, HTTP, tasks, the path of a batch
