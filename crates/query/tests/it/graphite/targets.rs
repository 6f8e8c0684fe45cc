//! Random targets, by the rules in `rules.rs`.

use super::rules::{RULES, Rule};
use stdx::rng::Rng;

/// How often a function's first argument is another function, by depth.
const NESTING: [f64; 3] = [0.7, 0.4, 0.0];

/// Functions that keep state in the request, and are not used below a function that evaluates twice: in
/// graphite-web, their state is also the state of the second evaluation.
const STATEFUL: [&str; 3] = ["stacked", "setXFilesFactor", "xFilesFactor"];

/// Functions that are only used on the outside: what is around them would differ by choice, because they are random, or
/// because they magnify rounding.
const OUTERMOST: [&str; 12] = [
    "randomWalk",
    "randomWalkFunction",
    "map",
    "mapSeries",
    "verticalLine",
    "seriesByTag",
    "useSeriesAbove",
    "aliasQuery",
    "applyByNode",
    "stdev",
    "asPercent",
    "pct",
];

const LISTS: &[&str] = &[
    "app.*.cpu.user",
    "app.{web1,db1}.cpu.*",
    "app.web?.cpu.system",
    "app.web[12].cpu.user",
    "net.*.bytes",
    "full.*.load",
    "full.*.*",
    "mix.*.x",
    "mix.{fine,coarse}.x",
    "gap.*",
    "const.*",
    "ratio.*",
    "app.web1.cpu.user",
    "mix.coarse.x",
    "seriesByTag('name=disk.used')",
    "seriesByTag('name=disk.used','dc=west')",
    "nothing.such",
];
const AGGREGATIONS: &[&str] = &[
    "average", "avg", "avg_zero", "median", "sum", "total", "min", "max", "diff", "stddev", "count", "range",
    "rangeOf", "multiply", "last", "current",
];
const TIMES: &[&str] = &["1min", "90s", "5min", "7min", "10minutes", "1h", "2hours", "1h30min"];

#[derive(Debug)]
pub(super) struct Targets<'a> {
    pub(super) rng: &'a mut Rng,
    /// Range of the request, for functions with times as arguments.
    pub(super) from_s: i64,
    pub(super) until_s: i64,
}

