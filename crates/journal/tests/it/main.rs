//! Runs the conformance suite on all journals, and tests journal files after crashes and damage.

mod bad_disk;
mod conform;
mod damage;
mod directories;
mod faults;
mod golden;
mod inspect;
mod records;
