//! Refusals, limits and choices. What functions compute is compared with graphite-web in `tests/it/graphite`.

mod interrupts;
mod names;

use super::{Function, Param, Type};
use crate::graphite::test_store::{NONE, Store};

fn store() -> Store {
    Store::new()
        .with("a.b", &[1.0, 2.0, NONE, 4.0])
        .with("a.c", &[10.0, NONE, NONE, 40.0])
        .with("a.e", &[NONE; 4])
}

#[test]
fn arguments_without_sense_are_refused() {
    for (target, part) in [
        ("movingAverage(a.b,-3)", "must not be negative"),
        ("exponentialMovingAverage(a.b,-3)", "must not be negative"),
        ("stdev(a.b,0)", "at least 1"),
        ("summarize(a.b,'0s')", "must be positive"),
        ("summarize(a.b,'-1h')", "must be positive"),
        ("smartSummarize(a.b,'1h','sum','fortnight')", "is not a unit of time"),
        ("hitcount(a.b,'0min')", "must be positive"),
        ("integralByInterval(a.b,'0h')", "must not be empty"),
        ("timeFunction('x',0)", "at least a second"),
        ("sin('x',1,-60)", "at least a second"),
        ("randomWalk('x',0)", "at least a second"),
        ("log(a.b,1)", "is not a base of a logarithm"),
        ("nPercentile(a.b,0)", "greater than 0"),
        ("removeAbovePercentile(a.b,-5)", "greater than 0"),
        ("areaBetween(a.*)", "exactly two series, not 3"),
        ("holtWintersConfidenceArea(a.*)", "exactly one series"),
        ("holtWintersForecast(a.b,'1h','30s')", "at least one step"),
        ("holtWintersForecast(a.b,'-1h')", "must be positive"),
        ("timeStack(a.b,'1d',0,1001)", "at most 1000 shifts"),
        ("verticalLine('4000')", "is not between"),
        ("timeSlice(a.b,'someday')", "someday"),
        ("grep(a.b,'(')", "function \"grep\""),
        ("grep(a.b,'(?=b)')", "function \"grep\""),
        ("useSeriesAbove(a.b,0,'b','\\2')", "no group \"2\""),
        ("consolidateBy(a.b,'median')", "must be one of sum, average"),
        ("filterSeries(a.b,'max','~',1)", "must be one of !="),
    ] {
        store().check_error(target, part);
    }
}

#[test]
fn functions_stay_within_the_memory_of_a_query() {
    for (target, until_s) in [
        ("timeFunction('x',1)", 1_000_000),
        ("identity('x')", 60_000_000),
        ("events('*')", 1_000_000),
        ("summarize(timeFunction('x',100),'1s')", 100_000),
        ("hitcount(timeFunction('x',100),'1s')", 100_000),
        ("sortByName(timeStack(timeFunction('x',1000),'1s',0,1000))", 100_000),
        ("holtWintersForecast(timeFunction('x',10),'1s')", 100_000),
    ] {
        let mut store = store().between(0, until_s);
        (store.now_s, store.samples_max) = (100_000_000, 10_000);
        store.check_error(target, "memory");
        if until_s == 100_000 {
            // the same target fits into more
            store.samples_max = 10_000_000;
            store.render(target);
        }
    }
}

/// Each level replaces the values of the one before.
#[test]
fn chains_need_as_much_memory_as_their_longest_two_series() {
    for (begin, end) in [("summarize(", ",'1s')"), ("smartSummarize(", ",'1s')"), ("hitcount(", ",'1s')")] {
        let chain = |levels| format!("{}timeFunction('x',1){}", begin.repeat(levels), end.repeat(levels));
        let [short, long] = [2, 60].map(|levels| least_samples_max(&chain(levels)));
        assert!(long < short * 3 / 2, "{begin}: {long} instead of {short}");
    }
}

/// A median needs all values of its interval at once.
#[test]
fn medians_need_memory_for_a_copy_of_the_values() {
    let [sum, median] = ["sum", "median"]
        .map(|function| least_samples_max(&format!("summarize(timeFunction('x',1),'1d','{function}')")));
    assert!(median > sum + COUNT / 4, "{median} instead of {sum}");
}

const COUNT: u64 = 80_000;

