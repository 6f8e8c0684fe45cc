//! Functions of many values ask often whether the query is canceled.

use super::arguments;
use crate::graphite::functions;
use crate::graphite::test_store::Store;
use crate::meter::VALUES_PER_CHECK;
use crate::{Interrupt, QueryError};
use std::sync::atomic::{AtomicUsize, Ordering};

/// An interrupt that counts how often it is asked, and is set from question number `last` on.
#[derive(Debug)]
struct Questions {
    asked: AtomicUsize,
    last: usize,
}

impl Questions {
    fn until(last: usize) -> Self {
        Self { asked: AtomicUsize::new(0), last }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Interrupt for Questions {
    fn is_set(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) + 1 >= self.last
    }
}

const VALUES: usize = 6 * VALUES_PER_CHECK;

fn store_of(values: usize) -> Store {
    let mut store = Store::new().between(0, values as i64);
    store.samples_max = 1 << 30;
    store
}

fn store() -> Store {
    store_of(VALUES)
}

const SERIES: &str = "randomWalk('x',1)";

/// Questions of a target that is not canceled.
fn questions(target: &str) -> usize {
    let questions = Questions::until(usize::MAX);
    let all = store().try_render_until(target, &questions);
    for series in all.unwrap_or_else(|error| panic!("{target}: {error}")) {
        // the memory of values is known before they are computed
        let values = &series.values;
        assert!(values.capacity() <= values.len().max(VALUES + 16), "{target}: {}", values.capacity());
    }
    questions.asked()
}

#[test]
fn functions_that_change_values_ask_at_regular_intervals() {
    let of_series = questions(SERIES);
    assert!(of_series >= VALUES / VALUES_PER_CHECK, "{of_series}");
    for change in [
        "absolute({S})",
        "add({S},1)",
        "changed({S})",
        "derivative({S})",
        "exp({S})",
        "exponentialMovingAverage({S},2)",
        "holtWintersAberration({S},3,'1s','1s')",
        "holtWintersConfidenceBands({S},3,'1s','1s')",
        "holtWintersForecast({S},'1s','1s')",
        "integral({S})",
        "integralByInterval({S},'1h')",
        "invert({S})",
        "isNonNull({S})",
        "keepLastValue(removeAboveValue({S},1))",
        "interpolate(removeAboveValue({S},1))",
        "linearRegression({S})",
        "log({S})",
        "logit({S})",
        "minMax({S})",
        "movingAverage({S},2)",
        "movingAverage({S},20000)",
        "movingMedian({S},3)",
        "movingMedian({S},1000)",
        "movingSum({S},100)",
        "nonNegativeDerivative({S})",
        "offset({S},1)",
        "offsetToZero({S})",
        "aggregate({S},'median')",
        "percentileOfSeries({S},50)",
        "perSecond({S})",
        "pow({S},2)",
        "powSeries({S},{S})",
        "removeAbovePercentile({S},50)",
        "removeAboveValue({S},1)",
        "removeBelowPercentile({S},50)",
        "removeBelowValue({S},1)",
        "removeBetweenPercentile({S},50)",
        "round({S},300)",
        "scale({S},2)",
        "scaleToSeconds({S},60)",
        "sigmoid({S})",
        "squareRoot({S})",
        "stacked({S})",
        "stdev({S},2)",
        "summarize({S},'1d')",
        "smartSummarize({S},'1d')",
        "hitcount({S},'1d')",
        "sumSeries({S})",
        "timeSlice({S},'1','2')",
        "transformNull({S})",
    ] {
        let asked = questions(&change.replace("{S}", SERIES));
        assert!(asked >= of_series + VALUES / VALUES_PER_CHECK - 1, "{change}: {asked} of {of_series}");
    }
}

/// Each function ends at the first question after the query is canceled, wherever it is.
#[test]
fn every_function_ends_once_the_query_is_canceled() {
    let mut rng = stdx::rng::Rng::announced();
    let store = store_of(VALUES_PER_CHECK);
    let mut canceled = 0;
    for function in functions::all() {
        let target = format!("{}({})", function.name, arguments(function, SERIES, 1));
        let questions = Questions::until(usize::MAX);
        if store.try_render_until(&target, &questions).is_err() {
            continue;
        }
        let all = questions.asked();
        for last in [1, 1 + rng.below(all as u64) as usize, all] {
            let questions = Questions::until(last);
            let result = store.try_render_until(&target, &questions);
            assert_eq!(result, Err(QueryError::Canceled), "{target}, from question {last} of {all}");
            // a sort goes on without computing its keys
            assert!(questions.asked() <= last + 10, "{target}: {} after {last}", questions.asked());
            canceled += 1;
        }
    }
    assert!(canceled > 200, "{canceled}");
}

#[test]
fn chains_of_functions_end_between_their_links() {
    let (levels, mut series) = (60, String::from("constantLine(1)"));
    for target in
        ["alias({S},'x')", "grep({S},'.')", "lower({S})", "delay({S},1)", "color({S},'red')", "scale({S},2)"]
    {
        let alone = questions(&series);
        for _ in 0..levels {
            series = target.replace("{S}", &series);
        }
        let asked = questions(&series);
        assert!(asked >= alone + 2 * levels, "{target}: {asked} of {alone}");
        series = "constantLine(1)".into();
    }
    // the digits of 10^-200 are formatted
    let slow = format!("{}scale({SERIES},1e-200){}", "round(".repeat(levels), ",205)".repeat(levels));
    let questions = Questions::until(100);
    assert_eq!(store().try_render_until(&slow, &questions), Err(QueryError::Canceled));
    assert_eq!(questions.asked(), 100);
}
