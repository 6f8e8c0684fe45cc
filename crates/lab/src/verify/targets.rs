//! A part of a plan's targets that one pattern selects, so that a query can ask for the series of this part only.
//!
//! ```text
//!   all targets ─▶ one job ─▶ numbers with as many digits ─▶ half of them ─▶ … ─▶ one target
//!                             host-[1-9][0-9]                host-[1-4][0-9]     host-17
//! ```
//!
//! The numbers of targets have several levels: a host and its timers, or the numbers of an address. The numbers of a
//! part on a level have the same number of digits, and differ from those of other parts in one digit. So classes of
//! digits select exactly them, in globs as well as in regular expressions, without sets, which some servers limit.

use crate::generate::fleet::{ADDRESS_LEVELS, JOBS};
use crate::generate::naming::Naming;
use crate::generate::plan::Plan;
use std::ops::Range;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Targets {
    /// Selects the targets whose number modulo [`JOBS`] is this value. `None` selects those of all jobs.
    job: Option<u64>,
    /// The numbers on the first levels, if they are the same for all targets of the part.
    fixed: Vec<u64>,
    /// The first and the last number on the next level. `None` if the part has all numbers of this level.
    numbers: Option<(u64, u64)>,
}

/// Numbers of which a target's number consists.
#[derive(Debug, Clone, Copy)]
struct Level {
    /// The first of these numbers.
    base: u64,
    /// How many different numbers there are. Unlimited on the first level.
    size: u64,
}

impl Level {
    /// Levels by which the targets of a plan can be told apart. There are none if the targets have only few labels.
    fn of(plan: &Plan) -> Vec<Self> {
        match &plan.fleet.naming {
            Naming::Timers { per_host, .. } => {
                vec![Self { base: 0, size: u64::MAX }, Self { base: 0, size: (*per_host).max(1) }]
            }
            Naming::Labels if plan.fleet.has_instance() => {
                ADDRESS_LEVELS.into_iter().map(|(base, size)| Self { base, size }).collect()
            }
            Naming::Labels => Vec::new(),
        }
    }
}

impl Targets {
    /// Divides the targets of a plan into parts of about `targets_max` targets, or more if they cannot be told apart.
    pub(super) fn divide(plan: &Plan, targets_max: u64) -> Vec<Self> {
        let (mut open, mut parts) = (vec![Self::default()], Vec::new());
        while let Some(part) = open.pop() {
            let split = if part.len(plan) > targets_max { part.split(plan) } else { Vec::new() };
            match split.is_empty() {
                true => parts.push(part),
                false => open.extend(split.into_iter().rev()),
            }
        }
        parts
    }

    /// Divides the part into smaller ones that have targets. Empty if the targets cannot be told apart.
    pub(super) fn split(&self, plan: &Plan) -> Vec<Self> {
        let mut part = self.clone();
        while part.len(plan) > 1 {
            let mut parts = part.divided(plan);
            parts.retain(|part| part.len(plan) > 0);
            match parts.len() {
                0 => break,
                1 => part = parts.remove(0),
                _ => return parts,
            }
        }
        Vec::new()
    }

    /// Divides the part once. Empty if that is not possible.
    fn divided(&self, plan: &Plan) -> Vec<Self> {
        if self.job.is_none() && plan.fleet.has_job() {
            return (0..JOBS).map(|job| Self { job: Some(job), ..Self::default() }).collect();
        }
        let levels = Level::of(plan);
        let mut part = self.clone();
        loop {
            match part.numbers.take() {
                Some((one, last)) if one == last => part.fixed.push(one),
                Some(numbers) => return part.with_numbers(halves(numbers)),
                None => {}
            }
            let Some(numbers) = part.numbers_here(plan, &levels) else { return Vec::new() };
            match by_digits(numbers).as_slice() {
                [one] => part.numbers = Some(*one),
                several => return part.with_numbers(several.to_vec()),
            }
        }
    }

    fn with_numbers(&self, ranges: impl IntoIterator<Item = (u64, u64)>) -> Vec<Self> {
        ranges.into_iter().map(|numbers| Self { numbers: Some(numbers), ..self.clone() }).collect()
    }

    /// The first and the last number that the targets of the part have on the level after the fixed ones.
    fn numbers_here(&self, plan: &Plan, levels: &[Level]) -> Option<(u64, u64)> {
        let depth = self.fixed.len();
        let level = levels.get(depth)?;
        let range = self.range(plan);
        let unit = unit(levels, depth);
        let number = |target: u64| level.base + target / unit % level.size;
        (!range.is_empty()).then(|| (number(range.start), number(range.end - 1)))
    }

