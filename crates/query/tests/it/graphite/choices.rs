//! Where Floodmark answers differently from graphite-web, and why. `docs/graphite-functions.md` lists these choices.

/// A difference that is meant to be there.
#[derive(Debug)]
pub(super) struct Choice {
    /// Functions that differ.
    pub(super) functions: &'static [&'static str],
    /// What Floodmark does.
    pub(super) text: &'static str,
}

const fn choice(functions: &'static [&'static str], text: &'static str) -> Choice {
    Choice { functions, text }
}

pub(super) const CHOICES: &[Choice] = &[
    choice(
        &["nonNegativeDerivative", "perSecond"],
        "With `maxValue` or `minValue`, a gap is a gap. graphite-web fails.",
    ),
    choice(
        &["averageOutsidePercentile", "removeBetweenPercentile", "useSeriesAbove"],
        "Gaps are left out. graphite-web fails if there is any.",
    ),
    choice(&["exp"], "A result that is too large for a number is missing. graphite-web fails."),
    choice(&["sigmoid"], "The result for a very small value is 0. graphite-web fails."),
    choice(
        &["transformNull"],
        "If a reference series is longer than the series, values stay in their places. graphite-web moves them.",
    ),
    choice(
        &["areaBetween", "holtWintersConfidenceArea", "holtWintersConfidenceBands"],
        "Each series has its own tags. In graphite-web, two series share one set of tags, and what a later function sets for one, it sets for both.",
    ),
    choice(
        &["stacked"],
        "If a function around it evaluates it twice, values are stacked once. graphite-web stacks them on those of the first time.",
    ),
    choice(
        &["randomWalk", "randomWalkFunction"],
        "The same request has the same answer, so that functions which evaluate it twice see the same values. In graphite-web, each answer is different.",
    ),
    choice(
        &["verticalLine"],
        "Without a label, the name is `verticalLine`, because all series have names. graphite-web has no name then.",
    ),
    choice(
        &["linearRegression", "timeSlice"],
        "Times may be numbers without quotes, and times of day are in the time zone of the request. In graphite-web, they are texts, in the time zone of the server.",
    ),
    choice(
        &["integralByInterval", "linearRegression", "timeFunction", "timeSlice", "verticalLine"],
        "A request in another time zone than the server's has the same values. In graphite-web, times are off by the difference of the zones.",
    ),
    choice(
        &["timeShift"],
        "`alignDst` follows the clocks of the time zone of the request. In graphite-web, those of the server's.",
    ),
    choice(
        &[
            "exponentialMovingAverage",
            "hitcount",
            "movingAverage",
            "movingMax",
            "movingMedian",
            "movingMin",
            "movingSum",
            "movingWindow",
            "smartSummarize",
            "timeShift",
            "timeStack",
        ],
        "In a `template`, variables in the first argument are replaced. graphite-web evaluates the argument again with the variables as they are, and finds no series.",
    ),
    choice(
        &["hitcount", "integralByInterval", "smartSummarize", "summarize"],
        "An interval of zero or below is refused. graphite-web fails, or gives a meaningless answer.",
    ),
    choice(
        &[
            "movingAverage",
            "movingMax",
            "movingMedian",
            "movingMin",
            "movingSum",
            "movingWindow",
            "exponentialMovingAverage",
            "stdev",
        ],
        "A negative window is refused. graphite-web gives a meaningless answer.",
    ),
    choice(
        &["randomWalk", "randomWalkFunction", "sin", "sinFunction", "time", "timeFunction"],
        "A step below a second is refused. graphite-web never answers.",
    ),
    choice(
        &["nPercentile", "removeAbovePercentile", "removeBelowPercentile"],
        "A percentile of zero or below is refused. graphite-web fails, or counts from the largest value.",
    ),
    choice(
        &[
            "holtWintersAberration",
            "holtWintersConfidenceArea",
            "holtWintersConfidenceBands",
            "holtWintersForecast",
        ],
        "A season that is shorter than a step is refused. graphite-web fails, or has no values.",
    ),
    choice(
        &["aggregateLine", "constantLine", "threshold"],
        "In a range of one second, the step is a second. In graphite-web, it is zero, and the answer fails.",
    ),
    choice(
        &["asPercent", "pct"],
        "If steps differ, the result has their least common multiple. graphite-web shows values of this step at the times of the old step. If a series or its total is missing, the result has the times of the other. graphite-web takes the times of another result, or fails.",
    ),
    choice(
        &["reduce", "reduceSeries"],
        "A group in which a series is missing is left out. graphite-web fails.",
    ),
    choice(
        &["aliasQuery", "aliasSub"],
        "Regular expressions have no look-around and no references to groups, so that no expression takes exponential time. They have at most 4,096 bytes.",
    ),
    choice(
        &["timeStack"],
        "At most 1,000 shifts are allowed, because each evaluates the argument again. graphite-web has no limit.",
    ),
    choice(
        &["exclude", "grep"],
        "Regular expressions have no look-around and no references to groups, so that no expression takes exponential time. They have at most 4,096 bytes.",
    ),
    choice(
        &["legendValue"],
        "A whole number is written as `5.0` even if a function such as `changed` made it, because all values are floating-point numbers. graphite-web writes `5` then.",
    ),
];

