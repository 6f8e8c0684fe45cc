//! The overrides file: settings of tenants that can change at run time.

use super::given::{Given, SettingsError};
use super::tenant_limits::Defaults;
use super::tenant_settings::Tenants;
use crate::watched::{self, Source, Watched};
use std::path::PathBuf;

/// The overrides file, and the values given elsewhere, which it overrides.
#[derive(Debug, Clone)]
pub struct OverridesFile {
    pub path: PathBuf,
    given: Given,
    defaults: Defaults,
}

pub(crate) type Overrides = Watched<OverridesFile>;

const BYTES_MAX: u64 = 16 << 20;

impl OverridesFile {
    pub(super) fn new(path: PathBuf, given: &Given, defaults: &Defaults) -> Self {
        Self { path, given: given.clone(), defaults: defaults.clone() }
    }

    pub fn text(&self) -> Result<String, SettingsError> {
        watched::read(&self.path, BYTES_MAX)
            .map_err(|source| SettingsError::Read { path: self.path.clone(), source })
    }

    /// Returns all given values, as if the overrides file contained `text`.
    pub(super) fn with(&self, text: &str) -> Result<Given, SettingsError> {
        self.given.clone().overrides(&self.path, text)
    }

    /// Determines the settings of all tenants, as if the overrides file contained `text`.
    pub fn tenants(&self, text: &str) -> Result<Tenants, SettingsError> {
        Tenants::resolve(&self.with(text)?, &self.defaults)
    }
}

impl Source for OverridesFile {
    const NAME: &'static str = "overrides";
    type Raw = String;
    type Content = Tenants;

    fn read(&self) -> Result<String, String> {
        self.text().map_err(|error| error.to_string())
    }

    fn parse(&self, text: &String) -> Result<Tenants, String> {
        self.tenants(text).map_err(|error| error.to_string())
    }

    /// A file that was truncated by mistake may be empty. An empty file is valid, so there is only a warning.
    fn warnings(&self, text: &String) -> Vec<String> {
        let is_empty = text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#'));
        let path = self.path.display();
        let warning = is_empty.then(|| {
            format!(
                "overrides: {path} has no settings, so no tenant has overrides; if the file was truncated by mistake, write it again"
            )
        });
        warning.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use model::TenantId;
    use stdx::telemetry::Registry;

    /// An override of one limit of a class must not undo its other settings, such as the retention.
    #[test]
    fn classes_of_the_same_name_are_merged() {
        let dir = tempfile::tempdir().unwrap();
        let [file, overrides] = ["floodmark.toml", "overrides.toml"].map(|name| dir.path().join(name));
        let of_file = "retention = '90d'\n[class.gold]\ntenants = ['gold-*']\nretention = '2y'\nsamples_per_second = 9\n";
        std::fs::write(&file, of_file).unwrap();
        std::fs::write(&overrides, "[class.gold]\ntenants = ['gold-a*']\nsamples_per_second = 5\n").unwrap();
        let given = Given::default().file(&file).unwrap().flag("overrides", &overrides);
        let settings = Settings::resolve(&given).unwrap();
        for (name, retention_days, samples_per_second) in
            [("gold-a", 730, Some(5)), ("gold-b", 730, Some(9)), ("silver", 90, None)]
        {
            let own = settings.tenants.of(&TenantId::parse(name).unwrap());
            let found = (own.retention_ms.unwrap() / 86_400_000, own.limits.samples_per_second);
            assert_eq!(found, (retention_days, samples_per_second), "{name}");
        }
    }

    #[test]
    fn an_invalid_file_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("overrides.toml");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("samples_per_second = 5\n[class.team]\ntenants = [\"team-*\"]\nsamples_per_second = 6\n");
        let given = Given::default().flag("samples_per_second", "4").flag("overrides", &path);
        let settings = Settings::resolve(&given).unwrap();
        let registry = Registry::new();
        let overrides = Overrides::new(settings.overrides, settings.tenants, &registry);
        let limit =
            |name: &str| overrides.current().of(&TenantId::parse(name).unwrap()).limits.samples_per_second;
        let check = |expected: [usize; 3], valid: bool| {
            overrides.reload();
            assert_eq!([limit("a"), limit("team-a"), limit("b")], expected.map(Some));
            let text = registry.render();
            assert!(
                text.contains(&format!("floodmark_file_current{{file=\"overrides\"}} {}\n", u8::from(valid))),
                "{text}"
            );
        };
        check([5, 6, 5], true);
        write("[tenant.b]\nsamples_per_second = 7\n");
        check([4, 4, 7], true);
        for invalid in ["[tenant.b]\nsamples_per_second = 0", "memory = \"1GiB\"", "[tenant.b", "[class.x]\n"]
        {
            write(invalid);
            check([4, 4, 7], false);
        }
        std::fs::remove_file(&path).unwrap();
        check([4, 4, 7], false);
        write("");
        check([4, 4, 4], true);
        assert!(
            registry
                .render()
                .contains("floodmark_file_reloads_total{file=\"overrides\",result=\"failed\"} 5\n")
        );
    }
}
