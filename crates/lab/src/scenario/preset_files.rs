//! Built-in scenarios, one for each file of `scenarios/`.

/// Name and text of each preset, sorted by name.
pub const PRESETS: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/presets.rs"));

pub fn preset(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Rules, Scenario};

    #[test]
    fn presets_are_valid() {
        assert!(PRESETS.len() >= 14);
        for (name, text) in PRESETS {
            let scenario = Scenario::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(name.starts_with(&scenario.name), "{name}");
        }
        assert_eq!(preset("nonsense"), None);
    }

    #[test]
    fn the_stressers_differ_only_in_what_their_comments_say() {
        let rules = |name: &str| Scenario::parse(preset(name).unwrap()).unwrap().verdict;
        let one = rules("stresser");
        assert_eq!(one.disk_util, Some(0.2));
        assert_eq!(rules("stresser-20x"), one);
        let hundred = rules("stresser-100x");
        assert_eq!(Rules { p99: one.p99, owed: one.owed, ..hundred }, one);
    }
}