/// The second reference, in the version of `scripts/test-servers.sh`.
pub(super) const CARBONAPI: &str = "carbonapi 0.18.2";

/// Where carbonapi answers differently from graphite-web. Floodmark answers as graphite-web. Names and tags of series,
/// which carbonapi writes in another style, and combinations of series of different steps or lengths are
/// not compared.
pub(super) const OF_CARBONAPI: &[Choice] = &[
    choice(
        &[
            "alpha",
            "areaBetween",
            "color",
            "dashed",
            "drawAsInfinite",
            "holtWintersConfidenceArea",
            "lineWidth",
            "secondYAxis",
            "stacked",
            "threshold",
            "verticalLine",
        ],
        "Exist only if it was built with Cairo, a library for drawing.",
    ),
    choice(&["events"], "Does not exist."),
    choice(&["randomWalk", "randomWalkFunction"], "Each answer is different."),
    choice(&["perSecond", "scaleToSeconds"], "Values are not rounded to six places."),
    choice(
        &["nonNegativeDerivative", "perSecond"],
        "A `maxValue` of at most `minValue` is refused, and a decrease is wrapped differently.",
    ),
    choice(&["transformNull"], "The reference series do not count."),
    choice(&["sortByMinima"], "Series without positive values are kept."),
    choice(&["minimumAbove", "minimumBelow"], "Series without values are selected differently."),
    choice(
        &["exp", "log", "logit", "pow"],
        "Results may be infinite, where graphite-web has no value or fails.",
    ),
    choice(&["setXFilesFactor", "xFilesFactor"], "Functions that combine series do not take note of it."),
    choice(
        &["aggregateSeriesLists"],
        "Series are named by the whole lists, so that functions around it see other nodes.",
    ),
    choice(
        &["map", "mapSeries", "reduce", "reduceSeries"],
        "Nodes are those of the metric inside the name, even if functions are applied to it.",
    ),
    choice(&["derivative"], "After a gap, the value is the difference from the value before the gap."),
    choice(&["keepLastValue"], "The beginning of a gap is filled even if the gap is longer than `limit`."),
    choice(&["delay"], "Values are kept if the number of steps is zero or below."),
    choice(
        &["nPercentile", "percentileOfSeries", "removeAbovePercentile", "removeBelowPercentile"],
        "Percentiles are interpolated differently.",
    ),
    choice(
        &["averageOutsidePercentile", "removeBetweenPercentile"],
        "Percentiles are computed differently. Some arguments make it fail.",
    ),
    choice(&["stdev"], "The share of values that must be present is taken from the wrong side."),
    choice(&["linearRegression"], "The times as arguments do not count. Values are less precise."),
    choice(&["movingMedian"], "The window includes the present point."),
    choice(&["movingWindow"], "Some aggregations are missing, or treat gaps differently."),
    choice(
        &["aliasQuery"],
        "A series without a value is shown with the name `NaN`. graphite-web refuses it.",
    ),
    choice(&["aliasSub"], "Regular expressions are those of Go."),
    choice(&["lower", "upper"], "A place behind the end of the name makes it fail."),
    choice(&["unique"], "Only the first argument is used."),
    choice(&["holtWintersAberration", "timeStack"], "Often answers without series."),
    choice(
        &[
            "highest",
            "highestAverage",
            "highestCurrent",
            "highestMax",
            "limit",
            "lowest",
            "lowestAverage",
            "lowestCurrent",
            "mostDeviant",
        ],
        "A negative number of series makes it fail, or is taken as zero. If all series are wanted, or values are equal, their order is different.",
    ),
    choice(&["sortBy"], "If values are equal, the order of the series is different."),
    choice(
        &["averageBelow", "currentBelow", "filterSeries"],
        "Series without values, and some aggregations, are treated differently.",
    ),
    choice(
        &["summarize", "smartSummarize", "hitcount"],
        "Intervals begin at other times, and one more may be shown.",
    ),
    choice(&["timeShift"], "With `resetEnd`, values end at `until`, so that the last one may be missing."),
    choice(&["timeSlice"], "Takes only times relative to now."),
    choice(&["aggregateLine", "constantLine"], "The line has two points instead of three."),
    choice(&["compressPeriodicGaps"], "Values of zero count as well when the interval is guessed."),
    choice(&["cactiStyle"], "Does not know the system `binary`."),
    choice(&["substr"], "Nodes that do not exist make it fail."),
    choice(&["fallbackSeries"], "The order of series is different."),
    choice(
        &["countSeries"],
        "A series is counted only where it has a value, also as a callback of other functions.",
    ),
    choice(&["groupByTags"], "The order of series is different."),
    choice(
        &[
            "aggregateWithWildcards",
            "averageSeriesWithWildcards",
            "multiplySeriesWithWildcards",
            "sumSeriesWithWildcards",
        ],
        "Series with tags are one group.",
    ),
    choice(
        &["asPercent", "pct"],
        "Series without a total, totals without a series, and groups by nodes are treated differently.",
    ),
    choice(
        &["diffSeriesLists", "sumSeriesLists"],
        "Where one of the two values is missing, there is no result.",
    ),
    choice(
        &["powSeries"],
        "1 raised to the power of a missing value is 1, and so is a missing value raised to the power of 0.",
    ),
];
