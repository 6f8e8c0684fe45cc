//! All functions of PromQL, with the types of arguments and values.

use crate::promql::ValueType;
use ValueType::{Matrix as M, Scalar as S, String as T, Vector as V};

#[derive(Debug, Clone, Copy)]
pub(in crate::promql) struct Signature {
    /// Types of the arguments. The last argument may repeat.
    pub(in crate::promql) types: &'static [ValueType],
    pub(in crate::promql) least: usize,
    pub(in crate::promql) most: usize,
}

const MANY: usize = usize::MAX;

macro_rules! functions {
    ($($variant:ident $name:literal $types:tt $least:literal $most:tt $value:ident;)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(in crate::promql) enum Function { $($variant),+ }

        impl Function {
            pub(in crate::promql) fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)+ _ => None }
            }

            pub(in crate::promql) const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            pub(in crate::promql) const fn value_type(self) -> ValueType {
                match self { $(Self::$variant => $value),+ }
            }

            pub(in crate::promql) const fn signature(self) -> Signature {
                match self {
                    $(Self::$variant => Signature { types: &$types, least: $least, most: $most }),+
                }
            }
        }
    };
}

// The columns are the variant, the name, the types of the arguments, their least and largest number, and the
// type of the value. S is a scalar, V an instant vector, M a range vector, T a string.
functions! {
    Abs "abs" [V] 1 1 V;
    Absent "absent" [V] 1 1 V;
    AbsentOverTime "absent_over_time" [M] 1 1 V;
    Acos "acos" [V] 1 1 V;
    Acosh "acosh" [V] 1 1 V;
    Asin "asin" [V] 1 1 V;
    Asinh "asinh" [V] 1 1 V;
    Atan "atan" [V] 1 1 V;
    Atanh "atanh" [V] 1 1 V;
    AvgOverTime "avg_over_time" [M] 1 1 V;
    Ceil "ceil" [V] 1 1 V;
    Changes "changes" [M] 1 1 V;
    Clamp "clamp" [V, S, S] 3 3 V;
    ClampMax "clamp_max" [V, S] 2 2 V;
    ClampMin "clamp_min" [V, S] 2 2 V;
    Cos "cos" [V] 1 1 V;
    Cosh "cosh" [V] 1 1 V;
    CountOverTime "count_over_time" [M] 1 1 V;
    DayOfMonth "day_of_month" [V] 0 1 V;
    DayOfWeek "day_of_week" [V] 0 1 V;
    DayOfYear "day_of_year" [V] 0 1 V;
    DaysInMonth "days_in_month" [V] 0 1 V;
    Deg "deg" [V] 1 1 V;
    Delta "delta" [M] 1 1 V;
    Deriv "deriv" [M] 1 1 V;
    DoubleExponentialSmoothing "double_exponential_smoothing" [M, S, S] 3 3 V;
    End "end" [] 0 0 S;
    Exp "exp" [V] 1 1 V;
    FirstOverTime "first_over_time" [M] 1 1 V;
    Floor "floor" [V] 1 1 V;
    HistogramAvg "histogram_avg" [V] 1 1 V;
    HistogramCount "histogram_count" [V] 1 1 V;
    HistogramFraction "histogram_fraction" [S, S, V] 3 3 V;
    HistogramQuantile "histogram_quantile" [S, V] 2 2 V;
    HistogramQuantiles "histogram_quantiles" [V, T, S] 3 12 V;
    HistogramStddev "histogram_stddev" [V] 1 1 V;
    HistogramStdvar "histogram_stdvar" [V] 1 1 V;
    HistogramSum "histogram_sum" [V] 1 1 V;
    Hour "hour" [V] 0 1 V;
    Idelta "idelta" [M] 1 1 V;
    Increase "increase" [M] 1 1 V;
    Irate "irate" [M] 1 1 V;
    LabelJoin "label_join" [V, T, T, T] 3 MANY V;
    LabelReplace "label_replace" [V, T, T, T, T] 5 5 V;
    LastOverTime "last_over_time" [M] 1 1 V;
    Ln "ln" [V] 1 1 V;
    Log10 "log10" [V] 1 1 V;
    Log2 "log2" [V] 1 1 V;
    MadOverTime "mad_over_time" [M] 1 1 V;
    MaxOf "max_of" [S, S] 2 2 S;
    MaxOverTime "max_over_time" [M] 1 1 V;
    MinOf "min_of" [S, S] 2 2 S;
    MinOverTime "min_over_time" [M] 1 1 V;
    Minute "minute" [V] 0 1 V;
    Month "month" [V] 0 1 V;
    Pi "pi" [] 0 0 S;
    PredictLinear "predict_linear" [M, S] 2 2 V;
    PresentOverTime "present_over_time" [M] 1 1 V;
    QuantileOverTime "quantile_over_time" [S, M] 2 2 V;
    Rad "rad" [V] 1 1 V;
    QueryRange "range" [] 0 0 S;
    Rate "rate" [M] 1 1 V;
    Resets "resets" [M] 1 1 V;
    Round "round" [V, S] 1 2 V;
    Scalar "scalar" [V] 1 1 S;
    Sgn "sgn" [V] 1 1 V;
    Sin "sin" [V] 1 1 V;
    Sinh "sinh" [V] 1 1 V;
    Sort "sort" [V] 1 1 V;
    SortByLabel "sort_by_label" [V, T] 1 MANY V;
    SortByLabelDesc "sort_by_label_desc" [V, T] 1 MANY V;
    SortDesc "sort_desc" [V] 1 1 V;
    Sqrt "sqrt" [V] 1 1 V;
    Start "start" [] 0 0 S;
    StddevOverTime "stddev_over_time" [M] 1 1 V;
    StdvarOverTime "stdvar_over_time" [M] 1 1 V;
    Step "step" [] 0 0 S;
    SumOverTime "sum_over_time" [M] 1 1 V;
    Tan "tan" [V] 1 1 V;
    Tanh "tanh" [V] 1 1 V;
    Time "time" [] 0 0 S;
    Timestamp "timestamp" [V] 1 1 V;
    TsOfFirstOverTime "ts_of_first_over_time" [M] 1 1 V;
    TsOfLastOverTime "ts_of_last_over_time" [M] 1 1 V;
    TsOfMaxOverTime "ts_of_max_over_time" [M] 1 1 V;
    TsOfMinOverTime "ts_of_min_over_time" [M] 1 1 V;
    Vector "vector" [S] 1 1 V;
    Year "year" [V] 0 1 V;
}

impl Function {
    /// True if an argument is a range vector. All other arguments are scalars.
    pub(in crate::promql) fn is_over_range(self) -> bool {
        self.signature().types.contains(&M)
    }
}
