//! Settings that name carbon's rule files.

use super::given::SettingsError;
use super::reader::Reader;
use super::setting_builder::TypedSetting;
use super::table;
use crate::graphite_rules::RuleFiles;
use crate::watched::Source as _;
use std::path::PathBuf;

/// Selects the path that a setting gives.
type Field = fn(&mut RuleFiles) -> &mut Option<PathBuf>;

const ALL: [(&TypedSetting<Option<PathBuf>>, Field); 6] = [
    (&table::GRAPHITE_SCHEMAS, |files| &mut files.schemas),
    (&table::GRAPHITE_AGGREGATION, |files| &mut files.aggregation),
    (&table::GRAPHITE_AGGREGATOR_RULES, |files| &mut files.aggregator),
    (&table::GRAPHITE_REWRITE, |files| &mut files.rewrite),
    (&table::GRAPHITE_ALLOW, |files| &mut files.allow),
    (&table::GRAPHITE_DENY, |files| &mut files.deny),
];

/// Reads the paths of the rule files, and checks the files.
pub(super) fn rule_files(
    reader: &mut Reader<'_>,
    warnings: &mut Vec<String>,
) -> Result<RuleFiles, SettingsError> {
    let mut files = RuleFiles::default();
    for (setting, field) in ALL {
        let path = reader.read(setting)?;
        let mut alone = RuleFiles::default();
        field(&mut alone).clone_from(&path);
        alone.load().map_err(|reason| reader.error(setting, reason))?;
        warnings.extend(alone.read().iter().flat_map(|texts| alone.warnings(texts)));
        *field(&mut files) = path;
    }
    Ok(files)
}
