//! Parser of scripts.

use crate::notation::{self, Point};
use model::Labels;

#[derive(Debug)]
pub(crate) enum Command {
    Clear,
    /// Loads series whose points are this number of milliseconds apart.
    Load(i64, Vec<(Labels, Vec<Point>)>),
    /// Loads classic histograms. Prometheus loads them as native histograms, too.
    LoadWithHistograms(i64, Vec<(Labels, Vec<Point>)>),
    Eval(Box<Eval>),
}

#[derive(Debug, Default)]
pub(crate) struct Eval {
    pub(crate) line: usize,
    pub(crate) expr: String,
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
    /// None for an instant query.
    pub(crate) step_ms: Option<i64>,
    pub(crate) ordered: bool,
    pub(crate) fail: bool,
    pub(crate) fail_message: Option<Text>,
    pub(crate) warn: Annotations,
    pub(crate) info: Annotations,
    pub(crate) scalar: Option<f64>,
    pub(crate) string: Option<String>,
    /// Start, end and step of an expected range vector.
    pub(crate) matrix: Option<(i64, i64, i64)>,
    pub(crate) series: Vec<(Labels, Vec<Point>)>,
}

#[derive(Debug, Default)]
pub(crate) struct Annotations {
    pub(crate) some: bool,
    pub(crate) none: bool,
    pub(crate) texts: Vec<Text>,
}

#[derive(Debug)]
pub(crate) enum Text {
    Exactly(String),
    Pattern(regex::Regex),
}

impl Text {
    pub(crate) fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exactly(expected) => expected == text,
            Self::Pattern(pattern) => pattern.is_match(text),
        }
    }
}

pub(crate) fn parse(text: &str) -> Result<Vec<Command>, String> {
    let lines: Vec<&str> =
        text.lines().map(str::trim).map(|line| if line.starts_with('#') { "" } else { line }).collect();
    let mut commands = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        let body: Vec<&str> = lines[at + 1..].iter().copied().take_while(|l| !l.is_empty()).collect();
        let number = at + 1;
        at += 1;
        let located = |e: String| format!("line {number}: {e}");
        if line.is_empty() {
            continue;
        }
        if line == "clear" {
            commands.push(Command::Clear);
        } else if line.starts_with("load") {
            at += body.len();
            commands.push(load(line, &body).map_err(located)?);
        } else if line.starts_with("eval") {
            at += body.len();
            commands.push(Command::Eval(Box::new(eval(number, line, &body).map_err(located)?)));
        } else {
            return Err(located(format!("unknown command {line:?}")));
        }
    }
    Ok(commands)
}

fn load(line: &str, body: &[&str]) -> Result<Command, String> {
    let gap = line.split_whitespace().nth(1).ok_or("load without a gap")?;
    let is_start_time = |l: &&str| l.split_whitespace().next().is_some_and(|first| first.ends_with("@st"));
    let series = body.iter().filter(|l| !is_start_time(l)).map(|l| notation::series(l));
    let (gap_ms, series) = (notation::duration_ms(gap)?, series.collect::<Result<_, _>>()?);
    match line.split_whitespace().next() {
        Some("load") => Ok(Command::Load(gap_ms, series)),
        Some("load_with_nhcb") => Ok(Command::LoadWithHistograms(gap_ms, series)),
        other => Err(format!("unknown command {other:?}")),
    }
}

fn eval(line: usize, head: &str, body: &[&str]) -> Result<Eval, String> {
    let mut eval = Eval { line, ..Eval::default() };
    let (command, rest) = head.split_once(char::is_whitespace).ok_or("eval of nothing")?;
    match command {
        "eval" => {}
        "eval_fail" => eval.fail = true,
        "eval_ordered" => eval.ordered = true,
        "eval_warn" => eval.warn.some = true,
        "eval_info" => eval.info.some = true,
        _ => return Err(format!("unknown command {command:?}")),
    }
    let (kind, rest) = rest.trim_start().split_once(char::is_whitespace).ok_or("eval of nothing")?;
    let mut rest = rest.trim_start();
    let mut take = |word: &str| -> Result<i64, String> {
        rest = rest.strip_prefix(word).ok_or_else(|| format!("expected {word:?}"))?.trim_start();
        let (value, after) = rest.split_once(char::is_whitespace).ok_or("eval of nothing")?;
        rest = after.trim_start();
        notation::duration_ms(value)
    };
    match kind {
        "instant" => {
            eval.start_ms = take("at ")?;
            eval.end_ms = eval.start_ms;
        }
        "range" => {
            eval.start_ms = take("from ")?;
            eval.end_ms = take("to ")?;
            eval.step_ms = Some(take("step ")?);
        }
        _ => return Err(format!("unknown evaluation {kind:?}")),
    }
    eval.expr = rest.to_owned();
    for line in body {
        expectation(&mut eval, line)?;
    }
    Ok(eval)
}

fn expectation(eval: &mut Eval, line: &str) -> Result<(), String> {
    // Removes positions such as ` (1:5)`, which messages of an evaluation do not have.
    let position = regex::Regex::new(r"( \.\*)? \\?\((\[0-9\]\+|\d+):(\[0-9\]\+|\d+)\\?\)$")
        .map_err(|e| e.to_string())?;
    let without_position = |text: &str| position.replace(text.trim(), "").into_owned();
    let pattern =
        |p: &str| regex::Regex::new(&without_position(p)).map(Text::Pattern).map_err(|e| e.to_string());
    if let Some(message) = line.strip_prefix("expected_fail_message") {
        eval.fail_message = Some(Text::Exactly(message.trim().to_owned()));
    } else if let Some(regex) = line.strip_prefix("expected_fail_regexp") {
        eval.fail_message = Some(pattern(regex)?);
    } else if let Some(times) = line.strip_prefix("expect range vector from ") {
        let words: Vec<&str> = times.split_whitespace().collect();
        let [from, "to", to, "step", step] = words[..] else { return Err(format!("bad line {line:?}")) };
        let ms = notation::duration_ms;
        eval.matrix = Some((ms(from)?, ms(to)?, ms(step)?));
    } else if let Some(text) = line.strip_prefix("expect string ") {
        eval.string = Some(notation::quoted(text)?.0);
    } else if let Some(what) = line.strip_prefix("expect ") {
        let (kind, text) = what.split_once(char::is_whitespace).unwrap_or((what, ""));
        let text = match text.trim().split_once(':') {
            Some(("msg", message)) => Some(Text::Exactly(without_position(message))),
            Some(("regex", regex)) => Some(pattern(regex)?),
            _ => None,
        };
        match kind {
            "ordered" => eval.ordered = true,
            "fail" => (eval.fail, eval.fail_message) = (true, text),
            "warn" => {
                eval.warn.some = true;
                eval.warn.texts.extend(text);
            }
            "info" => {
                eval.info.some = true;
                eval.info.texts.extend(text);
            }
            "no_warn" => eval.warn.none = true,
            "no_info" => eval.info.none = true,
            _ => return Err(format!("unknown expectation {line:?}")),
        }
    } else if let Ok(number) = notation::number(line) {
        eval.scalar = Some(number);
    } else {
        eval.series.push(notation::series(line)?);
    }
    Ok(())
}