    /// Targets from the first to the last of the part. If the part has a job, those of other jobs lie between them.
    pub(super) fn range(&self, plan: &Plan) -> Range<u64> {
        let first = plan.first_target(0);
        let all = first..first + plan.targets * u64::from(plan.writers);
        let levels = Level::of(plan);
        let (mut from, mut to) = (0, u64::MAX);
        for (depth, number) in self.fixed.iter().enumerate() {
            let unit = unit(&levels, depth);
            from += (number - levels[depth].base) * unit;
            to = from + unit;
        }
        if let Some((first, last)) = self.numbers {
            let depth = self.fixed.len();
            let (base, unit) = (levels[depth].base, unit(&levels, depth));
            to = from + (last - base + 1) * unit;
            from += (first - base) * unit;
        }
        from.max(all.start)..to.min(all.end).max(from.max(all.start))
    }

    /// The first target of the part, and the distance of its targets.
    fn stride(&self, range: &Range<u64>) -> (u64, u64) {
        match self.job {
            None => (range.start, 1),
            Some(job) => (range.start + (job + JOBS - range.start % JOBS) % JOBS, JOBS),
        }
    }

    pub(super) fn iter(&self, plan: &Plan) -> impl Iterator<Item = u64> + Clone {
        let range = self.range(plan);
        let (first, stride) = self.stride(&range);
        (first..range.end.max(first)).step_by(stride as usize)
    }

    pub(super) fn len(&self, plan: &Plan) -> u64 {
        let range = self.range(plan);
        let (first, stride) = self.stride(&range);
        range.end.saturating_sub(first).div_ceil(stride)
    }

    /// Computes the places of targets within the part.
    pub(super) fn places(&self, plan: &Plan) -> Places {
        let (first, stride) = self.stride(&self.range(plan));
        Places { first, stride }
    }

    /// Text that selects the numbers of a level in globs and in regular expressions. `None` if it selects all numbers.
    pub(super) fn number(&self, level: usize) -> Option<String> {
        match self.fixed.get(level) {
            Some(number) => Some(number.to_string()),
            None if level == self.fixed.len() => self.numbers.map(pattern),
            None => None,
        }
    }

    pub(super) fn job(&self) -> Option<u64> {
        self.job
    }

    /// Regular expression for the label `instance`. `None` if it would select all instances.
    pub(super) fn instance(&self, plan: &Plan) -> Option<String> {
        self.number(0).filter(|_| plan.fleet.naming == Naming::Labels)?;
        let mut text = "10".to_owned();
        let levels = Level::of(plan).len();
        let numbers = (0..levels).map_while(|level| self.number(level));
        let mut known = 0;
        for number in numbers {
            text += "[.]";
            text += &number;
            known += 1;
        }
        text += if known == levels { ":.*" } else { "[.].*" };
        Some(text)
    }
}

/// Says at which place among the targets of its part a target is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    first: u64,
    stride: u64,
}

impl Places {
    pub(super) fn of(self, target: u64) -> usize {
        ((target - self.first) / self.stride) as usize
    }
}

/// Number of targets with the same numbers up to a level.
fn unit(levels: &[Level], depth: usize) -> u64 {
    levels[depth + 1..].iter().map(|level| level.size).product()
}

/// Divides numbers into ranges whose numbers have the same number of digits.
fn by_digits((first, last): (u64, u64)) -> Vec<(u64, u64)> {
    let (mut ranges, mut begin) = (Vec::new(), first);
    loop {
        let above = 10_u64.saturating_pow(begin.checked_ilog10().unwrap_or(0) + 1);
        let end = last.min(above - 1);
        ranges.push((begin, end));
        if end == last {
            return ranges;
        }
        begin = end + 1;
    }
}

/// Divides numbers that have the same number of digits, and are not all equal, at their first different digit.
fn halves((first, last): (u64, u64)) -> [(u64, u64); 2] {
    let (same, len) = same_digits(first, last);
    let power = 10_u64.pow((len - same - 1) as u32);
    let digit = |number: u64| number / power % 10;
    let middle = digit(first).midpoint(digit(last));
    let cut = (first / power / 10 * 10 + middle + 1) * power;
    [(first, cut - 1), (cut, last)]
}

/// Classes of digits, such as `1[3-7][0-9]`. They may also select a few numbers before the first and after the last,
/// but none with another beginning.
fn pattern((first, last): (u64, u64)) -> String {
    let (same, len) = same_digits(first, last);
    let (first, last) = (first.to_string(), last.to_string());
    let mut text = first[..same].to_owned();
    if same < len {
        text += &format!("[{}-{}]", &first[same..=same], &last[same..=same]);
        text.extend(std::iter::repeat_n("[0-9]", len - same - 1));
    }
    text
}

