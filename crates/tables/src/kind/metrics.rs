//! The metrics table: its columns and their encodings.
//!
//! A row is one series over a part of one day, with its labels once and its samples as lists. One `UNNEST` returns one
//! row per sample.
//!
//! | column | encoding | why |
//! | --- | --- | --- |
//! | `name`, keys and values of `labels` | dictionary | few distinct texts, in sorted order |
//! | `series` | plain, no dictionary | a hash has no pattern |
//! | `start`, `end`, `count` | delta | almost the same from row to row |
//! | `timestamps`, `mantissas` | delta, no dictionary | differences are small; a dictionary would be large |
//! | `exponent` | dictionary | a handful of values |
//! | `base` | delta, no dictionary | no two rows share a base |
//! | `floats` | dictionary, else plain | dictionary: staleness markers repeat; plain: engines differ on byte-stream-split |
//!
//! Only columns that can exclude rows have bounds (`name`, `series`, `start`, `end`).

use super::{Coding, Column, FIRST_VERSION, Kind, MergePolicy, Type};

pub const NAME: &str = "name";
/// All labels except the metric name.
pub const LABELS: &str = "labels";
/// Series key, 128 bits, big-endian.
pub const SERIES: &str = "series";
/// Time of the first sample.
pub const START: &str = "start";
/// Time of the last sample.
pub const END: &str = "end";
pub const COUNT: &str = "count";
/// Times of the samples, ascending.
pub const TIMESTAMPS: &str = "timestamps";
/// Exponent of the power of ten by which mantissas are divided; null with `floats`.
pub const EXPONENT: &str = "exponent";
/// Number added to a row's mantissas; null with `floats`.
pub const BASE: &str = "base";
/// Mantissas: values times `10^exponent`, less `base`.
pub const MANTISSAS: &str = "mantissas";
/// Values without an exact decimal form.
pub const FLOATS: &str = "floats";

/// Columns that say which series and time range a row has.
pub(crate) const KEY_COLUMNS: [&str; 5] = [NAME, LABELS, SERIES, START, END];

/// Columns that are needed to read a row's samples.
pub(crate) const ROW_COLUMNS: [&str; 10] =
    [NAME, LABELS, SERIES, START, END, TIMESTAMPS, EXPONENT, BASE, MANTISSAS, FLOATS];

pub static METRICS: Kind = Kind {
    name: "metrics",
    version: FIRST_VERSION,
    columns: &COLUMNS,
    sort_key: &[NAME, LABELS, START],
    time: [START, END],
    merge: MergePolicy::LaterWins,
};

/// Rollup tables hold statistics of samples; see [`crate::rollup`]. One commit writes a whole day, so no two files of
/// a day hold the same sample.
pub static ROLLUP: Kind = Kind { name: "rollup", merge: MergePolicy::Disjoint, ..METRICS };

pub const COLUMNS: [Column; 11] = [
    bounded(NAME, Type::Text, Coding::Dictionary),
    column(LABELS, Type::TextMap, Coding::Dictionary),
    bounded(SERIES, Type::Bytes, Coding::Plain),
    bounded(START, Type::Timestamp, Coding::Delta),
    bounded(END, Type::Timestamp, Coding::Delta),
    column(COUNT, Type::Int, Coding::Delta),
    column(TIMESTAMPS, Type::List(&Type::Timestamp), Coding::Delta),
    nullable(EXPONENT, Type::Byte, Coding::Dictionary),
    nullable(BASE, Type::Long, Coding::Delta),
    nullable(MANTISSAS, Type::List(&Type::Long), Coding::Delta),
    nullable(FLOATS, Type::List(&Type::Double), Coding::Dictionary),
];

const fn column(name: &'static str, data_type: Type, encoding: Coding) -> Column {
    Column { name, data_type, is_nullable: false, since: FIRST_VERSION, encoding, has_bounds: false }
}

const fn bounded(name: &'static str, data_type: Type, encoding: Coding) -> Column {
    Column { has_bounds: true, ..column(name, data_type, encoding) }
}

const fn nullable(name: &'static str, data_type: Type, encoding: Coding) -> Column {
    Column { is_nullable: true, ..column(name, data_type, encoding) }
}
