//! Local files that are durable once a write has returned.
//!
//! The journal relies on table files that survive a power loss, but `object_store` does not sync. Here a file is
//! written under a temporary name, synced, linked to its final name, and its folder is synced. [`folders`] handles
//! failed syncs.

mod folders;

use super::Page;
use folders::Folders;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result, UploadPart,
};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

const STORE: &str = "DurableFiles";

/// Prefix of unfinished files. Sweeps delete them after a crash.
const TEMPORARY: &str = ".aside-";

/// Maximum number of unfinished files of a process in one folder.
const TEMPORARY_MAX: usize = 10_000;

/// Local file system whose puts are synced.
#[derive(Debug, Clone)]
pub(crate) struct DurableFiles {
    files: Arc<LocalFileSystem>,
    folders: Arc<Folders>,
}

impl DurableFiles {
    pub(crate) fn new() -> Self {
        Self::over(Folders::default())
    }

    fn over(folders: Folders) -> Self {
        Self { files: Arc::new(LocalFileSystem::new()), folders: Arc::new(folders) }
    }

    pub(super) fn create_folder(&self, folder: &FilePath) -> io::Result<()> {
        self.folders.create(folder)
    }

    /// Names of at most `max` subfolders after `after`, in order. Empty if the folder is absent.
    pub(super) async fn folders(
        &self,
        prefix: &Path,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<String>> {
        settle(&self.files, Arc::clone(&self.folders), Some(prefix)).await?;
        let path = self.files.path_to_filesystem(prefix)?;
        let (name, after) = (prefix.to_string(), after.map(ToOwned::to_owned));
        let listed = tokio::task::spawn_blocking(move || {
            let mut page = Page::new(after.as_deref(), max);
            let entries = match fs::read_dir(path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                let kind = entry.file_type()?;
                let is_folder = kind.is_dir() || (kind.is_symlink() && entry.path().is_dir());
                if let Some(name) = entry.file_name().to_str().filter(|_| is_folder) {
                    page.add(name);
                }
            }
            Ok(page.names())
        });
        listed.await?.map_err(|e: io::Error| Error::Generic {
            store: STORE,
            source: format!("cannot list {name}: {e}").into(),
        })
    }

    /// For tests: `sync` replaces the system call that makes a folder durable.
    pub(crate) fn with_sync(sync: impl Fn(&FilePath) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self::over(Folders::synced_by(sync))
    }
}

impl std::fmt::Display for DurableFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(STORE)
    }
}

/// True for an unfinished file, which no commit names.
pub(crate) fn is_unfinished(object: &ObjectMeta) -> bool {
    object.location.filename().is_some_and(|name| name.starts_with(TEMPORARY))
}

fn folder_of(path: &FilePath) -> &FilePath {
    path.parent().unwrap_or(FilePath::new("/"))
}

fn put(folders: &Folders, path: &FilePath, payload: &PutPayload, create: bool) -> io::Result<()> {
    let folder = folder_of(path);
    folders.create(folder)?;
    let (mut file, temporary) = create_temporary(folder)?;
    let written = (|| {
        payload.iter().try_for_each(|part| file.write_all(part))?;
        file.sync_all()?;
        if create { fs::hard_link(&temporary, path) } else { fs::rename(&temporary, path) }
    })();
    if create || written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    folders.sync(folder)
}

fn failed(name: &str, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Error::AlreadyExists { path: name.into(), source: error.into() },
        _ => Error::Generic { store: STORE, source: format!("cannot write {name}: {error}").into() },
    }
}

/// A file written in parts under a temporary name.
#[derive(Debug)]
struct Parts {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    folders: Arc<Folders>,
}

impl Parts {
    fn begin(folders: Arc<Folders>, path: PathBuf) -> io::Result<Self> {
        let folder = folder_of(&path);
        folders.create(folder)?;
        let (file, temporary) = create_temporary(folder)?;
        Ok(Self { path, temporary, file, folders })
    }

