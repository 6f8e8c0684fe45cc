//! Patterns that select nodes: a glob for each component of their path. The component `**` stands for any number of branches,
//! even none; at the end of a pattern, it is followed by `*`.

use crate::glob::{Glob, Prefix, Room};
use crate::steps::{Steps, Stopped};

/// Limit on the length of a pattern. It may list thousands of alternatives, as Grafana does for variables with many
/// values.
const BYTES_MAX: usize = 64 << 10;

/// A search may hold a number of this size for each node of a pattern, at each level of a name.
const PARTS_MAX: usize = 256;

/// Limit on separate components `**`. The time to match a name grows with their number.
const BRANCHES_MAX: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("it has {bytes} bytes, the limit is {max}")]
    Length { bytes: usize, max: usize },
    #[error("it has {count} nodes, the limit is {max}")]
    Nodes { count: usize, max: usize },
    #[error("it has {count} nodes `**`, the limit is {max}")]
    Branches { count: usize, max: usize },
    #[error("its braces stand for more than {max} alternatives, or for too long ones")]
    Alternatives { max: usize },
    #[error("it takes more than {bytes_max} bytes of memory")]
    Memory { bytes_max: usize },
}

/// A pattern such as `servers.web-*.{cpu,load}`.
#[derive(Debug)]
pub struct Pattern {
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Branches,
    Node(Glob),
}

/// States of the pattern, as a nondeterministic automaton: numbers of the parts of which the next component of a name must match
/// one. Ascending.
pub(crate) type States = Vec<u16>;

impl Pattern {
    /// Fails if a text is too long for a pattern.
    pub const fn check_length(text: &str) -> Result<(), PatternError> {
        match text.len() > BYTES_MAX {
            true => Err(PatternError::Length { bytes: text.len(), max: BYTES_MAX }),
            false => Ok(()),
        }
    }