/// The memory that a target of [`COUNT`] values needs, as a number of samples of 16 bytes.
fn least_samples_max(target: &str) -> u64 {
    let mut store = store().between(0, COUNT as i64);
    let (mut too_small, mut enough) = (0, 100 * COUNT);
    while enough - too_small > COUNT / 100 {
        store.samples_max = u64::midpoint(too_small, enough);
        match store.try_render(target) {
            Ok(_) => enough = store.samples_max,
            Err(error) => {
                assert!(error.to_string().contains("memory"), "{error}");
                too_small = store.samples_max;
            }
        }
    }
    enough
}

#[test]
fn functions_differ_from_graphite_web_by_choice() {
    let store = store();
    store.check("exp(scale(a.b,1000))", &[("exp(scale(a.b,1000))", &[NONE; 4])]);
    store.check("sigmoid(scale(a.b,-1000))", &[("sigmoid(scale(a.b,-1000))", &[0.0, 0.0, NONE, 0.0])]);
    store.check("perSecond(a.b,100)", &[("perSecond(a.b)", &[NONE, 0.016_667, NONE, NONE])]);
    store.check(
        "averageOutsidePercentile(a.*,50)",
        &[("a.b", &[1.0, 2.0, NONE, 4.0]), ("a.c", &[10.0, NONE, NONE, 40.0])],
    );
    store.check("removeBetweenPercentile(a.e,50)", &[]);
    // the second evaluation does not stack on the first
    store.check(
        "movingSum(stacked(a.{b,c}),1)",
        &[
            ("movingSum(stacked(a.b),1)", &[1.0, 2.0, NONE, 4.0]),
            ("movingSum(stacked(a.c),1)", &[11.0, NONE, NONE, 44.0]),
        ],
    );
    store.check(
        "transformNull(a.b,5,timeFunction('x',10))",
        &[("transformNull(a.b,5,referenceSeries)", &[1.0, 2.0, 5.0, 4.0])],
    );
}

#[test]
fn extreme_arguments_cause_no_panic() {
    let numbers = ["9223372036854775807", "-9223372036854775808", "0", "1e300", "-1e300", "inf"];
    let intervals = ["'1000y'", "'-1000y'", "'1s'", "'-1s'", "'0s'"];
    let mut targets = Vec::new();
    for number in numbers {
        for function in [
            "add",
            "delay",
            "dashed",
            "exponentialMovingAverage",
            "highest",
            "keepLastValue",
            "limit",
            "log",
            "lowest",
            "mostDeviant",
            "movingAverage",
            "movingMedian",
            "nPercentile",
            "pow",
            "removeAbovePercentile",
            "removeBetweenPercentile",
            "round",
            "scale",
            "scaleToSeconds",
            "stdev",
            "transformNull",
        ] {
            targets.push(format!("{function}(a.b,{number})"));
        }
        targets.push(format!("sin('x',{number},{number})"));
        targets.push(format!("timeFunction('x',{number})"));
        targets.push(format!("constantLine({number})"));
        targets.push(format!("verticalLine('{number}')"));
        targets.push(format!("timeSlice(a.b,'{number}')"));
        targets.push(format!("linearRegression(a.b,'{number}','{number}')"));
        targets.push(format!("timeStack(a.b,'1000y',{number},{number})"));
        targets.push(format!("timeStack(a.b,'1000y',0,{number})"));
    }
    for interval in intervals {
        for function in [
            "exponentialMovingAverage",
            "hitcount",
            "holtWintersForecast",
            "integralByInterval",
            "movingAverage",
            "smartSummarize",
            "summarize",
            "timeShift",
            "timeStack",
        ] {
            targets.push(format!("{function}(a.b,{interval})"));
            targets.push(format!("summarize({function}(a.b,{interval}),'1h')"));
        }
    }
    for (from_s, until_s) in
        [(0, 300), (i64::MIN, i64::MAX), (i64::MAX, i64::MAX), (i64::MIN, i64::MIN), (300, 0)]
    {
        let mut store = store().between(from_s, until_s);
        store.samples_max = 1_000_000;
        for target in &targets {
            // an answer or a refusal
            let _ = store.try_render(target);
        }
    }
}

/// A template variable of a dashboard may have no value.
#[test]
fn functions_of_several_lists_may_have_none() {
    for name in ["sumSeries", "averageSeries", "diffSeries", "multiplySeries", "powSeries", "group"] {
        store().check(&format!("{name}()"), &[]);
    }
    store().check_error("minMax()", "is missing");
}

#[test]
fn stacks_are_apart_from_each_other() {
    let store = store();
    store.check(
        "sumSeries(stacked(a.b),stacked(a.c),stacked(a.b,'other'))",
        &[("sumSeries(stacked(a.b),stacked(a.c),a.b)", &[13.0, 4.0, NONE, 52.0])],
    );
}

