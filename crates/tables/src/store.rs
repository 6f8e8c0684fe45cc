//! Storage of tables: an object store, or durable local files.

mod durable;
mod finished;
pub(crate) mod names;
mod probe;
mod readers;
mod upload;

use crate::error::TableError;
use bytes::Bytes;
use durable::DurableFiles;
pub(crate) use durable::is_unfinished;
use finished::Finished;
use futures::{StreamExt, stream};
pub use object_store::DynObjectStore;
use object_store::path::{Path, PathPart};
use object_store::{ObjectStoreExt, ObjectStoreScheme, PutMode, PutOptions};
use std::collections::BTreeSet;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use stdx::telemetry::Counter;
use tokio::runtime::Handle;
use url::Url;

pub use names::FileStem;
pub(crate) use readers::{Readers, Reading};
pub use upload::{PART_BYTES, Staging, Upload};

/// A store of local files for tests of power losses. `sync` stands in for the system call that makes a folder durable.
pub fn local_files(
    sync: impl Fn(&std::path::Path) -> std::io::Result<()> + Send + Sync + 'static,
) -> Arc<DynObjectStore> {
    Arc::new(DurableFiles::with_sync(sync))
}

/// A folder in an object store, and the runtime for requests. Its methods block: never call them from an async task.
#[derive(Clone)]
pub struct Location {
    url: Url,
    store: Arc<DynObjectStore>,
    prefix: Path,
    handle: Handle,
    repairs: Option<Counter>,
    /// Store of local files, if the location is local.
    files: Option<DurableFiles>,
    /// True if another store wraps the local files ([`Self::with_store`]).
    is_wrapped: bool,
    /// Reads that are running in this process, in this folder and all folders within it.
    readers: Arc<Readers>,
    /// The folder with which the location was opened: this folder, or one that contains it.
    root: Path,
    /// True if put-if-absent is known to work.
    is_exclusive: Arc<AtomicBool>,
}

impl std::fmt::Debug for Location {
    /// Omits the store, whose clients hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Location").field("url", &shown(&self.url)).finish_non_exhaustive()
    }
}

/// Writes a URL without user, password and query, which may be secret.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // a URL without a host has no user
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.into()
}

/// Fails if [`Location::open`] does not know this kind of URL.
pub fn check_url(url: &str) -> Result<(), TableError> {
    parse(url).map(drop)
}

fn parse(url: &str) -> Result<Url, TableError> {
    // if the text is not a URL, it may be a secret, and is not repeated
    let parsed = Url::parse(url)
        .map_err(|e| TableError::Location { url: "(not a URL)".into(), reason: e.to_string() })?;
    let bad = |reason: &str| Err(TableError::Location { url: shown(&parsed), reason: reason.into() });
    match ObjectStoreScheme::parse(&parsed) {
        _ if parsed.scheme() == "file" && parsed.host().is_some() => {
            bad("the URL of a local folder has three slashes and the whole path: file:///var/lib/tables")
        }
        Ok((ObjectStoreScheme::Http, _)) | Err(_) => {
            bad("unknown kind of object store; file://, s3://, gs:// and az:// are supported")
        }
        Ok(_) => Ok(parsed),
    }
}

impl Location {
    /// Opens the folder at `file:///...`, `s3://bucket/...`, `gs://...` or `az://...`, with `options` as in the crate
    /// `object_store` (`aws_endpoint`, ...).
    pub fn open(
        url: &str,
        options: impl IntoIterator<Item = (String, String)>,
        handle: Handle,
    ) -> Result<Self, TableError> {
        let mut parsed = parse(url)?;
        if !parsed.path().ends_with('/') {
            parsed.set_path(&format!("{}/", parsed.path()));
        }
        let shown = shown(&parsed);
        let given = parsed.to_string();
        // library errors may repeat secrets of the URL
        let bad = |reason: String| TableError::Location {
            url: shown.clone(),
            reason: reason.replace(&given, &shown),
        };
        let (store, prefix, files): (Arc<DynObjectStore>, _, _) = if parsed.scheme() == "file" {
            let prefix = Path::from_url_path(parsed.path()).map_err(|e| bad(e.to_string()))?;
            let files = DurableFiles::new();
            (Arc::new(files.clone()), prefix, Some(files))
        } else {
            let (store, prefix) =
                object_store::parse_url_opts(&parsed, options).map_err(|e| bad(e.to_string()))?;
            (store.into(), prefix, None)
        };
        Ok(Self {
            url: parsed,
            store,
            root: prefix.clone(),
            prefix,
            handle,
            repairs: None,
            files,
            is_wrapped: false,
            readers: Arc::default(),
            is_exclusive: Arc::default(),
        })
    }