/// How many digits two numbers have in common at their beginnings, and how many they have.
fn same_digits(first: u64, last: u64) -> (usize, usize) {
    let (first, last) = (first.to_string(), last.to_string());
    assert_eq!(first.len(), last.len(), "BUG: numbers of a part have different numbers of digits");
    (first.bytes().zip(last.bytes()).take_while(|(first, last)| first == last).count(), first.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::fleet::Fleet;
    use crate::generate::plan::tests::small;
    use regex::Regex;
    use stdx::rng::Rng;

    fn timers(per_host: u64) -> Naming {
        Naming::Timers { prefix: "STRESS".into(), per_host }
    }

    /// What a part's patterns select among the targets of the plan.
    fn selected(plan: &Plan, part: &Targets) -> Vec<u64> {
        let fleet = &plan.fleet;
        let whole = |text: String| Regex::new(&format!("^(?:{text})$")).unwrap();
        let (host, timer) = (part.number(0), part.number(1));
        let host = whole(format!("host-{}", host.unwrap_or("[0-9]+".into())));
        let timer = whole(format!("timer-{}", timer.unwrap_or("[0-9]+".into())));
        let instance = whole(part.instance(plan).unwrap_or(".*".into()));
        let selects = |target: &u64| match &fleet.naming {
            Naming::Timers { .. } => {
                let path = fleet.naming.prefix(*target, 0);
                let nodes: Vec<&str> = path.split('.').collect();
                host.is_match(nodes[1]) && timer.is_match(nodes[2])
            }
            Naming::Labels => {
                let labels = fleet.target_labels(*target, 0);
                let label = |name: &str| labels.iter().find(|label| label.0 == name).unwrap().1.clone();
                instance.is_match(&label("instance"))
                    && part.job().is_none_or(|job| fleet.job(job) == label("job"))
            }
        };
        Targets::default().iter(plan).filter(selects).collect()
    }

    #[test]
    fn patterns_select_each_target_in_one_part() {
        let seed = 7;
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        for round in 0..40 {
            let targets = 1 + rng.below(300);
            let (writers, first_writer) = (1 + rng.below(5) as u32, rng.below(1_500) as u32);
            let naming = if round % 2 == 0 { timers(targets) } else { Naming::Labels };
            let plan = Plan {
                fleet: Fleet { naming, ..Fleet::default() },
                targets,
                writers,
                first_writer,
                ..small()
            };
            let all: Vec<u64> = Targets::default().iter(&plan).collect();
            assert_eq!(all.len() as u64, targets * u64::from(writers));
            let targets_max = 1 + rng.below(all.len() as u64);
            let parts = Targets::divide(&plan, targets_max);
            let mut seen = Vec::new();
            for part in &parts {
                let own: Vec<u64> = part.iter(&plan).collect();
                assert!(own.len() as u64 <= targets_max && !own.is_empty(), "{part:?}");
                assert_eq!((own.len() as u64, &own), (part.len(&plan), &selected(&plan, part)), "{part:?}");
                let places = part.places(&plan);
                assert!(own.iter().enumerate().all(|(place, target)| places.of(*target) == place));
                seen.extend(own);
            }
            seen.sort_unstable();
            assert_eq!(seen, all, "round {round}, at most {targets_max}: {parts:?}");
        }
    }

    #[test]
    fn a_million_timers_take_few_parts() {
        let plan = Plan {
            fleet: Fleet { naming: timers(7_824), ..Fleet::default() },
            targets: 7_824,
            writers: 100,
            first_writer: 0,
            ..small()
        };
        let parts = Targets::divide(&plan, 10_000);
        assert_eq!(parts.len(), 100);
        assert_eq!((parts[17].number(0).as_deref(), parts[17].number(1)), (Some("17"), None));
        let parts = Targets::divide(&plan, 5_000);
        assert_eq!(parts[4].number(1).as_deref(), Some("[5-7][0-9][0-9][0-9]"));
        assert_eq!(Targets::divide(&plan, u64::MAX), [Targets::default()]);
    }

    #[test]
    fn targets_without_labels_that_tell_them_apart_stay_together() {
        let plan = Plan { fleet: Fleet { labels: 2, ..Fleet::default() }, ..small() };
        assert_eq!(Targets::divide(&plan, 1), [Targets::default()]);
        // with a label `job`, but without `instance`
        let plan = Plan { fleet: Fleet { labels: 4, ..Fleet::default() }, ..small() };
        assert_eq!(Targets::divide(&plan, 1).len(), 16);
        let cycles = vec![("instance".into(), 3)];
        let plan = Plan { fleet: Fleet { cycles, ..Fleet::default() }, ..small() };
        assert_eq!(Targets::divide(&plan, 1).len(), 16);
    }
}
