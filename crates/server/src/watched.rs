//! Files that are reloaded when they change.
//!
//! If a file is invalid or unreadable, the earlier content stays in effect. The error is logged once, and a
//! metric shows it.

use parking_lot::{Mutex, RwLock};
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stdx::telemetry::{Counter, Registry};

/// Interval at which the files are read. Changes are found by comparing contents, because modification times
/// can miss a change.
pub(crate) const POLL_EVERY: Duration = Duration::from_millis(500);

pub(crate) trait Source {
    const NAME: &'static str;
    type Raw: PartialEq + Send;
    type Content;

    /// Reads the files. The error names the file that could not be read.
    fn read(&self) -> Result<Self::Raw, String>;

    /// Parses what [`Self::read`] returned. Errors name the file and the line. They are logged, so they must
    /// not contain secrets.
    fn parse(&self, raw: &Self::Raw) -> Result<Self::Content, String>;

    /// Warnings about valid files that are probably not as they are meant to be.
    fn warnings(&self, _: &Self::Raw) -> Vec<String> {
        Vec::new()
    }
}

pub(crate) struct Watched<S: Source> {
    source: Option<S>,
    current: RwLock<Arc<S::Content>>,
    last: Mutex<Option<Result<S::Raw, String>>>,
    /// Why the file could not be reloaded when it changed last, and when this was logged.
    error: Mutex<Option<(String, Instant)>>,
    /// False if the files could not be read or parsed, so that earlier content is in effect.
    is_current: Arc<AtomicBool>,
    reloads: [Counter; 2],
}

/// The content is left out, because it may be secret.
impl<S: Source> std::fmt::Debug for Watched<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(S::NAME)
    }
}

impl<S: Source> Watched<S> {
    /// `content` is in effect until the files are read for the first time.
    pub(crate) fn new(source: Option<S>, content: S::Content, r: &Registry) -> Self {
        let reloads = |result| {
            let help = "Reloads of a changed file, by result.";
            r.counter_with("floodmark_file_reloads_total", help, &[("file", S::NAME), ("result", result)])
        };
        let watched = Self {
            source,
            current: RwLock::new(Arc::new(content)),
            last: Mutex::default(),
            error: Mutex::default(),
            is_current: Arc::new(AtomicBool::new(true)),
            reloads: ["ok", "failed"].map(reloads),
        };
        let is_current = Arc::clone(&watched.is_current);
        let help = "1 if the current content of the file is in effect, 0 if it is invalid or unreadable.";
        r.gauge_fn("floodmark_file_current", help, &[("file", S::NAME)], move || {
            f64::from(u8::from(is_current.load(Ordering::Relaxed)))
        });
        watched
    }

    /// Returns the content in effect. A request should call this only once, so that it does not see two
    /// versions.
    pub(crate) fn current(&self) -> Arc<S::Content> {
        Arc::clone(&self.current.read())
    }

    pub(crate) const fn has_source(&self) -> bool {
        self.source.is_some()
    }

    /// Logs again why the earlier content is still in effect, because someone asked for a reload. The change itself may have been logged just
    /// now.
    pub(crate) fn remind(&self) {
        if let Some((error, logged)) = &*self.error.lock()
            && logged.elapsed() > 2 * POLL_EVERY
        {
            tracing::error!(file = S::NAME, %error, "cannot reload a file; its earlier content stays in effect");
        }
    }

    pub(crate) fn reload(&self) {
        let Some(source) = &self.source else { return };
        let mut last = self.last.lock();
        let raw = source.read();
        if last.as_ref() == Some(&raw) {
            return;
        }
        let is_first = last.is_none();
        let content = raw.as_ref().map_err(Clone::clone).and_then(|raw| source.parse(raw));
        let warnings = match (&raw, &content) {
            // those of the first content are among the warnings about settings
            (Ok(raw), Ok(_)) if !is_first => source.warnings(raw),
            _ => Vec::new(),
        };
        *last = Some(raw);
        self.is_current.store(content.is_ok(), Ordering::Relaxed);
        *self.error.lock() = content.as_ref().err().map(|error| (error.clone(), Instant::now()));
        match content {
            Ok(content) => {
                *self.current.write() = Arc::new(content);
                if !is_first {
                    self.reloads[0].inc();
                    tracing::info!(file = S::NAME, "file reloaded");
                    for warning in warnings {
                        tracing::warn!("{warning}");
                    }
                }
            }
            Err(error) => {
                self.reloads[1].inc();
                tracing::error!(file = S::NAME, %error, "cannot reload a file; its earlier content stays in effect");
            }
        }
    }
}

/// Fails for anything but a regular file: to open a pipe would wait for its writer, and no other file would be read again meanwhile.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<String> {
    let found = fs::metadata(path)?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let too_large = |bytes: u64| {
        let reason = format!("it has {} KiB, the limit is {} KiB", bytes >> 10, bytes_max >> 10);
        io::Error::new(io::ErrorKind::FileTooLarge, reason)
    };
    if found.len() > bytes_max {
        return Err(too_large(found.len()));
    }
    // it may grow while it is read
    let (file, mut bytes) = (fs::File::open(path)?, Vec::new());
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(too_large(bytes.len() as u64));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
