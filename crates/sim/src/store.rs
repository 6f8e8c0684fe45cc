//! An object store, in memory or in local files. Some requests fail. A failed request may take effect
//! nevertheless, at once or much later.
//!
//! Requests may run at the same time, so faults must not depend on their order. Each fault follows from the
//! seed, the operation, the path and the *epoch*, a number that rises with each step and each sleep. Changes
//! never run at the same time, so their faults also depend on how often the path was changed in this epoch.

mod files;

use crate::clock::SimClock;
use crate::power::{Change, Power};
use files::Files;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, UNIX_EPOCH};
use stdx::clock::Clock;
use stdx::rng::{Rng, mix};
use tables::store::DynObjectStore;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct StoreFaults {
    /// A put or a delete fails and has no effect.
    pub refuse: f64,
    /// A put fails, although it takes effect.
    pub lose_answer: f64,
    /// A put fails, but takes effect later.
    pub delay: f64,
    pub unreadable: f64,
    /// All requests for paths with this prefix fail.
    pub broken: Option<String>,
    /// The sync of a folder fails. Only for local files.
    pub unsynced: f64,
    /// How long each request takes. It is 0 in random runs, because there the number of concurrent requests
    /// varies.
    pub slow_ms: u64,
}

#[derive(Debug, Clone)]
pub struct SimStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    objects: Mutex<Arc<DynObjectStore>>,
    files: Option<Files>,
    power: Arc<Power>,
    clock: Arc<SimClock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    seed: u64,
    epoch: u64,
    faults: StoreFaults,
    changes: HashMap<Path, u64>,
    written_ms: HashMap<Path, i64>,
    late: Vec<(Path, PutPayload, PutOptions)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    Refused,
    AnswerLost,
    Late,
}

impl SimStore {
    pub fn new(seed: u64, power: Arc<Power>, clock: Arc<SimClock>) -> Self {
        Self::of(seed, power, clock, None)
    }

    pub fn local(seed: u64, power: Arc<Power>, clock: Arc<SimClock>) -> Self {
        let files = Files::new(seed, Arc::clone(&power), Arc::clone(&clock));
        Self::of(seed, power, clock, Some(files))
    }

    fn of(seed: u64, power: Arc<Power>, clock: Arc<SimClock>, files: Option<Files>) -> Self {
        let state = State {
            seed,
            epoch: 0,
            faults: StoreFaults::default(),
            changes: HashMap::new(),
            written_ms: HashMap::new(),
            late: Vec::new(),
        };
        let objects: Arc<DynObjectStore> =
            files.as_ref().map_or_else(|| Arc::new(InMemory::new()) as _, Files::open);
        let objects = Mutex::new(objects);
        Self(Arc::new(Inner { objects, files, power, clock, state: Mutex::new(state) }))
    }

    /// Kills the process, so that a store of local files forgets what it had in memory.
    pub fn kill(&self) {
        if let Some(files) = &self.0.files {
            *self.objects_mut() = files.open();
        }
    }

    /// Cuts the power, so that local files may lose names that were not synced.
    pub fn lose_power(&self) {
        if let Some(files) = &self.0.files {
            files.lose_power();
        }
        self.kill();
    }

