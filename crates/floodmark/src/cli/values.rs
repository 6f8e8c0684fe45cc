//! Parsers of option values: a few words, or a number within bounds. Help texts and completions show words and
//! bounds.

use anyhow::ensure;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use lab::campaign::{Axis, Resource};
use lab::scenario::{PRESETS, ReadApi, SampleTimes, notation};
use lab::{Protocol, ValueModel};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

pub(crate) fn protocol() -> impl TypedValueParser<Value = Protocol> {
    let value = |protocol: Protocol| {
        let value = PossibleValue::new(protocol.name()).help(protocol.about());
        match protocol {
            Protocol::V1 => value.aliases(["1", "v1"]),
            Protocol::V2 => value.aliases(["2", "v2"]),
            _ => value,
        }
    };
    one_of(Protocol::all().map(value))
}

pub(crate) fn read_api() -> impl TypedValueParser<Value = ReadApi> {
    one_of([
        PossibleValue::new("promql").help("Prometheus' /api/v1/query"),
        PossibleValue::new("render").help("Graphite's /render"),
    ])
}

/// How values change over time.
pub(crate) fn model() -> impl TypedValueParser<Value = ValueModel> {
    one_of([
        PossibleValue::new("mix").help("half counters, a quarter gauges, a quarter that rarely change"),
        PossibleValue::new("constant").help("one whole number that never changes"),
        PossibleValue::new("counter").help("whole numbers that grow, with resets"),
        PossibleValue::new("walk").help("a random walk, rounded to two or three decimals"),
        PossibleValue::new("timer").help("of 15 metrics, the first is a counter, the others walk"),
        PossibleValue::new("random").help("53 random bits: incompressible"),
    ])
}

/// Parses the name of the load that a search raises with each trial, to find the limit.
pub(crate) fn axis() -> impl TypedValueParser<Value = Axis> {
    one_of([
        PossibleValue::new("rate").help("samples per second, of the same series"),
        PossibleValue::new("series").help("series, and with them samples"),
        PossibleValue::new("qps").help("queries per second, of the first mix of reads"),
    ])
}

/// The resource that a search lowers.
pub(crate) fn resource() -> impl TypedValueParser<Value = Resource> {
    one_of([
        PossibleValue::new("memory").help("bytes; replaces {memory} in target.start"),
        PossibleValue::new("cores").help("number of cores; replaces {cores} in target.start"),
    ])
}

/// How recorded timestamps are rewritten.
pub(crate) fn timestamps() -> impl TypedValueParser<Value = SampleTimes> {
    one_of([
        PossibleValue::new("scaled").help("intervals shrink with the speed"),
        PossibleValue::new("shifted")
            .help("intervals stay as recorded; the last sample gets the time at which the replay ends"),
    ])
}

pub(crate) fn preset() -> PossibleValuesParser {
    PossibleValuesParser::new(PRESETS.iter().map(|(name, _)| PossibleValue::new(*name)))
}

fn one_of<T>(words: impl IntoIterator<Item = PossibleValue>) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: Display> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words.into_iter().collect::<Vec<_>>())
        .try_map(|word| word.parse::<T>().map_err(|error| error.to_string()))
}

/// A whole number such as 2000, 200k or 1.5M.
pub(crate) fn whole<T>(bounds: RangeInclusive<u64>) -> impl TypedValueParser<Value = T>
where
    T: TryFrom<u64> + Clone + Send + Sync + 'static,
{
    move |text: &str| -> anyhow::Result<T> {
        let number = notation::whole(text)?;
        let (low, high) = (bounds.start(), bounds.end());
        ensure!(bounds.contains(&number), "{number} is not between {low} and {high}");
        T::try_from(number).map_err(|_| anyhow::anyhow!("{number} is too large"))
    }
}

/// A number that may have a fraction.
pub(crate) fn number(bounds: RangeInclusive<f64>) -> impl TypedValueParser<Value = f64> {
    move |text: &str| -> anyhow::Result<f64> {
        let number = notation::count(text)?;
        let (low, high) = (bounds.start(), bounds.end());
        ensure!(bounds.contains(&number), "{number} is not between {low} and {high}");
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    fn accepts<T: Clone + Send + Sync + 'static>(
        parser: &impl TypedValueParser<Value = T>,
        text: &str,
    ) -> bool {
        parser.parse_ref(&Command::new("x"), None, text.as_ref()).is_ok()
    }

    /// The parser must accept every listed word and alias.
    fn check<T: Clone + Send + Sync + 'static>(parser: impl TypedValueParser<Value = T>) {
        let words: Vec<_> = parser.possible_values().expect("the parser lists its words").collect();
        assert!(words.len() >= 2);
        for name in words.iter().flat_map(PossibleValue::get_name_and_aliases) {
            assert!(accepts(&parser, name), "{name}");
        }
        assert!(!accepts(&parser, "nonsense"));
    }

    #[test]
    fn listed_words_are_understood() {
        check(protocol());
        check(read_api());
        check(model());
        check(axis());
        check(resource());
        check(timestamps());
        check(preset());
    }

    #[test]
    fn numbers_are_kept_within_their_bounds() {
        let small = whole::<u32>(1..=2_000);
        for good in ["1", "2k", "1_999"] {
            assert!(accepts(&small, good), "{good}");
        }
        for bad in ["0", "2001", "1.5", "-1", "x", "99999999999999999999"] {
            assert!(!accepts(&small, bad), "{bad}");
        }
        assert!(!accepts(&whole::<u8>(0..=1_000), "256"));
        let share = number(0.0..=1.0);
        assert!(accepts(&share, "0.25") && !accepts(&share, "1.5") && !accepts(&share, "NaN"));
    }
}
