//! Numbers as people write them in a scenario.

use crate::scenario::notation;
use anyhow::Context as _;
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use std::fmt;
use std::time::Duration;

/// A duration, written as `"90s"`, `"1h30m"`, or a number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Span(pub Duration);

/// A count, written as `110_000` or `"110k"`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Count(pub f64);

/// A number of bytes, written as `"4GiB"`, `"512MB"`, or a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Size(pub u64);

impl Span {
    /// Zero if `seconds` is not a valid duration.
    pub fn seconds(seconds: f64) -> Self {
        Self(Duration::try_from_secs_f64(seconds).unwrap_or_default())
    }

    pub fn s(self) -> f64 {
        self.0.as_secs_f64()
    }

    pub fn ms(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Count {
    pub fn whole(self) -> u64 {
        self.0 as u64
    }
}

pub fn size(text: &str) -> anyhow::Result<u64> {
    stdx::units::bytes(text).with_context(|| format!("{text:?} is not a size such as 512MiB or 4GiB"))
}

/// Deserializes a string or a number. For other types, the error says what was expected.
struct NumberOrText<T> {
    expected: &'static str,
    number: fn(f64) -> anyhow::Result<T>,
    text: fn(&str) -> anyhow::Result<T>,
}

impl<T> Visitor<'_> for NumberOrText<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_f64(number as f64)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        (self.number)(number).map_err(|error| E::custom(format!("{error:#}")))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.text)(text).map_err(|error| E::custom(format!("{error:#}")))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrText {
            expected: "a duration such as \"90s\", or seconds",
            number: |n| {
                Ok(Self(
                    Duration::try_from_secs_f64(n).map_err(|_| anyhow::anyhow!("{n} s is not a duration"))?,
                ))
            },
            text: |text| Ok(Self(notation::duration(text)?)),
        })
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrText {
            expected: "a number such as 2000 or \"110k\"",
            number: |n| {
                anyhow::ensure!(n.is_finite() && n >= 0.0, "{n} is not a count");
                Ok(Self(n))
            },
            text: |text| Ok(Self(notation::count(text)?)),
        })
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrText {
            expected: "a size such as \"4GiB\", or bytes",
            number: |n| {
                anyhow::ensure!((0.0..1e18).contains(&n), "{n} is not a size");
                Ok(Self(n as u64))
            },
            text: |text| Ok(Self(size(text)?)),
        })
    }
}
