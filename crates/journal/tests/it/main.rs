//! Tests all journals with the conformance suite, and journal files with crashes and damage.

mod bad_disk;
mod conform;
mod damage;
mod directories;
mod faults;
mod golden;
mod inspect;
