//! Runs the conformance suite on all journals, and tests the journal in files with crashes and damage.

mod bad_disk;
mod conform;
mod damage;
mod directories;
mod faults;
mod golden;
mod inspect;
