//! Finds out which keys a type can be deserialized from, to check that the reference pages list them all.
//!
//! A derived deserializer announces the fields of its struct before it reads any of them. The tracer then gives it one
//! field at a time, so that the type of this field announces its own fields. At the first value, the tracer returns an
//! error, and continues with another field.

use lab::result::figures::FIGURES;
use lab::{RunResult, Scenario};
use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeSeed, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
struct Keys {
    /// Names of the fields of each struct.
    structs: BTreeMap<&'static str, BTreeSet<&'static str>>,
    /// Words that are valid values, by struct and field.
    words: BTreeMap<(&'static str, &'static str), &'static [&'static str]>,
}

/// Finds all keys of `T` and of the types in its fields.
fn of<T: for<'de> Deserialize<'de>>() -> Keys {
    let found = RefCell::default();
    let mut open: Vec<Vec<&'static str>> = vec![Vec::new()];
    while let Some(path) = open.pop() {
        let next = RefCell::default();
        let tracer = Tracer { path: &path, at: None, found: &found, next: &next };
        assert!(T::deserialize(tracer).is_err() || path.len() == 1, "a value was deserialized without input");
        for field in next.take() {
            assert!(path.len() < 10, "{path:?}: a type contains itself");
            open.push(path.iter().copied().chain([field]).collect());
        }
    }
    found.into_inner()
}

/// A deserializer that follows `path` through the fields, and records the fields or valid words that it finds at the
/// end.
#[derive(Clone, Copy)]
struct Tracer<'a> {
    path: &'a [&'static str],
    /// Struct and field of the value that is being read.
    at: Option<(&'static str, &'static str)>,
    found: &'a RefCell<Keys>,
    next: &'a RefCell<Vec<&'static str>>,
}

/// A struct that has only the first field of the path, a map with one key, or a list with one item.
struct One<'a> {
    key: Option<&'static str>,
    value: Option<Tracer<'a>>,
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("no value"))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(One { key: None, value: Some(self) })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(One { key: Some("*"), value: Some(self) })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Some((first, path)) = self.path.split_first() else {
            self.next.borrow_mut().extend(fields);
            self.found.borrow_mut().structs.insert(name, fields.iter().copied().collect());
            return Err(Error::custom("told its fields"));
        };
        visitor
            .visit_map(One { key: Some(first), value: Some(Self { path, at: Some((name, first)), ..self }) })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        if let Some(at) = self.at {
            self.found.borrow_mut().words.insert(at, variants);
        }
        Err(Error::custom("told its words"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct tuple tuple_struct identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for One<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let key: Option<StrDeserializer<'_, Error>> =
            self.key.take().map(IntoDeserializer::into_deserializer);
        key.map(|key| seed.deserialize(key)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(self.value.take().expect("BUG: a value was read before its key"))
    }
}

impl<'de> SeqAccess<'de> for One<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.value.take().map(|value| seed.deserialize(value)).transpose()
    }
}

/// Rows of the tables under a heading. The key of a row is the code in its first column.
fn rows<'a>(page: &'a str, heading: &str) -> BTreeMap<&'a str, &'a str> {
    let part =
        page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no heading {heading}")).1;
    let lines = part.lines().take_while(|line| !line.starts_with("## "));
    lines.filter_map(|line| Some((line.strip_prefix("| `")?.split('`').next()?, line))).collect()
}

/// Checks that each struct has a heading, and under it exactly one row for each field, which lists the valid words of
/// that field.
fn hold(page: &str, keys: &Keys, headings: &[(&'static str, &str)]) {
    let expected: BTreeSet<_> = headings.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        keys.structs.keys().copied().collect::<BTreeSet<_>>(),
        expected,
        "on the left all structs, on the right those with a heading"
    );
    for (name, heading) in headings {
        let rows = rows(page, heading);
        let named: BTreeSet<_> = rows.keys().copied().collect();
        assert_eq!(named, keys.structs[name], "{heading}: on the left the fields on the page");
        for ((_, field), words) in keys.words.range((*name, "")..).take_while(|((of, _), _)| of == name) {
            for word in *words {
                assert!(rows[field].contains(&format!("`{word}`")), "{heading}: {field} may be {word}");
            }
        }
    }
}

const SCENARIO: &str = include_str!("../../../../docs/reference/scenario.md");
const RESULT: &str = include_str!("../../../../docs/reference/result.md");

/// The heading on the reference page under which each struct is described.
const OF_SCENARIOS: [(&str, &str); 12] = [
    ("Scenario", "The scenario"),
    ("TargetSpec", "target"),
    ("TlsFiles", "target.tls"),
    ("Load", "load"),
    ("ReplaySpec", "replay"),
    ("Shape", "shape"),
    ("ReadMix", "reads"),
    ("FaultSpec", "fault"),
    ("Rules", "verdict"),
    ("VerifySpec", "verify"),
    ("RunLimits", "limits"),
    ("AccountFigure", "account"),
];

/// Words in backticks in the part of an error message that follows `text`.
fn named<'a>(message: &'a str, text: &str) -> BTreeSet<&'a str> {
    let end = message.split_once(text).unwrap_or_else(|| panic!("{message}")).1;
    end.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_reference_has_every_key_of_a_scenario() {
    hold(SCENARIO, &of::<Scenario>(), &OF_SCENARIOS);
}