#[test]
fn nested_windows_do_not_read_their_argument_too_often() {
    let nested = |levels: usize, window: &str| {
        format!("{}a.b{}", "movingSum(".repeat(levels), format!(",{window})").repeat(levels))
    };
    for (window, levels) in [("1", 5), ("'60s'", 6)] {
        store().render(&nested(levels, window));
        store().check_error(&nested(levels + 1, window), "more than 5 functions are nested");
        store().check_error(&nested(60, window), "more than 5 functions are nested");
    }
}

#[test]
fn nested_calls_do_not_read_their_argument_too_often() {
    for (begin, end) in [
        ("timeShift(", ",'1min')"),
        ("timeStack(", ",'1min',0,1)"),
        ("linearRegression(", ")"),
        ("holtWintersAberration(", ")"),
        ("sumSeries(identity('x'),", ",sin('y',1,7),sin('z',1,11))"),
        ("groupByNode(group(identity('a.x'),", ",sin('a.y',1,7),sin('a.z',1,11)),0)"),
    ] {
        let nested = |levels: usize| format!("{}a.b{}", begin.repeat(levels), end.repeat(levels));
        let is_refused = |levels: usize| match store().try_render(&nested(levels)) {
            Err(error) => error.to_string().contains("more than 5 functions are nested"),
            Ok(_) => false,
        };
        assert_eq!([5, 6, 30].map(is_refused), [false, true, true], "{begin}");
    }
}

/// timeShift() gives all series the end of the first one, which may be far behind the values of another.
#[test]
fn intervals_behind_the_values_take_memory() {
    let first = "summarize(sin('x',1,1),'900y')";
    let mut store = store().between(0, 300);
    store.samples_max = 100_000;
    let values = "removeBelowValue(sin('x',1,1),0.9)";
    store.check_error(&format!("compressPeriodicGaps(timeShift(group({first},{values}),'0s'))"), "memory");
}

#[test]
fn the_deepest_calls_fit_on_the_stack() {
    // names of series are targets with calls as deep as they may be, each of which builds the next target
    let nested = |inner: &str| format!("{}{inner}{}", "scale(".repeat(60), ",1)".repeat(60));
    let next = |level: usize| nested(&format!("useSeriesAbove(L{level}*,0,'^L{level}_','')"));
    let mut store = Store::new()
        .with("a", &[1.0])
        .with(&format!("L1_{}", next(2)), &[1.0])
        .with(&format!("L2_{}", next(3)), &[1.0])
        .with(&format!("L3_{}", next(4)), &[1.0])
        .with(&format!("L4_{}", nested("a")), &[1.0]);
    store.samples_max = 10_000_000;
    assert_eq!(store.render(&next(1))[0].name.matches("scale(").count(), 5 * 60);
}

/// Arguments for all parameters of a function: series for those that take series, and one or `times` values for others.
fn arguments(function: &Function, series: &str, times: usize) -> String {
    let argument = |param: &Param| {
        let value = match param.kind {
            Type::SeriesList => series.to_owned(),
            Type::SeriesLists => format!("mapSeries({series},0)"),
            Type::Any => "None".into(),
            Type::Boolean => "true".into(),
            Type::Float if param.name == "n" => "50".into(),
            Type::Float | Type::Integer | Type::IntOrInf | Type::IntOrInterval => "1".into(),
            Type::Node | Type::NodeOrTag => "0".into(),
            Type::Tag => "'name'".into(),
            Type::Date => "'now'".into(),
            Type::Interval => "'1h'".into(),
            Type::AggFunc | Type::AggOrSeriesFunc => "'sum'".into(),
            Type::String => match (param.options, param.name) {
                ([first, ..], _) => format!("'{first}'"),
                (_, "search" | "pattern") => "'a+'".into(),
                (_, "intervalUnit") => "'1h'".into(),
                (_, "reduceFunction") => "'sumSeries'".into(),
                (_, "alignTo") => "'hours'".into(),
                (_, "templateFunction") => "'constantLine(1)'".into(),
                (_, "replace") => format!("'{}'", "\\g<0>".repeat(times)),
                _ => format!("'{}'", "%".repeat(times)),
            },
        };
        let is_series = matches!(param.kind, Type::SeriesList | Type::SeriesLists);
        vec![value; if param.is_multiple && !is_series { times } else { 1 }].join(",")
    };
    function.params.iter().map(argument).collect::<Vec<_>>().join(",")
}
