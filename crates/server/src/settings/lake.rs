//! Settings of sealing and of the upkeep of tables.

use super::given::{Given, SettingsError};
use super::reader::Reader;
use super::secret::{StoreOptions, TablesUrl};
use super::table;
use std::path::Path;
use tables::compact::CompactLimits;

#[derive(Debug, Clone)]
pub struct LakeSettings {
    pub url: TablesUrl,
    pub options: StoreOptions,
    pub seal_after_ms: i64,
    pub seal_bytes: u64,
    pub flush_interval_ms: i64,
    pub retention_wait_ms: i64,
    pub compaction: bool,
    /// When a file that compaction writes has this size, the next file is begun. Only simulations change it.
    pub merged_file_bytes: u64,
    pub vacuum_grace_ms: i64,
}

impl LakeSettings {
    pub(super) fn read(
        reader: &mut Reader<'_>,
        data_dir: &Path,
        given: &Given,
    ) -> Result<Self, SettingsError> {
        let Some(beside) = tables_in(data_dir) else {
            return Err(reader.error(&table::DATA_DIR, "cannot be made an absolute path".into()));
        };
        Ok(Self {
            url: reader.derive(&table::TABLES, beside)?,
            options: given.store_options(),
            seal_after_ms: reader.read(&table::SEAL_AFTER)?,
            seal_bytes: reader.read(&table::SEAL_SIZE)?,
            flush_interval_ms: reader.read(&table::FLUSH_INTERVAL)?,
            retention_wait_ms: reader.read(&table::RETENTION_WAIT)?,
            compaction: reader.read(&table::COMPACTION)?,
            merged_file_bytes: CompactLimits::default().file_bytes,
            vacuum_grace_ms: reader.read(&table::VACUUM_GRACE)?,
        })
    }
}

fn tables_in(data_dir: &Path) -> Option<TablesUrl> {
    let whole = std::path::absolute(data_dir.join("tables")).ok()?;
    url::Url::from_directory_path(whole).ok().map(TablesUrl::from)
}