    /// Parses a pattern. Backslashes are ignored, as in graphite-web.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        Self::parse_within(text, usize::MAX)
    }

    /// Like [`Self::parse`], for a pattern that may take at most `memory_bytes_max`. A pattern with many alternatives or classes takes
    /// up to 14 MB.
    pub fn parse_within(text: &str, memory_bytes_max: usize) -> Result<Self, PatternError> {
        Self::check_length(text)?;
        let text = text.replace('\\', "");
        let count = text.split('.').count();
        if count > PARTS_MAX {
            return Err(PatternError::Nodes { count, max: PARTS_MAX });
        }
        let mut room = Room::within(memory_bytes_max);
        let mut part = |text| match text {
            "**" => Ok(Part::Branches),
            text => Glob::parse(text, &mut room).map(Part::Node),
        };
        let mut parts = text.split('.').map(&mut part).collect::<Result<Vec<_>, _>>()?;
        // several components `**` in a row stand for the same as one
        parts.dedup_by(|next, part| matches!((part, next), (Part::Branches, Part::Branches)));
        let count = parts.iter().filter(|part| matches!(part, Part::Branches)).count();
        if count > BRANCHES_MAX {
            return Err(PatternError::Branches { count, max: BRANCHES_MAX });
        }
        if matches!(parts.last(), Some(Part::Branches)) {
            parts.push(part("*")?);
        }
        Ok(Self { parts })
    }

    /// The pattern that selects only the nodes with exactly this name: a leaf, a branch, or both.
    pub fn of_name(name: &str) -> Result<Self, PatternError> {
        if name.len() > BYTES_MAX {
            return Err(PatternError::Length { bytes: name.len(), max: BYTES_MAX });
        }
        let count = name.split('.').count();
        if count > PARTS_MAX {
            return Err(PatternError::Nodes { count, max: PARTS_MAX });
        }
        Ok(Self { parts: name.split('.').map(|text| Part::Node(Glob::of_text(text))).collect() })
    }

    pub(crate) fn start(&self) -> States {
        let mut states = States::new();
        self.add(0, &mut states);
        states
    }

    fn add(&self, part: usize, states: &mut States) {
        for part in part..self.parts.len() {
            states.push(part as u16);
            if matches!(self.parts[part], Part::Node(_)) {
                return;
            }
        }
    }

    /// Matches one component of a name. Returns true if the node that ends with it is selected. `next` becomes the states for the
    /// component after it.
    pub(crate) fn step(
        &self,
        states: &[u16],
        component: &str,
        next: &mut States,
        steps: &mut Steps<'_>,
    ) -> Result<bool, Stopped> {
        next.clear();
        let mut is_selected = false;
        for state in states {
            let part = *state as usize;
            match &self.parts[part] {
                Part::Branches => self.add(part, next),
                Part::Node(glob) if glob.matches(component, steps)? => {
                    is_selected |= part + 1 == self.parts.len();
                    self.add(part + 1, next);
                }
                Part::Node(_) => {}
            }
        }
        next.sort_unstable();
        next.dedup();
        Ok(is_selected)
    }

    /// The prefixes of nodes that match one of the states.
    pub(crate) fn prefixes(&self, states: &[u16]) -> &[Prefix] {
        match states {
            [one] => match &self.parts[*one as usize] {
                Part::Node(glob) => glob.prefixes(),
                Part::Branches => Prefix::ANYWHERE,
            },
            _ => Prefix::ANYWHERE,
        }
    }

    /// Calls `select` for each selected node on the way to a name: with the length of the node's text, and whether it is
    /// the name itself.
    pub fn nodes_of(
        &self,
        name: &str,
        steps: &mut Steps<'_>,
        mut select: impl FnMut(usize, bool),
    ) -> Result<(), Stopped> {
        let (mut states, mut next, mut from) = (self.start(), States::new(), 0);
        for component in name.split('.') {
            let end = from + component.len();
            if self.step(&states, component, &mut next, steps)? {
                select(end, end == name.len());
            }
            if next.is_empty() {
                break;
            }
            std::mem::swap(&mut states, &mut next);
            from = end + 1;
        }
        Ok(())
    }

    /// The name, if the pattern selects exactly one.
    pub fn exact(&self) -> Option<String> {
        let mut name = String::new();
        for (i, part) in self.parts.iter().enumerate() {
            let Part::Node(glob) = part else { return None };
            let [Prefix { text, is_exact: true }] = glob.prefixes() else { return None };
            if i > 0 {
                name.push('.');
            }
            name.push_str(crate::key::text_of(text));
        }
        Some(name)
    }

    /// Text with which every selected node begins.
    pub fn prefix(&self) -> String {
        let mut prefix = String::new();
        for (i, part) in self.parts.iter().enumerate() {
            let Part::Node(glob) = part else { return prefix };
            let [Prefix { text, is_exact }] = glob.prefixes() else { return prefix };
            prefix.push_str(crate::key::text_of(text));
            if !is_exact || i + 1 == self.parts.len() {
                return prefix;
            }
            prefix.push('.');
        }
        prefix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, name: &str, expected: &[&str]) {
        let mut found = Vec::new();
        let parsed = Pattern::parse(pattern).unwrap();
        let select = |end, is_leaf| {
            found.push(format!("{}{}", &name[..end], if is_leaf { "" } else { "." }));
            assert!(name.starts_with(&parsed.prefix()), "{pattern:?} selects {:?}", &name[..end]);
        };
        parsed.nodes_of(name, &mut Steps::new(&mut || true), select).unwrap();
        assert_eq!(found, expected, "{pattern:?} and {name:?}");
    }

    #[test]
    fn patterns_select_nodes() {
        check("a.b", "a.b", &["a.b"]);
        check("a", "a.b", &["a."]);
        check("a.*", "a.b.c", &["a.b."]);
        check("*.b", "a.b", &["a.b"]);
        check("a.b.c", "a.b", &[]);
        check("b", "a.b", &[]);
        check("a\\*", "a*", &["a*"]);
        check("**", "a.b.c", &["a.", "a.b.", "a.b.c"]);
        check("a.**", "a.b.c", &["a.b.", "a.b.c"]);
        check("**.c", "a.b.c", &["a.b.c"]);
        check("a.**.c", "a.c", &["a.c"]);
        check("a.**.c", "a.c.c.d", &["a.c.", "a.c.c."]);
        check("**.**", "a.b", &["a.", "a.b"]);
        check("a.**b", "a.b", &["a.b"]);
        check("", "", &[""]);
        check("a.", "a.", &["a."]);
        check("a..b", "a..b", &["a..b"]);
        check("{a.b,c}", "{a.b,c}", &["{a.b,c}"]);
    }

    #[test]
    fn a_name_is_not_a_pattern() {
        for name in ["a.b", "a.{b,c}", "a.[bc]", "a\\b.c", "**", "a.*", "a.?", "a..b", ""] {
            let pattern = Pattern::of_name(name).unwrap();
            assert_eq!(pattern.exact().as_deref(), Some(name));
            for other in ["a.b", "a.c", "a.{b,c}", "a.[bc]", "a\\b.c", "ab.c", "a.*", "a.?", "a..b", "", "**"]
            {
                let mut leaves = 0;
                let select = |_, is_leaf| leaves += usize::from(is_leaf);
                pattern.nodes_of(other, &mut Steps::new(&mut || true), select).unwrap();
                assert_eq!(leaves, usize::from(name == other), "{name:?} and {other:?}");
            }
        }
        assert!(
            Pattern::of_name(&"a.".repeat(2000)).is_err() && Pattern::of_name(&"a".repeat(70_000)).is_err()
        );
    }

    #[test]
    fn prefixes_and_names() {
        let check = |pattern: &str, prefix: &str, exact: Option<&str>| {
            let parsed = Pattern::parse(pattern).unwrap();
            assert_eq!(parsed.prefix(), prefix, "{pattern:?}");
            assert_eq!(parsed.exact().as_deref(), exact, "{pattern:?}");
        };
        check("a.b.c", "a.b.c", Some("a.b.c"));
        check("a.b*.c", "a.b", None);
        check("a.{x,y}.c", "a.", None);
        check("a.{x}.c", "a.x.c", Some("a.x.c"));
        check("a.**.c", "a.", None);
        check("*", "", None);
    }

    #[test]
    fn hostile_patterns_are_refused() {
        assert!(Pattern::parse(&"a".repeat(70_000)).is_err());
        let classes = ["[a]".repeat(1000), "{b,c}[a]".repeat(8)];
        for text in classes {
            assert!(
                matches!(Pattern::parse_within(&text, 100 << 10), Err(PatternError::Memory { .. })),
                "{text}"
            );
            assert!(Pattern::parse_within(&text, 1 << 20).is_ok(), "{text}");
        }
        assert!(Pattern::parse(&"a.".repeat(2000)).is_err());
        assert!(Pattern::parse(&"{a,b}".repeat(100)).is_err());
        assert!(Pattern::parse(&"**.a.".repeat(9)).is_err());
        let states = Pattern::parse(&"**.".repeat(250)).unwrap().start();
        assert_eq!(states.len(), 2, "a level `**` and the empty level after it");
    }

    /// How often a match of one name asks whether to go on, if it may.
    fn questions(pattern: &str, name: &str, most: usize) -> (Result<(), Stopped>, usize) {
        let mut asked = 0;
        let mut go_on = || {
            asked += 1;
            asked < most
        };
        let pattern = Pattern::parse(pattern).unwrap();
        let result = pattern.nodes_of(name, &mut Steps::new(&mut go_on), |_, _| {});
        (result, asked)
    }

    #[test]
    fn matching_a_single_name_can_be_stopped() {
        // the longest value of a label
        let name = "a".repeat(16 << 10);
        let stars = format!("*{}b*", "a".repeat(1 << 10));
        let listed: Vec<_> = (0..500).map(|i| format!("*a*{i}")).collect();
        let listed = format!("{{{}}}", listed.join(","));
        let class = format!("*[{}]", "b".repeat(1 << 10));
        for pattern in [stars, listed, class] {
            let (result, asked) = questions(&pattern, &name, usize::MAX);
            assert!(result.is_ok() && asked > 100, "{asked} questions for {}…", &pattern[..10]);
            assert_eq!(questions(&pattern, &name, 3), (Err(Stopped), 3));
        }
        let (result, asked) = questions("servers.*.{cpu,load}*", "servers.web-1.cpu0", usize::MAX);
        assert_eq!((result, asked), (Ok(()), 0));
    }
}