    fn complete(&self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::hard_link(&self.temporary, &self.path)?;
        self.folders.sync(folder_of(&self.path))
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Upload of a local file, whose parts are written in order.
#[derive(Debug)]
struct Growing {
    parts: Arc<Parts>,
    name: String,
    at: u64,
}

#[async_trait::async_trait]
impl MultipartUpload for Growing {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (parts, name, at) = (Arc::clone(&self.parts), self.name.clone(), self.at);
        self.at += data.content_length() as u64;
        Box::pin(async move {
            let written = tokio::task::spawn_blocking(move || {
                let mut at = at;
                data.iter().try_for_each(|bytes| {
                    parts.file.write_all_at(bytes, at)?;
                    at += bytes.len() as u64;
                    Ok(())
                })
            });
            written.await?.map_err(|e| failed(&name, e))
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let parts = Arc::clone(&self.parts);
        let done = tokio::task::spawn_blocking(move || parts.complete()).await?;
        done.map_err(|e| failed(&self.name, e))?;
        Ok(PutResult { e_tag: None, version: None })
    }

    async fn abort(&mut self) -> Result<()> {
        // dropping the upload removes the file
        Ok(())
    }
}

/// Creates a temporary file with a name that is unique across processes.
fn create_temporary(folder: &FilePath) -> io::Result<(File, PathBuf)> {
    for n in 0..TEMPORARY_MAX {
        let path = folder.join(format!("{TEMPORARY}{}-{n}", std::process::id()));
        match File::create_new(&path) {
            Ok(file) => return Ok((file, path)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other("too many unfinished files in the folder"))
}

/// Syncs a folder before it is listed, unless all names in it are durable already.
async fn settle(files: &LocalFileSystem, folders: Arc<Folders>, folder: Option<&Path>) -> Result<()> {
    let Some(folder) = folder else { return Ok(()) };
    let path = files.path_to_filesystem(folder)?;
    if folders.is_settled(&path) {
        return Ok(());
    }
    let settled = tokio::task::spawn_blocking(move || folders.settle(&path)).await?;
    settled.map_err(|e| failed(folder.as_ref(), e))
}

#[async_trait::async_trait]
impl ObjectStore for DurableFiles {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let create = match options.mode {
            PutMode::Create => true,
            PutMode::Overwrite => false,
            PutMode::Update(_) => {
                return Err(Error::NotImplemented {
                    operation: "put update".into(),
                    implementer: STORE.into(),
                });
            }
        };
        let path = self.files.path_to_filesystem(location)?;
        let name = location.to_string();
        let folders = Arc::clone(&self.folders);
        let done = tokio::task::spawn_blocking(move || put(&folders, &path, &payload, create)).await?;
        match done {
            Ok(()) => Ok(PutResult { e_tag: None, version: None }),
            Err(e) if create && e.kind() == io::ErrorKind::AlreadyExists => {
                Err(Error::AlreadyExists { path: name, source: e.into() })
            }
            Err(e) => Err(failed(&name, e)),
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let path = self.files.path_to_filesystem(location)?;
        let name = location.to_string();
        let folders = Arc::clone(&self.folders);
        let begun = tokio::task::spawn_blocking(move || Parts::begin(folders, path)).await?;
        let parts = begun.map_err(|e| failed(&name, e))?;
        Ok(Box::new(Growing { parts: Arc::new(parts), name, at: 0 }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.files.get_opts(location, options).await
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[std::ops::Range<u64>],
    ) -> Result<Vec<bytes::Bytes>> {
        self.files.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.files.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (files, folders) = (Arc::clone(&self.files), Arc::clone(&self.folders));
        let prefix = prefix.cloned();
        let listed = async move {
            settle(&files, folders, prefix.as_ref()).await?;
            Ok::<_, Error>(files.list(prefix.as_ref()))
        };
        stream::once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        settle(&self.files, Arc::clone(&self.folders), prefix).await?;
        self.files.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.files.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.files.rename_opts(from, to, options).await?;
        let path = self.files.path_to_filesystem(to)?;
        let name = to.to_string();
        let folders = Arc::clone(&self.folders);
        let synced = tokio::task::spawn_blocking(move || folders.sync(folder_of(&path))).await?;
        synced.map_err(|e| failed(&name, e))
    }
}

#[cfg(test)]
mod tests;
