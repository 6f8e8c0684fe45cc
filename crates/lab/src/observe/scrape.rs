//! Scrapes the target's own metrics in the background.

use super::Look;
use super::metrics::{COUNTERS, ScrapedFigures, recognise, unit};
use crate::http::{Access, Client, Endpoint, headers};
use anyhow::Result;
use bytes::Bytes;
use hyper::Method;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Minimum time between the starts of two scrapes. A slow scrape also delays the next one.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time limit of a scrape. It is long, because an overloaded target answers slowly.
const TIMEOUT: Duration = Duration::from_secs(10);

/// If the target does not answer scrapes for this long, an event says so.
const SILENT: Duration = Duration::from_secs(5);

/// Two start times of a process may differ by this much, because some targets compute the time anew for each scrape.
const START_TOLERANCE_S: f64 = 2.0;

#[derive(Debug, Default)]
struct Shared {
    latest: Option<(Instant, ScrapedFigures)>,
    failed: Option<String>,
}

#[derive(Debug)]
pub(super) struct Scrape {
    shared: Arc<Mutex<Shared>>,
    task: JoinHandle<()>,
    kind: Option<String>,
    before: Option<(Instant, BTreeMap<&'static str, f64>)>,
    rates: BTreeMap<&'static str, f64>,
    started_s: Option<f64>,
    heard: Instant,
    silent: bool,
}

impl Drop for Scrape {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Scrape {
    pub(super) async fn start(url: &str, pairs: &[(String, String)], access: &Access) -> Result<Self> {
        let endpoint = Endpoint::resolve(url, access).await?;
        let path = endpoint.path().to_owned();
        let mut client = Client::new(endpoint, headers(pairs)?, TIMEOUT);
        let shared: Arc<Mutex<Shared>> = Arc::default();
        let kept = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            loop {
                let begun = Instant::now();
                let answer = client.send(Method::GET, &path, Bytes::new()).await;
                let found = match answer {
                    Ok(answer) if answer.status.is_success() => Ok(answer.body),
                    Ok(answer) => Err(format!("status {}", answer.status.as_u16())),
                    Err(failure) => Err(failure.to_string()),
                };
                // some systems expose megabytes of metrics, which would block other tasks while they are parsed
                let found = match found {
                    Ok(body) => {
                        tokio::task::spawn_blocking(move || recognise(&String::from_utf8_lossy(&body)))
                            .await
                            .map_err(|_| "the parser of the metrics panicked".to_owned())
                    }
                    Err(why) => Err(why),
                };
                keep(&kept, found);
                tokio::time::sleep(INTERVAL.saturating_sub(begun.elapsed())).await;
            }
        });
        Ok(Self {
            shared,
            task,
            kind: None,
            before: None,
            rates: BTreeMap::new(),
            started_s: None,
            heard: Instant::now(),
            silent: false,
        })
    }

    pub(super) fn look(&mut self, look: &mut Look) {
        let (latest, failed) = {
            let mut shared = self.shared.lock().expect("BUG: the scraper panicked");
            (shared.latest.take(), shared.failed.take())
        };
        match latest {
            Some((at, own)) => self.heard(at, own, look),
            None if self.heard.elapsed() >= SILENT && !self.silent => {
                self.silent = true;
                let why = failed.map_or_else(String::new, |why| format!(": {why}"));
                look.event(format!("the target's metrics can no longer be scraped{why}"));
            }
            None => {}
        }
    }

    fn heard(&mut self, at: Instant, own: ScrapedFigures, look: &mut Look) {
        self.heard = Instant::now();
        if std::mem::take(&mut self.silent) {
            look.event("the target's metrics can be scraped again");
        }
        let name = own.kind.name();
        self.kind =
            Some(own.version.as_ref().map_or_else(|| name.to_owned(), |version| format!("{name} {version}")));
        self.restarted(own.started_s, look);
        let before = self.before.take();
        for (&name, &value) in &own.values {
            if !COUNTERS.contains(&name) {
                look.set(name, unit(name), value);
                continue;
            }
            if let Some((then, counts)) = &before
                && let Some(count) = counts.get(name)
            {
                let seconds = (at - *then).as_secs_f64().max(1e-3);
                let grown = if value >= *count { value - count } else { value };
                self.rates.insert(name, grown / seconds);
            }
            if let Some(rate) = self.rates.get(name) {
                look.set(name, unit(name), *rate);
            }
        }
        self.before = Some((at, own.values));
    }

    fn restarted(&mut self, started_s: Option<f64>, look: &mut Look) {
        let Some(now_s) = started_s else { return };
        if let Some(before_s) = self.started_s.replace(now_s)
            && now_s - before_s > START_TOLERANCE_S
        {
            look.event("the target's metrics report a newer start time: the target was restarted");
            look.restarts = look.restarts.max(1);
        }
    }

    /// Called when the run itself restarts the target, so that the restart is not reported as an event.
    pub(super) fn expect_restart(&mut self) {
        self.started_s = None;
    }

    pub(super) fn kind(&self) -> Option<String> {
        self.kind.clone()
    }
}

fn keep(shared: &Mutex<Shared>, found: Result<ScrapedFigures, String>) {
    let mut shared = shared.lock().expect("BUG: the observation panicked");
    match found {
        Ok(own) => (shared.latest, shared.failed) = (Some((Instant::now(), own)), None),
        Err(why) => shared.failed = Some(why),
    }
}