/// Values of several kinds are not derived structs, so their fields can be found only in error messages.
#[test]
fn the_reference_has_every_key_of_what_is_of_several_kinds() {
    let rows_of_auth = rows(SCENARIO, "target.auth");
    let mut keys = BTreeSet::from(["kind".to_owned()]);
    for kind in ["bearer", "basic", "jwt"] {
        assert!(rows_of_auth["kind"].contains(&format!("`{kind}`")));
        let text = format!("[target.auth]\nkind = '{kind}'\nnonsense = 1");
        let message = Scenario::parse(&text).expect_err("an unknown key was accepted").to_string();
        keys.extend(named(&message, "expected").into_iter().map(str::to_owned));
    }
    let told: BTreeSet<_> = rows_of_auth.into_keys().map(str::to_owned).collect();
    assert_eq!(told, keys, "on the left the keys on the page");
    let numbered = "[[reads]]\nqueries = ['up']\nvariables.a = { prefix = 'p', count = 3 }";
    let mixes = Scenario::parse(numbered).expect("a mix with a variable").reads;
    assert_eq!(mixes[0].variables["a"].len(), 3);
    assert_eq!(rows(SCENARIO, "reads.variables").into_keys().collect::<Vec<_>>(), ["count", "prefix"]);
}

/// If the documented defaults are right, setting a key to its default does not change the scenario.
#[test]
fn the_reference_has_the_defaults_of_a_scenario() {
    let mut count = 0;
    for (name, heading) in OF_SCENARIOS {
        let (table, base) = match name {
            "Scenario" => (String::new(), ""),
            "FaultSpec" | "AccountFigure" => continue,
            "ReplaySpec" => ("[replay]\n".into(), "file = 'r'\n"),
            "ReadMix" => ("[[reads]]\n".into(), "queries = ['up']\n"),
            _ => (format!("[{heading}]\n"), ""),
        };
        let read = |line: &str| {
            let text = format!("{table}{base}{line}");
            Scenario::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
        };
        let plain = read("");
        for (key, row) in rows(SCENARIO, heading) {
            let value = row.split(" | ").nth(2).expect("a default").trim();
            let text = value.strip_prefix('`').and_then(|value| value.strip_suffix('`'));
            let number = value.replace(',', "");
            let literal = match text {
                Some(text) if text.starts_with('"') => text,
                None if value == "true" || value == "false" || number.parse::<f64>().is_ok() => &number,
                _ => continue,
            };
            assert_eq!(read(&format!("{key} = {literal}")), plain, "{heading}: {key}");
            count += 1;
        }
    }
    assert!(count > 40, "{count} defaults found");
}

#[test]
fn the_reference_has_every_key_of_a_result() {
    let keys = of::<RunResult>();
    let headings: Vec<_> = keys.structs.keys().map(|name| (*name, *name)).collect();
    assert!(headings.len() > 10, "{headings:?}");
    hold(RESULT, &keys, &headings);
    let figures: BTreeSet<_> = FIGURES.iter().map(|figure| figure.name).collect();
    assert_eq!(rows(RESULT, "Figures").into_keys().collect::<BTreeSet<_>>(), figures);
}

/// The names of protocols are those of the drivers, which a deserializer does not announce.
#[test]
fn the_reference_has_every_protocol() {
    let rows = rows(SCENARIO, "target");
    for protocol in lab::Protocol::all() {
        let name = protocol.name();
        assert!(rows["protocol"].contains(&format!("`{name}`")), "{name}");
        let text = format!("[target]\nprotocol = '{name}'\nwrite = '{}'", protocol.usual_address());
        let rate = if protocol.name() == "statsd" { "\n[load]\nmodel = 'open'" } else { "" };
        assert!(Scenario::parse(&(text + rate)).is_ok(), "{name}");
    }
}
