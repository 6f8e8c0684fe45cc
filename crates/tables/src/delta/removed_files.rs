//! Lists the files that the log records as removed.
//!
//! A removed file is recorded in the log entry that removed it. Checkpoints also record it, but only for a week
//! (`delta.deletedFileRetentionDuration`).

use super::listing::{Checkpoint, FOLDER, LogFile};
use super::{Listing, Table};
use crate::error::TableError;
use arrow_array::cast::AsArray;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::schema::{DataType, SchemaRef, StructField, StructType};
use delta_kernel::{Engine, EngineData, FileDataReadResultIterator, FileMeta, KernelResult};
use std::sync::Arc;

const REMOVE: &str = "remove";
const PATH: &str = "path";

impl Table {
    /// Passes the path of each removed file, as written in the log, to `each`.
    pub(super) fn each_removed_file(&self, mut each: impl FnMut(&str)) -> Result<(), TableError> {
        let listing = Listing::read(&self.location)?;
        let is_there = |c: &Checkpoint<'_>| c.files.iter().all(|file| file.bytes > 0);
        let checkpoint = listing.checkpoints().find(is_there);
        let entries = listing.entries_after(checkpoint.as_ref().map(|c| c.version));
        let of_checkpoint = checkpoint.iter().flat_map(|c| c.files.iter().copied());
        let is_json = |file: &&LogFile| file.name.ends_with(".json");
        let (json, parquet): (Vec<_>, Vec<_>) = entries.chain(of_checkpoint).partition(is_json);
        self.reading(|| {
            let schema = schema()?;
            let json = self.engine.json_handler().read_json_files(
                &self.log_files(&json),
                Arc::clone(&schema),
                None,
            )?;
            each_path(json, &mut each)?;
            let parquet =
                self.engine.parquet_handler().read_parquet_files(&self.log_files(&parquet), schema, None)?;
            each_path(parquet, &mut each)
        })
    }

    fn log_files(&self, files: &[&LogFile]) -> Vec<FileMeta> {
        let url = |name: &str| {
            let url = self.location.url().join(&format!("{FOLDER}/{name}"));
            url.expect("BUG: the name of a log file is not valid in a URL")
        };
        let file = |file: &&LogFile| FileMeta {
            location: url(&file.name),
            last_modified: file.modified_ms,
            size: file.bytes,
        };
        files.iter().map(file).collect()
    }
}

fn schema() -> KernelResult<SchemaRef> {
    let remove = StructType::try_new([StructField::nullable(PATH, DataType::STRING)])?;
    Ok(Arc::new(StructType::try_new([StructField::nullable(REMOVE, remove)])?))
}

fn each_path(batches: FileDataReadResultIterator, each: &mut impl FnMut(&str)) -> KernelResult<()> {
    for batch in batches {
        let batch = batch?;
        let Some(paths) = paths(batch.as_ref()) else { continue };
        paths.iter().flatten().for_each(&mut *each);
    }
    Ok(())
}

fn paths(batch: &dyn EngineData) -> Option<&arrow_array::StringArray> {
    let batch = batch.any_ref().downcast_ref::<ArrowEngineData>()?.record_batch();
    batch.column_by_name(REMOVE)?.as_struct_opt()?.column_by_name(PATH)?.as_string_opt()
}
