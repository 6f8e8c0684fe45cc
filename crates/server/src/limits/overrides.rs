//! Settings of tenants in effect, which a file may change at run time.

use crate::settings::{OverridesFile, Settings, Tenants};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use stdx::telemetry::{Counter, Registry};

/// Interval at which the file is read. Comparing its text leaves no change unnoticed, as times of modification may.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// Settings of tenants in effect.
#[derive(Debug)]
pub(crate) struct Overrides {
    file: Option<OverridesFile>,
    current: RwLock<Arc<Tenants>>,
    /// Result of the last reading of the file: its text, or the error.
    last: Mutex<Option<Result<String, String>>>,
    /// True if the last reading of the file was successful.
    is_current: Arc<AtomicBool>,
    reloads: [Counter; 2],
}

impl Overrides {
    pub(crate) fn new(settings: &Settings, r: &Registry) -> Self {
        let reloads = |result| {
            let help = "Changes of the overrides file, by whether it was valid.";
            r.counter_with("floodmark_overrides_reloads_total", help, &[("result", result)])
        };
        let overrides = Self {
            file: settings.overrides.clone(),
            current: RwLock::new(Arc::new(settings.tenants.clone())),
            last: Mutex::default(),
            is_current: Arc::new(AtomicBool::new(true)),
            reloads: ["ok", "failed"].map(reloads),
        };
        let is_current = Arc::clone(&overrides.is_current);
        let help = "1 if the overrides file is in effect as it is now, 0 if it is invalid or unreadable.";
        r.gauge_fn("floodmark_overrides_current", help, &[], move || {
            f64::from(u8::from(is_current.load(Ordering::Relaxed)))
        });
        overrides
    }

    /// Settings of all tenants. A request should use one reading of them.
    pub(crate) fn current(&self) -> Arc<Tenants> {
        Arc::clone(&self.current.read())
    }

    /// Reads the file if there is one. A file that is invalid or cannot be read changes nothing, and is logged once.
    pub(crate) fn reload(&self) {
        let Some(file) = &self.file else { return };
        let mut last = self.last.lock();
        let text = file.text().map_err(|error| error.to_string());
        if last.as_ref() == Some(&text) {
            return;
        }
        let is_first = last.is_none();
        let tenants = text.clone().and_then(|text| file.tenants(&text).map_err(|error| error.to_string()));
        *last = Some(text);
        self.is_current.store(tenants.is_ok(), Ordering::Relaxed);
        match tenants {
            Ok(tenants) => {
                *self.current.write() = Arc::new(tenants);
                if !is_first {
                    self.reloads[0].inc();
                    tracing::info!(file = %file.path.display(), "overrides reloaded");
                }
            }
            Err(error) => {
                self.reloads[1].inc();
                tracing::error!(%error, "overrides not reloaded; the earlier ones stay in effect");
            }
        }
    }

    /// True if there is a file to watch.
    pub(crate) const fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Reloads the file whenever it changes, until `stopping`.
    pub(crate) fn watch(&self, stopping: &AtomicBool) {
        while !stopping.load(Ordering::Acquire) {
            self.reload();
            thread::park_timeout(POLL_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Given;
    use model::TenantId;

    #[test]
    fn an_invalid_file_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("overrides.toml");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write("samples_per_second = 5\n[class.team]\ntenants = [\"team-*\"]\nsamples_per_second = 6\n");
        let given = Given::default().flag("samples_per_second", "4").flag("overrides", &path);
        let settings = Settings::resolve(&given).unwrap();
        let registry = Registry::new();
        let overrides = Overrides::new(&settings, &registry);
        let limit = |name: &str| overrides.current().of(&TenantId::parse(name).unwrap()).samples_per_second;
        let check = |expected: [usize; 3], valid: bool| {
            overrides.reload();
            assert_eq!([limit("a"), limit("team-a"), limit("b")], expected.map(Some));
            let text = registry.render();
            assert!(text.contains(&format!("floodmark_overrides_current {}\n", u8::from(valid))), "{text}");
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
        assert!(registry.render().contains("floodmark_overrides_reloads_total{result=\"failed\"} 5\n"));
    }
}
