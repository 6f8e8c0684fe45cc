//! Load, measure, verify: any target that speaks the protocols
