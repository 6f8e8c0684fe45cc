//! Scenarios that the program has by name: each file of `scenarios/`. `build.rs` lists them.

/// Name and text of each, in order.
pub const PRESETS: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/presets.rs"));

pub fn preset(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn presets_are_valid() {
        assert!(PRESETS.len() >= 11);
        for (name, text) in PRESETS {
            let scenario = Scenario::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(name.starts_with(&scenario.name), "{name}");
        }
        assert_eq!(preset("nonsense"), None);
    }
}
