//! Injects faults into the target on schedule. A fault that this machine does not permit is skipped with a message.

use super::log::Log;
use super::target::Target;
use crate::drive::send::sender::Times;
use crate::drive::stop::Stop;
use crate::result::EventKind;
use crate::scenario::{FaultKind, FaultSpec, Scenario};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const SLOW_BYTES_PER_S: u64 = 1 << 20;

/// Starts a task for each fault of the scenario. The task reverts its fault after the fault's duration, or earlier if
/// the load or the run ends.
pub(crate) fn start(
    scenario: &Scenario,
    target: &Arc<Target>,
    times: Times,
    log: &Log,
    stop: &Stop,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for fault in scenario.fault.clone() {
        let (target, log, stop) = (Arc::clone(target), log.clone(), stop.clone());
        let compress = scenario.compress;
        let place = Place {
            cgroup: scenario.target.cgroup.clone(),
            data_dir: scenario.target.data_dir.clone(),
            namespace: scenario.target.namespace.clone(),
        };
        tasks.spawn(async move {
            let at = times.begin + Duration::from_secs_f64(fault.at.s() / compress);
            let back = at + Duration::from_secs_f64(fault.lasts.s() / compress);
            let back = times.end.map_or(back, |end| back.min(end));
            if !wait_until(at, &stop).await {
                return;
            }
            if let Err(why) = carry_out(&fault, back, &target, &place, &log, &stop).await {
                log.add(EventKind::Skipped, format!("{}: {why:#}", name(fault.kind)));
            }
        });
    }
    tasks
}

async fn wait_until(at: Instant, stop: &Stop) -> bool {
    tokio::select! {
        () = tokio::time::sleep_until(at.into()) => true,
        () = stop.wait() => false,
    }
}

struct Place {
    cgroup: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    namespace: Option<String>,
}

fn name(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Kill => "kill",
        FaultKind::Pause => "pause",
        FaultKind::SlowDisk => "slow disk",
        FaultKind::Cut => "network cut",
    }
}

async fn carry_out(
    fault: &FaultSpec,
    back: Instant,
    target: &Target,
    place: &Place,
    log: &Log,
    stop: &Stop,
) -> Result<()> {
    match fault.kind {
        FaultKind::Kill => {
            log.add(EventKind::Fault, target.kill().await?);
            wait_until(back, stop).await;
            target.restart(fault.restart.as_deref(), stop).await.context("cannot restart the target")?;
            log.add(EventKind::Fault, "restarted and ready");
        }
        FaultKind::Pause => {
            log.add(EventKind::Fault, target.pause()?);
            wait_until(back, stop).await;
            target.resume(log);
        }
        FaultKind::SlowDisk => {
            let disk = SlowDisk::begin(place)?;
            log.add(EventKind::Fault, "disk slowed to 1 MiB/s");
            wait_until(back, stop).await;
            disk.limit("max").context("cannot remove the limit: the disk stays slow")?;
            log.add(EventKind::Fault, "disk limit removed");
        }
        FaultKind::Cut => {
            let cut = Cut::begin(place)?;
            log.add(EventKind::Fault, "network cut");
            wait_until(back, stop).await;
            cut.restore().context("cannot restore the network: the network stays cut")?;
            log.add(EventKind::Fault, "network restored");
        }
    }
    Ok(())
}

/// Limits how fast a control group can write, until this value is dropped.
struct SlowDisk {
    file: PathBuf,
    device: String,
}

impl SlowDisk {
    fn begin(place: &Place) -> Result<Self> {
        let cgroup = place.cgroup.as_ref().context("skipped: the fault needs the key target.cgroup")?;
        let data_dir = place.data_dir.as_ref().context("skipped: the fault needs the key target.data_dir")?;
        let this = Self { file: cgroup.join("io.max"), device: device_of(data_dir)? };
        ensure!(this.file.exists(), "skipped: there is no file {}", this.file.display());
        this.limit(&SLOW_BYTES_PER_S.to_string())
            .with_context(|| format!("skipped: no permission to write {}", this.file.display()))?;
        Ok(this)
    }

    fn limit(&self, bytes_per_s: &str) -> Result<()> {
        Ok(std::fs::write(&self.file, format!("{} wbps={bytes_per_s}", self.device))?)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        self.limit("max").ok();
    }
}

/// Number of the disk that stores a directory, in the form `major:minor` that control groups expect.
fn device_of(path: &Path) -> Result<String> {
    use std::os::linux::fs::MetadataExt;
    let device = std::fs::metadata(path)
        .with_context(|| format!("cannot read metadata of {}", path.display()))?
        .st_dev();
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    whole_disk(Path::new("/sys/dev/block"), number)
}

/// Number of the whole disk if `number` is a partition, because control groups can limit only whole disks.
fn whole_disk(devices: &Path, number: String) -> Result<String> {
    let device = devices.join(&number);
    if !device.join("partition").exists() {
        return Ok(number);
    }
    let disk = std::fs::read_to_string(device.join("../dev"))
        .with_context(|| format!("cannot find the disk of {number}"))?;
    Ok(disk.trim().to_owned())
}

/// A network namespace whose loopback and links are down until this value is dropped.
struct Cut {
    namespace: String,
    /// Routes that the kernel removes when a link goes down, and that are restored afterwards.
    routes: String,
}

impl Cut {
    fn begin(place: &Place) -> Result<Self> {
        let namespace =
            place.namespace.clone().context("skipped: the fault needs the key target.namespace")?;
        let denied = "skipped: no permission to cut the network";
        let routes = ip(&namespace, &["route", "show"]).context(denied)?;
        let this = Self { namespace, routes };
        this.links("down").context(denied)?;
        Ok(this)
    }

    fn links(&self, state: &str) -> Result<()> {
        for line in ip(&self.namespace, &["-o", "link"])?.lines() {
            let name = line.split(": ").nth(1).unwrap_or_default();
            let link = name.split('@').next().unwrap_or_default();
            ip(&self.namespace, &["link", "set", link, state])?;
        }
        Ok(())
    }

    fn restore(&self) -> Result<()> {
        self.links("up")?;
        for route in self.routes.lines() {
            let words = route.split_whitespace();
            ip(&self.namespace, &["route", "replace"].into_iter().chain(words).collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.restore().ok();
    }
}

fn ip(namespace: &str, words: &[&str]) -> Result<String> {
    let said = Command::new("ip").args(["-n", namespace]).args(words).output().context("cannot run ip")?;
    ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr).trim());
    Ok(String::from_utf8_lossy(&said.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_limited_as_its_disk() {
        let folder = tempfile::tempdir().unwrap();
        let (devices, disk) = (folder.path().join("devices"), folder.path().join("vda"));
        std::fs::create_dir_all(disk.join("vda1")).unwrap();
        std::fs::create_dir(&devices).unwrap();
        std::fs::write(disk.join("dev"), "254:0\n").unwrap();
        std::fs::write(disk.join("vda1/partition"), "1\n").unwrap();
        std::os::unix::fs::symlink(&disk, devices.join("254:0")).unwrap();
        std::os::unix::fs::symlink(disk.join("vda1"), devices.join("254:1")).unwrap();
        for number in ["254:0", "254:1"] {
            assert_eq!(whole_disk(&devices, number.into()).unwrap(), "254:0");
        }
        assert_eq!(whole_disk(&devices, "0:31".into()).unwrap(), "0:31", "a file system without a disk");
    }
}
