//! Every journal against the conformance suite, and the embedded one against crashes and damage.

mod conform;
mod damage;
mod faults;
mod golden;
mod inspect;