    fn objects_mut(&self) -> MutexGuard<'_, Arc<DynObjectStore>> {
        self.0.objects.lock().expect("BUG: a user of the store's state panicked")
    }

    fn objects(&self) -> Arc<DynObjectStore> {
        Arc::clone(&self.objects_mut())
    }

    pub fn set_faults(&self, faults: StoreFaults) {
        if let Some(files) = &self.0.files {
            files.set_error(faults.unsynced);
        }
        self.lock().faults = faults;
    }

    pub fn faults(&self) -> StoreFaults {
        self.lock().faults.clone()
    }

    /// Lets some of the delayed puts take effect. Returns how many.
    pub fn deliver(&self, rng: &mut Rng) -> usize {
        let late = std::mem::take(&mut self.lock().late);
        let (mut done, mut left) = (0, Vec::new());
        for (path, payload, options) in late {
            if rng.chance(0.5) {
                // fails if a conditional put finds that the object exists
                let _ = futures::executor::block_on(self.put_now(&path, payload, options));
                done += 1;
            } else {
                left.push((path, payload, options));
            }
        }
        self.lock().late = left;
        done
    }

    pub fn deliver_all(&self) {
        let late = std::mem::take(&mut self.lock().late);
        for (path, payload, options) in late {
            let _ = futures::executor::block_on(self.put_now(&path, payload, options));
        }
    }

    async fn put_now(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let put = self.objects().put_opts(path, payload, options).await?;
        self.lock().written_ms.insert(path.clone(), self.0.clock.now_ms());
        Ok(put)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.state.lock().expect("BUG: a user of the store's state panicked");
        let epoch = self.0.clock.epoch();
        if state.epoch != epoch {
            state.epoch = epoch;
            state.changes.clear();
        }
        state
    }

    fn fate(&self, path: &Path, is_put: bool) -> Fate {
        let power = self.0.power.change();
        let mut state = self.lock();
        self.0.clock.advance(state.faults.slow_ms);
        let count = state.changes.entry(path.clone()).or_insert(0);
        *count += 1;
        let count = *count;
        let mut rng = state.draw("change", path, count);
        match power {
            Change::Off => return Fate::Refused,
            Change::Cut => return if rng.chance(0.5) { Fate::AnswerLost } else { Fate::Refused },
            Change::Made => {}
        }
        if self.0.clock.slept_too_often() {
            return Fate::Done;
        }
        let StoreFaults { refuse, lose_answer, delay, .. } = state.faults;
        if state.is_broken(path) || rng.chance(refuse) {
            Fate::Refused
        } else if is_put && rng.chance(lose_answer) {
            Fate::AnswerLost
        } else if is_put && rng.chance(delay) {
            Fate::Late
        } else {
            Fate::Done
        }
    }

    fn may_read(&self, operation: &'static str, path: &Path) -> Result<()> {
        let state = self.lock();
        self.0.clock.advance(state.faults.slow_ms);
        let unreadable = state.faults.unreadable;
        let is_bad =
            state.is_broken(path) || (unreadable > 0.0 && state.draw(operation, path, 0).chance(unreadable));
        let fails = self.0.power.is_off() || (is_bad && !self.0.clock.slept_too_often());
        if fails { Err(failed(path)) } else { Ok(()) }
    }

    /// Sorts a listing and replaces its modification times, so that listings of local files are the same in
    /// each run.
    fn sorted(
        &self,
        listed: BoxStream<'static, Result<ObjectMeta>>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let store = self.clone();
        let all = async move {
            let mut all: Vec<_> = listed.try_collect().await?;
            all.sort_by(|a: &ObjectMeta, b| a.location.cmp(&b.location));
            Ok::<_, Error>(stream::iter(all.into_iter().map(move |meta| Ok(store.dated(meta)))))
        };
        stream::once(all).try_flatten().boxed()
    }

    fn dated(&self, mut meta: ObjectMeta) -> ObjectMeta {
        let written_ms = self.lock().written_ms.get(&meta.location).copied().unwrap_or(0);
        meta.last_modified = (UNIX_EPOCH + Duration::from_millis(written_ms.unsigned_abs())).into();
        meta
    }
}

impl State {
    /// Random numbers that depend only on the seed, the epoch and the request.
    fn draw(&self, operation: &str, path: &Path, count: u64) -> Rng {
        let mut hasher = std::hash::DefaultHasher::new();
        (operation, path.as_ref(), count).hash(&mut hasher);
        Rng::new(mix(self.seed ^ mix(self.epoch)) ^ hasher.finish())
    }

    fn is_broken(&self, path: &Path) -> bool {
        self.faults.broken.as_ref().is_some_and(|broken| path.as_ref().starts_with(broken.as_str()))
    }
}

fn failed(path: &Path) -> Error {
    Error::Generic { store: "SimStore", source: format!("{path}: injected").into() }
}

impl std::fmt::Display for SimStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimStore")
    }
}

#[async_trait::async_trait]
impl ObjectStore for SimStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        match self.fate(path, true) {
            Fate::Done => self.put_now(path, payload, options).await,
            Fate::Refused => Err(failed(path)),
            Fate::AnswerLost => {
                self.put_now(path, payload, options).await?;
                Err(failed(path))
            }
            Fate::Late => {
                self.lock().late.push((path.clone(), payload, options));
                Err(failed(path))
            }
        }
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(Error::NotImplemented { operation: "multipart uploads".into(), implementer: self.to_string() })
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.may_read("get", path)?;
        let mut got = self.objects().get_opts(path, options).await?;
        got.meta = self.dated(got.meta);
        Ok(got)
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let each = move |path: Result<Path>| {
            let store = store.clone();
            async move {
                let path = path?;
                if store.fate(&path, false) != Fate::Done {
                    return Err(failed(&path));
                }
                store.objects().delete(&path).await?;
                Ok(path)
            }
        };
        paths.then(each).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        if let Err(error) = self.may_read("list", prefix.unwrap_or(&Path::default())) {
            return stream::once(async { Err(error) }).boxed();
        }
        self.sorted(self.objects().list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        if let Err(error) = self.may_read("list", prefix.unwrap_or(&Path::default())) {
            return stream::once(async { Err(error) }).boxed();
        }
        self.sorted(self.objects().list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.may_read("list", prefix.unwrap_or(&Path::default()))?;
        let mut listed = self.objects().list_with_delimiter(prefix).await?;
        listed.objects = listed.objects.into_iter().map(|meta| self.dated(meta)).collect();
        listed.objects.sort_by(|a, b| a.location.cmp(&b.location));
        listed.common_prefixes.sort();
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        if self.fate(to, false) != Fate::Done {
            return Err(failed(to));
        }
        self.objects().copy_opts(from, to, options).await
    }
}
