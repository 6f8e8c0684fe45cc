//! Where Floodmark answers in another way than graphite-web, and why. `docs/graphite-functions.md` lists these choices.

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
    choice(&["exp"], "A result that is too large for a number is no value. graphite-web fails."),
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
        "The same request has the same answer. In graphite-web, each answer is another.",
    ),
    choice(&["verticalLine"], "Without a label, the name is `verticalLine`. graphite-web has no name then."),
    choice(
        &["linearRegression", "timeSlice"],
        "Times may be numbers without quotes, and times of day are in the time zone of the request. In graphite-web, they are texts, in the time zone of the server.",
    ),
    choice(
        &["integralByInterval", "linearRegression", "timeFunction", "timeSlice"],
        "A request in another time zone than the server's has the same values. In graphite-web, times are off by the difference of the zones.",
    ),
    choice(
        &["timeShift"],
        "`alignDst` follows the clocks of the time zone of the request. In graphite-web, those of the server's.",
    ),
    choice(
        &["hitcount", "integralByInterval", "smartSummarize", "summarize"],
        "An interval of zero or below is refused. graphite-web fails, or answers without sense.",
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
        "A negative window is refused. graphite-web answers without sense.",
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
        "A season that is shorter than a step is refused. graphite-web fails.",
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
    choice(&["timeStack"], "At most 1,000 shifts are allowed. graphite-web has no limit."),
    choice(
        &["exclude", "grep"],
        "Regular expressions have no look-around and no references to groups, so that no expression takes exponential time. They have at most 4,096 bytes.",
    ),
    choice(
        &["legendValue"],
        "A whole number is written as `5.0` also if a function such as `changed` made it. graphite-web writes `5` then.",
    ),
];
