//! Functions of each value and the values before it.

use super::each::map;
use super::table::{Function, Group, Param, SERIES_LIST, Type};
use crate::QueryError;
use crate::graphite::Series;
use crate::graphite::call::{Call, Sink};
use crate::graphite::rounding::round;

const MAX_VALUE: Param = Param::optional("maxValue", Type::Float);
const MIN_VALUE: Param = Param::optional("minValue", Type::Float);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        "changed",
        Group::Special,
        "1 where a value differs from the one before, else 0. Gaps are skipped.",
        &[SERIES_LIST],
        changed,
    )
    .mapping(),
    Function::new(
        "delay",
        Group::Transform,
        "Moves values to later points, by a number of steps. A negative number moves them to earlier points.",
        &[SERIES_LIST, Param::required("steps", Type::Integer)],
        delay,
    )
    .mapping(),
    Function::new(
        "derivative",
        Group::Transform,
        "The difference of each value and the one before.",
        &[SERIES_LIST],
        derivative,
    )
    .mapping(),
    Function::new(
        "integral",
        Group::Transform,
        "The sum of all values up to each point.",
        &[SERIES_LIST],
        integral,
    )
    .mapping(),
    Function::new(
        "integralByInterval",
        Group::Transform,
        "The sum of all values up to each point. It begins again after each interval, counted from the start of the \
         request.",
        &[SERIES_LIST, Param::required("intervalUnit", Type::String)],
        integral_by_interval,
    )
    .mapping(),
    Function::new(
        "nonNegativeDerivative",
        Group::Transform,
        "The increase of a counter since the value before. After a decrease, it is missing, unless the \
         counter is known to start again at `minValue`, or after `maxValue`.",
        &[SERIES_LIST, MAX_VALUE, MIN_VALUE],
        non_negative_derivative,
    )
    .mapping(),
    Function::new(
        "perSecond",
        Group::Transform,
        "The increase of a counter per second. See nonNegativeDerivative() for decreases.",
        &[SERIES_LIST, MAX_VALUE, MIN_VALUE],
        per_second,
    )
    .mapping(),
];

fn changed(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    map(call, sink, |series| {
        series.rename(format!("changed({})", series.name));
        let mut previous = f64::NAN;
        call.meter().change_each(&mut series.values, |value| {
            let is_change = !previous.is_nan() && !value.is_nan() && *value != previous;
            if is_change || previous.is_nan() {
                previous = *value;
            }
            *value = f64::from(u8::from(is_change));
        })
    })
}

fn delay(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let steps = call.integer("steps");
    let count = usize::try_from(steps.unsigned_abs()).unwrap_or(usize::MAX);
    map(call, sink, |series| {
        named(series, "delay", &steps.to_string(), &format!(",{steps}"));
        let len = series.values.len();
        let count = count.min(len);
        match steps {
            // graphite-web drops all values then
            0 => series.values.clear(),
            1.. => {
                series.values.copy_within(..len - count, count);
                series.values[..count].fill(f64::NAN);
            }
            _ => {
                series.values.copy_within(count.., 0);
                series.values[len - count..].fill(f64::NAN);
            }
        }
        Ok(())
    })
}

fn derivative(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    map(call, sink, |series| {
        named(series, "derivative", "1", "");
        let mut previous = f64::NAN;
        call.meter().change_each(&mut series.values, |value| {
            let difference = *value - previous;
            previous = std::mem::replace(value, difference);
        })
    })
}

fn integral(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    map(call, sink, |series| {
        named(series, "integral", "1", "");
        let mut sum = 0.0;
        call.meter().change_each(&mut series.values, |value| {
            if !value.is_nan() {
                sum += *value;
                *value = sum;
            }
        })
    })
}

fn integral_by_interval(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let (interval_s, shown) = (call.interval("intervalUnit")?.abs(), call.text("intervalUnit"));
    if interval_s == 0 {
        return Err(call.refuse("the interval must not be empty"));
    }
    let from_s = call.context().from_s;
    map(call, sink, |series| {
        named(series, "integralByInterval", &shown, &format!(",'{shown}'"));
        let (mut sum, mut time_s, step_s) = (0.0, series.start_s - from_s, series.step_s);
        call.meter().change_each(&mut series.values, |value| {
            if time_s.div_euclid(interval_s) != (time_s - step_s).div_euclid(interval_s) {
                sum = 0.0;
            }
            if !value.is_nan() {
                sum += *value;
            }
            *value = sum;
            time_s += step_s;
        })
    })
}

fn non_negative_derivative(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let bounds = Bounds::of(call);
    map(call, sink, |series| {
        named(series, "nonNegativeDerivative", "1", "");
        bounds.increases(call, &mut series.values, |increase| increase)
    })
}

fn per_second(call: &Call<'_>, sink: &mut Sink<'_>) -> Result<(), QueryError> {
    let bounds = Bounds::of(call);
    map(call, sink, |series| {
        named(series, "perSecond", "1", "");
        let step_s = series.step_s as f64;
        bounds.increases(call, &mut series.values, |increase| round(increase / step_s, 6))
    })
}

/// Renames a series to `function(name…)`, and sets the tag `function`.
pub(super) fn named(series: &mut Series, function: &str, tag: &str, arguments: &str) {
    series.tags.set(function, tag);
    series.rename(format!("{function}({}{arguments})", series.name));
}

/// Where a counter begins and ends.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    max: Option<f64>,
    min: Option<f64>,
}

impl Bounds {
    fn of(call: &Call<'_>) -> Self {
        Self { max: call.optional_number("maxValue"), min: call.optional_number("minValue") }
    }

    /// Replaces values of a counter by what `of` makes of their increases.
    fn increases(
        self,
        call: &Call<'_>,
        values: &mut [f64],
        of: impl Fn(f64) -> f64,
    ) -> Result<(), QueryError> {
        let mut previous = f64::NAN;
        call.meter().change_each(values, |value| {
            let (increase, next) = self.increase(*value, previous);
            (*value, previous) = (of(increase), next);
        })
    }

    /// The increase, and the value that the next one is compared with.
    fn increase(self, value: f64, previous: f64) -> (f64, f64) {
        let is_outside = self.max.is_some_and(|max| value > max) || self.min.is_some_and(|min| value < min);
        if is_outside || value.is_nan() || previous.is_nan() {
            return (f64::NAN, if is_outside { f64::NAN } else { value });
        }
        let increase = match (self.max, self.min) {
            _ if value >= previous => value - previous,
            (Some(max), min) => max + 1.0 + value - previous - min.unwrap_or(0.0),
            (None, Some(min)) => value - min,
            (None, None) => f64::NAN,
        };
        (increase, value)
    }
}