    /// An inner folder, with the same connections.
    pub fn folder(&self, names: &[&str]) -> Result<Self, TableError> {
        let mut url = self.url.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(names).push("");
        }
        let bad = |reason: String| TableError::Location { url: shown(&url), reason };
        // unlike in a URL, the library would encode some characters here
        let inner = names.iter().map(|name| PathPart::parse(name)).collect::<Result<Vec<_>, _>>();
        let inner = inner.map_err(|e| bad(e.to_string()))?;
        let prefix = self.prefix.parts().chain(inner).collect();
        Ok(Self { url, prefix, ..self.clone() })
    }

    /// Names of at most `max` inner folders that sort after `after`, in order. Empty if this folder is absent.
    ///
    /// Local folders keep at most `max` names in memory, object stores all.
    pub fn folders(&self, after: Option<&str>, max: usize) -> Result<Vec<String>, TableError> {
        if let Some(files) = self.files.as_ref().filter(|_| !self.is_wrapped) {
            return Ok(self.wait(files.folders(&self.prefix, after, max))?);
        }
        let mut page = Page::new(after, max);
        match self.wait(self.store.list_with_delimiter(Some(&self.prefix))) {
            Ok(listed) => listed.common_prefixes.iter().filter_map(Path::filename).for_each(|n| page.add(n)),
            Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(page.names())
    }

    /// The same folder, but with a store that wraps the present one, for tests.
    #[must_use]
    pub fn with_store(&self, wrap: impl FnOnce(Arc<DynObjectStore>) -> Arc<DynObjectStore>) -> Self {
        let store = wrap(Arc::clone(&self.store));
        Self { store, is_wrapped: true, is_exclusive: Arc::default(), ..self.clone() }
    }

    #[cfg(test)]
    pub(crate) fn on(&self, files: DurableFiles) -> Self {
        Self { store: Arc::new(files.clone()), files: Some(files), ..self.clone() }
    }

    /// Allows damaged logs to be repaired, and counts the repairs in `repairs`. Without this, opening a table changes
    /// nothing.
    #[must_use]
    pub fn with_repairs(self, repairs: Counter) -> Self {
        Self { repairs: Some(repairs), ..self }
    }

    pub(crate) const fn repairs(&self) -> Option<&Counter> {
        self.repairs.as_ref()
    }

    /// URL of the folder, with a final slash.
    pub const fn url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn is_local(&self) -> bool {
        self.url.scheme() == "file"
    }

    pub(crate) fn finished_files(&self) -> Arc<DynObjectStore> {
        // only local stores have unfinished files
        if self.files.is_some() { Arc::new(Finished(self.store())) } else { self.store() }
    }

    pub(crate) fn store(&self) -> Arc<DynObjectStore> {
        Arc::clone(&self.store)
    }

    pub(crate) const fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn wait<F: Future>(&self, request: F) -> F::Output {
        self.handle.block_on(request)
    }

    /// Path of an object, from a relative path in the Delta log's percent-encoding.
    pub(crate) fn path(&self, relative: &str) -> Result<Path, TableError> {
        let bad = |e: object_store::path::Error| TableError::damaged(relative, e);
        let inner = Path::from_url_path(relative).map_err(bad)?;
        Ok(self.prefix.parts().chain(inner.parts()).collect())
    }

    pub(crate) const fn readers(&self) -> &Arc<Readers> {
        &self.readers
    }

    pub(crate) const fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Creates the folder of a local location.
    pub(crate) fn create_folder(&self) -> Result<(), TableError> {
        let (Some(files), Ok(folder)) = (&self.files, self.url.to_file_path()) else { return Ok(()) };
        let bad = |e: std::io::Error| TableError::Location { url: shown(&self.url), reason: e.to_string() };
        files.create_folder(&folder).map_err(bad)
    }

    /// Writes a new object. Fails if it exists.
    pub(crate) fn create(&self, relative: &str, data: Bytes) -> Result<(), TableError> {
        let path = self.path(relative)?;
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        self.wait(self.store.put_opts(&path, data.into(), options))?;
        Ok(())
    }

    /// Writes or replaces an object.
    pub(crate) fn put(&self, relative: &str, data: Bytes) -> Result<(), TableError> {
        self.wait(self.store.put(&self.path(relative)?, data.into()))?;
        Ok(())
    }

    pub(crate) fn object(&self, relative: &str, len: u64) -> Result<StoredFile, TableError> {
        Ok(StoredFile { location: self.clone(), name: relative.into(), path: self.path(relative)?, len })
    }

    /// Renames an object. A missing object is no error: another process was faster.
    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), TableError> {
        let (from, to) = (self.path(from)?, self.path(to)?);
        match self.wait(self.store.rename(&from, &to)) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes an object. A missing object is no error.
    pub(crate) fn delete(&self, path: &Path) -> Result<(), TableError> {
        match self.wait(self.store.delete(path)) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Collects names, and keeps the first `max` of those after `after`.
#[derive(Debug)]
struct Page<'a> {
    after: Option<&'a str>,
    max: usize,
    names: BTreeSet<String>,
}

impl<'a> Page<'a> {
    const fn new(after: Option<&'a str>, max: usize) -> Self {
        Self { after, max, names: BTreeSet::new() }
    }

    fn add(&mut self, name: &str) {
        let is_behind = self.after.is_none_or(|after| name > after);
        let is_before_last = || self.names.last().is_some_and(|last| name < last.as_str());
        if is_behind && (self.names.len() < self.max || is_before_last()) {
            self.names.insert(name.into());
            if self.names.len() > self.max {
                self.names.pop_last();
            }
        }
    }

    fn names(self) -> Vec<String> {
        self.names.into_iter().collect()
    }
}

/// Number of whole files read concurrently, to hide the latency of a store.
const READS_AT_ONCE: usize = 16;

#[derive(Debug, Clone)]
pub struct StoredFile {
    location: Location,
    name: String,
    path: Path,
    len: u64,
}

impl StoredFile {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.len
    }

    pub(crate) fn read(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, TableError> {
        let data = self.location.wait(self.location.store.get_ranges(&self.path, ranges));
        data.map_err(|error| self.read_error(error))
    }

    /// Reads whole, small files into memory, [`READS_AT_ONCE`] at a time.
    pub(crate) fn read_whole(files: &[&Self]) -> Vec<Result<Bytes, TableError>> {
        let Some(first) = files.first() else { return Vec::new() };
        let requests: Vec<_> = files.iter().map(|file| (*file).request()).collect();
        let read = stream::iter(requests).buffered(READS_AT_ONCE).collect::<Vec<_>>();
        let results = first.location.wait(read);
        files.iter().zip(results).map(|(file, result)| file.whole(result)).collect()
    }

    fn request(&self) -> impl Future<Output = object_store::Result<Vec<Bytes>>> + use<> {
        let (store, path, len) = (self.location.store(), self.path.clone(), self.len);
        async move { store.get_ranges(&path, std::slice::from_ref(&(0..len))).await }
    }

    fn whole(&self, result: object_store::Result<Vec<Bytes>>) -> Result<Bytes, TableError> {
        let data = result.map_err(|error| self.read_error(error))?;
        match data.into_iter().next() {
            Some(whole) if whole.len() as u64 == self.len => Ok(whole),
            _ => Err(TableError::damaged(&self.name, "it is shorter than the log says")),
        }
    }

    fn read_error(&self, error: object_store::Error) -> TableError {
        match error {
            object_store::Error::NotFound { .. } => TableError::Missing { file: self.name.clone() },
            object_store::Error::Generic { source, .. } if self.is_short() => {
                TableError::damaged(&self.name, format!("it is shorter than the log says: {source}"))
            }
            error => error.into(),
        }
    }

    pub(crate) fn full_path(&self) -> &str {
        self.path.as_ref()
    }

    fn is_short(&self) -> bool {
        let head = self.location.wait(self.location.store.head(&self.path));
        head.is_ok_and(|head| head.size < self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_where_its_url_says_and_is_listed_by_its_name() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let open = |url: &str| Location::open(url, [], runtime.handle().clone()).unwrap();
        let root = open(&format!("file://{}/a%20b", dir.path().display()));
        let all = || root.folders(None, 10).unwrap();
        assert_eq!(all(), Vec::<String>::new(), "the folder does not exist");
        for name in ["anonymous", "b(*)'!", "x_y-z."] {
            let folder = root.folder(&[name, "metrics"]).unwrap();
            let again = open(folder.url().as_str());
            assert_eq!((again.url(), &again.prefix), (folder.url(), &folder.prefix), "{name}");
            folder.create("x", Bytes::from_static(b"y")).unwrap();
            assert!(dir.path().join("a b").join(name).join("metrics/x").exists());
            assert!(all().contains(&name.to_string()), "{:?}", all());
        }
        assert!(root.folder(&[".."]).is_err());
    }

    #[test]
    fn folders_are_listed_in_pages_in_order() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let url = format!("file://{}", dir.path().display());
        let local = Location::open(&url, [], runtime.handle().clone()).unwrap();
        // lists folders as in an object store
        let remote = local.with_store(|store| store);
        let mut expected = BTreeSet::new();
        for n in 0..23 {
            let name = format!("t{}", n * 7 % 23);
            std::fs::create_dir(dir.path().join(&name)).unwrap();
            expected.insert(name);
        }
        std::fs::write(dir.path().join("t5-is-a-file"), "x").unwrap();
        std::fs::create_dir(dir.path().join("there")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("there"), dir.path().join("t-linked")).unwrap();
        expected.extend(["there".to_owned(), "t-linked".to_owned()]);
        for root in [local, remote] {
            for max in [1, 4, 23, 25, 100] {
                let (mut found, mut after) = (Vec::new(), None::<String>);
                loop {
                    let page = root.folders(after.as_deref(), max).unwrap();
                    assert!(page.len() <= max);
                    let Some(last) = page.last() else { break };
                    after = Some(last.clone());
                    found.extend(page);
                }
                assert!(found.iter().eq(&expected), "{max}: {found:?}");
            }
        }
    }
}