impl Targets<'_> {
    /// A target whose outermost function is this one.
    pub(super) fn of(&mut self, rule: &Rule) -> String {
        let target = self.call(rule, 0, true);
        // lists of series are not series; only `reduceSeries` takes them
        match rule.arguments {
            "maps" if target.contains("full.") => {
                format!("reduceSeries({target},'diffSeries',2,'load','count')")
            }
            "maps" => format!("reduceSeries({target},'maxSeries',3,'user','system')"),
            _ => target,
        }
    }

    fn call(&mut self, rule: &Rule, depth: usize, may_keep_state: bool) -> String {
        let may_keep_state = may_keep_state && !rule.shifts;
        let mut arguments: Vec<String> = Vec::new();
        let mut words = rule.arguments.split_whitespace().peekable();
        while let Some(word) = words.next() {
            if word == "?" {
                if self.rng.chance(0.4) {
                    break;
                }
                continue;
            }
            let times = if words.peek() == Some(&"*") { 1 + self.rng.below(3) } else { 1 };
            words.next_if(|next| *next == "*");
            for _ in 0..times {
                arguments.push(self.argument(word, depth, may_keep_state));
            }
        }
        format!("{}({})", rule.name, arguments.join(","))
    }

    fn list(&mut self, depth: usize, may_keep_state: bool) -> String {
        if !self.rng.chance(NESTING[depth.min(2)]) {
            return self.pick(LISTS).into();
        }
        loop {
            let rule = &RULES[self.rng.below(RULES.len() as u64) as usize];
            if !OUTERMOST.contains(&rule.name) && (may_keep_state || !STATEFUL.contains(&rule.name)) {
                return self.call(rule, depth + 1, may_keep_state);
            }
        }
    }

    fn argument(&mut self, word: &str, depth: usize, may_keep_state: bool) -> String {
        match word {
            "list" => self.list(depth, may_keep_state),
            _ => self.series(word).or_else(|| self.number(word)).or_else(|| self.text(word)).expect(word),
        }
    }

    fn series(&mut self, word: &str) -> Option<String> {
        let choices: &[&str] = match word {
            // lists without gaps, because graphite-web cannot compare None
            "full" => &["full.*.load", "full.{a,b}.*", "full.*.*", "full.*.{load,count}"],
            // lists whose sums and squares are exact, because the differences of these are magnified
            "integers" => &[
                "app.*.cpu.system",
                "full.*.count",
                "net.*.bytes",
                "mix.half.x",
                "keepLastValue(net.a.bytes)",
            ],
            // series of equal length
            "minutes" => {
                &["gap.*", "app.*.cpu.*", "scale(gap.most,2)", "sortByName(net.*.bytes)", "nothing.such"]
            }
            "loads" => &["full.*.load", "full.{a,b}.load"],
            "counters" => &["net.*.bytes", "net.a.bytes", "full.*.count", "keepLastValue(net.*.bytes)"],
            "ratios" => &["ratio.*", "ratio.one", "scale(ratio.*,0.5)", "full.*.count"],
            // lists without integers, which graphite-web prints in another way than floats
            "floats" => &["app.*.cpu.user", "net.*.bytes", "gap.*", "const.*", "scale(full.*.load,0.1)"],
            "one" => &["app.web1.cpu.user", "full.a.load", "mix.fine.x", "sumSeries(app.*.cpu.user)"],
            "distinct" => &["app.*.cpu.user", "full.*.load", "net.*.bytes", "mix.coarse.x"],
            "pair" => {
                &["app.{web1,web2}.cpu.user", "full.{a,b}.load", "ratio.*", "scale(net.{a,b}.bytes,0.5)"]
            }
            "trees" => &["app.*.cpu.user", "net.*.bytes"],
            "tagged" => &["seriesByTag('name=disk.used')", "scale(seriesByTag('name=disk.used'),2)"],
            "maps" => &["app.*.cpu.*,1", "full.*.*,1", "scale(app.*.cpu.*,2),1", "full.{a,b}.*,0,1"],
            "reducible" => &[
                "mapSeries(app.*.cpu.*,1),'asPercent',3,'user','system'",
                "mapSeries(full.*.*,1),'diffSeries',2,'load','count'",
            ],
            "substitution" => &[
                r"'(\w+)\.(\w+)','\2.\1'",
                r"'web','<\g<0>>'",
                r"'(?P<first>[a-z]+)\.','\g<first>-'",
                r"'[.,]',''",
                r"'b*','-'",
                r"'^(app|full)','x'",
            ],
            "total" => return Some(self.total()),
            _ => return None,
        };
        Some(self.pick(choices).into())
    }

    fn total(&mut self) -> String {
        self.pick(&["None", "100", "full.a.load", "sumSeries(app.*.cpu.user)", "app.*.cpu.user"]).into()
    }

    fn number(&mut self, word: &str) -> Option<String> {
        let rng = &mut *self.rng;
        Some(match word {
            "factor" => match rng.below(5) {
                0 => format!("{}", rng.below(20) as i64 - 5),
                1 => format!("{:.3}", rng.unit() * 200.0 - 100.0),
                2 => "0".into(),
                3 => "1e3".into(),
                _ => format!("{:.1}", rng.unit() * 50.0),
            },
            // most series have larger values
            "low" => format!("{}", rng.below(40) as i64 - 60),
            "power" => ["2", "-1", "0.5", "3", "0", "1.5"][rng.below(6) as usize].into(),
            "percent" => ["5", "25", "50", "90", "95.5", "99", "100"][rng.below(7) as usize].into(),
            "fraction" => ["0", "0.1", "0.5", "0.75", "1"][rng.below(5) as usize].into(),
            "small" => format!("{}", rng.below(8) as i64 - 2),
            "count" => format!("{}", rng.below(5) + 1),
            "prefix" => format!("{}", rng.below(2) + 1),
            "node" => match rng.below(6) {
                0 => "-1".into(),
                1 => "'dc'".into(),
                2 => "'name'".into(),
                n => format!("{}", n - 3),
            },
            "base" => ["2", "10", "3"][rng.below(3) as usize].into(),
            "seconds" => ["1", "30", "60", "77", "300"][rng.below(5) as usize].into(),
            "limit" => ["1", "3", "inf", "0"][rng.below(4) as usize].into(),
            "bool" => ["true", "false"][rng.below(2) as usize].into(),
            _ => return None,
        })
    }

    fn text(&mut self, word: &str) -> Option<String> {
        let choices: &[&str] = match word {
            "interval" => TIMES,
            "shift" => &["1h", "-1h", "30min", "+10min", "-90s", "1d"],
            "season" => &["1d", "6h", "1h"],
            "bootstrap" => &["7d", "1d", "12h"],
            "window" if self.rng.chance(0.5) => return Some(format!("{}", 1 + self.rng.below(12))),
            "window" => TIMES,
            "agg" => AGGREGATIONS,
            "callback" => {
                &["average", "sum", "max", "sumSeries", "minSeries", "averageSeries", "countSeries", "last"]
            }
            "operator" => &["=", "!=", ">", ">=", "<", "<="],
            "consolidation" => &["sum", "average", "avg", "avg_zero", "min", "max", "first", "last"],
            "align" => &["minutes", "hours", "days", "weeks", "weeks3", "months", "years", "seconds"],
            "unit" => &["si", "binary"],
            "colour" => &["red", "#abcdef"],
            "name" => &["x", "a name", "The.Name"],
            "label" => &["%", "of %"],
            "format" => &["%g", "now %.2f"],
            "regex" => &["web", r"\.b", "^(app|full).", "c.*r", "[ac]", r"(\w+)\.(\w+)"],
            "load" => &["load"],
            "replaced" => &["count"],
            "template" => &["%.*", "sumSeries(%.*)", "maxSeries(%.cpu.*)"],
            "tag" => &["deploy", "web", "db"],
            "tagname" => &["dc", "name", "host"],
            "tags" => &["name=disk.used", "dc=west", "host!=a','name=disk.used", "name=~disk.*','dc=~w.*"],
            "date" => return Some(self.date(-2)),
            "inside" => return Some(self.date(0)),
            _ => return None,
        };
        Some(format!("'{}'", self.pick(choices)))
    }

    /// A time in the range of the request, or this many hours around it.
    fn date(&mut self, hours: i64) -> String {
        let (from_s, until_s) = (self.from_s + hours * 3600, self.until_s - hours * 3600);
        let at_s = from_s + self.rng.below((until_s - from_s + 1) as u64) as i64;
        format!("'{at_s}'")
    }

    fn pick<'t>(&mut self, choices: &[&'t str]) -> &'t str {
        choices[self.rng.below(choices.len() as u64) as usize]
    }
}
