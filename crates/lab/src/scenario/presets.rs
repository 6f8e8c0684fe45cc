//! Scenarios that the program has by name: those of `scenarios/`.

/// Name and text of each.
pub const PRESETS: [(&str, &str); 11] = [
    ("cortex-110k", include_str!("../../../../scenarios/cortex-110k.toml")),
    ("cortex-110k-endurance", include_str!("../../../../scenarios/cortex-110k-endurance.toml")),
    ("cortex-110k-spike", include_str!("../../../../scenarios/cortex-110k-spike.toml")),
    ("cortex-110k-steady", include_str!("../../../../scenarios/cortex-110k-steady.toml")),
    ("cortex-110k-stress", include_str!("../../../../scenarios/cortex-110k-stress.toml")),
    ("cortex-reads", include_str!("../../../../scenarios/cortex-reads.toml")),
    ("cortex-reads-40", include_str!("../../../../scenarios/cortex-reads-40.toml")),
    ("cortex-reads-spike", include_str!("../../../../scenarios/cortex-reads-spike.toml")),
    ("first", include_str!("../../../../scenarios/first.toml")),
    ("opstrace-200m", include_str!("../../../../scenarios/opstrace-200m.toml")),
    ("opstrace-200m-relabel", include_str!("../../../../scenarios/opstrace-200m-relabel.toml")),
];

pub fn preset(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn all_scenarios_are_presets_and_valid() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let text = preset(&name).unwrap_or_else(|| panic!("{name} is none"));
            let scenario = Scenario::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(name.starts_with(&scenario.name), "{name}");
            names.push(name);
        }
        assert_eq!(names.len(), PRESETS.len());
        assert_eq!(preset("nonsense"), None);
    }
}
