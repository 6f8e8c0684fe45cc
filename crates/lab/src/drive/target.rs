//! Starts, watches, kills and stops the target's process.

mod output;
pub(crate) mod sandbox;

use self::output::Output;
use crate::drive::addresses::endpoint;
use crate::drive::log::Log;
use crate::drive::stop::Stop;
use crate::http::{Access, Client, Endpoint};
use crate::observe::procfs::Process;
use crate::result::EventKind;
use crate::scenario::TargetSpec;
use crate::socket::Killed;
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use hyper::{HeaderMap, Method};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

const READY_WITHIN: Duration = Duration::from_secs(120);

const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// A target that has not ended this long after SIGTERM is killed.
const END_WITHIN: Duration = Duration::from_secs(15);

/// How long a target may take to disappear after SIGKILL. The kernel needs time to free its memory.
const KILLED_WITHIN: Duration = Duration::from_secs(10);

/// The target's process, if the run started it or knows its process id.
#[derive(Debug)]
pub struct Target {
    /// Command that starts the target. If there is none, the target belongs to the user, and the run never stops it.
    command: Option<String>,
    ready: Ready,
    killed: Killed,
    state: Mutex<State>,
}

/// Condition under which a started target counts as ready for the load.
#[derive(Debug)]
enum Ready {
    /// The target is ready when it answers a request to this address with success.
    Answers(Endpoint),
    /// The target is ready when all its write addresses accept connections.
    Listens(Vec<Endpoint>),
}

impl Ready {
    async fn of(spec: &TargetSpec, access: &Access) -> Result<Self> {
        if let Some(url) = &spec.ready {
            return Ok(Self::Answers(Endpoint::resolve(url, access).await?));
        }
        let mut endpoints = Vec::new();
        for url in spec.write.all() {
            // all tenants write to the same process, so the address of the first tenant is sufficient
            let url = url.replace("{tenant}", &format!("{}0", spec.tenant_prefix)).replace("{index}", "0");
            endpoints.push(endpoint(spec.protocol, &url, access).await?);
        }
        // nothing shows that a target listens for datagrams
        endpoints.retain(|endpoint| !endpoint.is_datagrams());
        Ok(Self::Listens(endpoints))
    }

    async fn is_now(&self) -> bool {
        let client = |to: &Endpoint| Client::new(to.clone(), HeaderMap::new(), ANSWER_WITHIN);
        match self {
            Self::Answers(to) => {
                let answer = client(to).send(Method::GET, to.path(), Bytes::new()).await;
                answer.is_ok_and(|answer| answer.status.is_success())
            }
            Self::Listens(all) => {
                for to in all {
                    if client(to).connect().await.is_err() {
                        return false;
                    }
                }
                true
            }
        }
    }
}

impl std::fmt::Display for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Answers(to) => write!(f, "{to:?} did not answer with success"),
            Self::Listens(all) => write!(f, "no process listened at {all:?}"),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    child: Option<Child>,
    output: Option<Arc<Output>>,
    pid: Option<u32>,
    /// True if the process was replaced and the new process id was not reported to the observation yet.
    changed: bool,
    paused: bool,
    down: bool,
    /// How often the target ended without being told to.
    crashes: u64,
}

impl Target {
    /// Starts the target, if `spec` has a command, and waits until it is ready.
    pub async fn start(spec: &TargetSpec, access: &Access, stop: &Stop) -> Result<Self> {
        let ready = Ready::of(spec, access).await?;
        if let (Some(pid), None) = (spec.pid, &spec.start) {
            let found = Process::Id(pid).started_ticks().is_some();
            ensure!(found, "there is no process {pid} on this machine");
        }
        let state = State { pid: spec.pid, ..State::default() };
        let (command, killed) = (spec.start.clone(), Killed::default());
        let this = Self { command, ready, killed, state: Mutex::new(state) };
        if let Some(command) = &this.command {
            let taken = matches!(this.ready, Ready::Listens(_)) && this.ready.is_now().await;
            ensure!(
                !taken,
                "another process already listens at {}: write {{port}}, a free port, in target.start and target.write, or set \
                 target.ready to a URL that only the started target answers",
                spec.write.all().join(", ")
            );
            this.launch(command)?;
            this.wait_ready(stop)
                .await
                .with_context(|| format!("cannot start the target with {command:?}"))?;
        }
        Ok(this)
    }

    /// Tells `killed` when the target is killed.
    pub(crate) fn telling(mut self, killed: Killed) -> Self {
        self.killed = killed;
        self
    }

    fn launch(&self, command: &str) -> Result<()> {
        let mut shell = Command::new("sh");
        // in a process group of its own, Ctrl-C in the terminal does not reach the target
        shell.args(["-c", &format!("exec {command}")]).stdin(Stdio::null()).process_group(0);
        let mut output = None;
        if self.command.is_some() {
            let (reader, writer) = std::io::pipe().context("cannot create a pipe for the target's output")?;
            shell.stdout(writer.try_clone()?).stderr(writer);
            output = Some(Arc::new(
                Output::read(reader).context("cannot start a thread for the target's output")?,
            ));
        } else {
            // this target keeps running after the run, and would fail when it writes to a closed pipe
            shell.stdout(Stdio::null());
        }
        let child = shell.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let mut state = self.state();
        state.pid = Some(child.id());
        (state.child, state.output) = (Some(child), output);
        (state.changed, state.down) = (true, false);
        Ok(())
    }

    async fn wait_ready(&self, stop: &Stop) -> Result<()> {
        let begin = Instant::now();
        loop {
            let ready = self.ready.is_now().await;
            // checked before `ready`, because another process may have the target's port and answer in its place
            if let Some(status) = self.ended()? {
                bail!("the target ended with {status}{}", self.last_lines().await);
            }
            if ready {
                return Ok(());
            }
            ensure!(!stop.is_set(), "stopped");
            ensure!(begin.elapsed() < READY_WITHIN, "{} within {READY_WITHIN:?}", self.ready);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Exit status of the started command, if it ended unexpectedly.
    fn ended(&self) -> Result<Option<ExitStatus>> {
        let status = match &mut self.state().child {
            Some(child) => child.try_wait()?,
            None => None,
        };
        Ok(status.filter(|status| !self.started_by_service_manager(*status)))
    }

    /// Formats the last lines that the target printed, to be appended to an error message.
    async fn last_lines(&self) -> String {
        let output = self.state().output.clone();
        let lines = match output {
            Some(output) => output.last_lines().await,
            None => return String::new(),
        };
        if lines.is_empty() {
            ", and printed nothing".to_owned()
        } else {
            format!("; its last lines: {}", lines.join(" | "))
        }
    }

    pub fn pid(&self) -> Option<u32> {
        let mut state = self.state();
        state.changed = false;
        state.pid
    }

    /// Process id of the target if it has changed since the last call.
    pub(crate) fn changed_pid(&self) -> Option<u32> {
        let mut state = self.state();
        std::mem::take(&mut state.changed).then_some(state.pid)?
    }

    pub(crate) fn crashes(&self) -> u64 {
        self.state().crashes
    }

    pub(crate) async fn check_running(&self, log: &Log) {
        let Some(how) = self.crash(log) else { return };
        log.add(EventKind::Target, format!("the target ended by itself: {how}{}", self.last_lines().await));
    }

    /// Notices a target that has ended by itself since the last call, and says how.
    fn crash(&self, log: &Log) -> Option<String> {
        let mut state = self.state();
        if state.down {
            return None;
        }
        let pid = state.pid;
        let how = match (&mut state.child, pid) {
            (Some(child), _) => match child.try_wait().ok().flatten()? {
                status if self.started_by_service_manager(status) => {
                    (state.down, state.pid, state.child) = (true, None, None);
                    log.add(
                        EventKind::Target,
                        "the command that started the target ended, so the target's process id is not known",
                    );
                    return None;
                }
                status => status.to_string(),
            },
            (None, Some(pid)) if Process::Id(pid).started_ticks().is_none() => "gone".to_owned(),
            (None, _) => return None,
        };
        state.crashes += 1;
        (state.down, state.pid) = (true, None);
        Some(how)
    }

    /// True if `status` comes from a restart command that ended after it told a service manager to start the target.
    fn started_by_service_manager(&self, status: ExitStatus) -> bool {
        self.command.is_none() && status.success()
    }

    /// Kills the process, and waits until its ports and locks are free. Returns what was done, for the log.
    pub(crate) async fn kill(&self) -> Result<String> {
        self.killed.now();
        let pid = self.signal(Signal::KILL)?;
        let begin = Instant::now();
        {
            let mut state = self.state();
            (state.down, state.pid) = (true, None);
            if let Some(child) = &mut state.child {
                child.wait().ok();
            }
        }
        while !Process::Id(pid).is_gone() && begin.elapsed() < KILLED_WITHIN {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(format!("kill -9 {pid}"))
    }

    /// Starts the target again after [`Self::kill`], either with the command `restart` or with the command that first
    /// started it.
    pub(crate) async fn restart(&self, restart: Option<&str>, stop: &Stop) -> Result<()> {
        let command =
            restart.or(self.command.as_deref()).context("there is no command to restart the target")?;
        self.launch(command)?;
        self.wait_ready(stop).await
    }

    pub(crate) fn pause(&self) -> Result<String> {
        let pid = self.signal(Signal::STOP)?;
        self.state().paused = true;
        Ok(format!("paused {pid}"))
    }

    pub(crate) fn resume(&self, log: &Log) {
        if !self.state().paused {
            return;
        }
        self.state().paused = false;
        match self.signal(Signal::CONT) {
            Ok(pid) => log.add(EventKind::Fault, format!("resumed {pid}")),
            Err(why) => log.add(EventKind::Target, format!("cannot resume the target: {why:#}")),
        }
    }

    /// Stops the processes that the run started. A target that was already running before keeps running.
    pub async fn end(&self) {
        let begin = Instant::now();
        if self.command.is_none() || self.state().child.is_none() {
            return;
        }
        self.signal(Signal::TERM).ok();
        while begin.elapsed() < END_WITHIN {
            let ended = self.state().child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            if ended {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn signal(&self, signal: Signal) -> Result<u32> {
        let pid = self.state().pid.context("the target's process is not known")?;
        let raw =
            i32::try_from(pid).ok().and_then(Pid::from_raw).context("the process id is out of range")?;
        kill_process(raw, signal).with_context(|| format!("cannot signal process {pid}"))?;
        Ok(pid)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("BUG: a task panicked while it held the target's state")
    }
}

impl Drop for Target {
    /// Even if the run failed, no started process is left behind, and a paused target is resumed.
    fn drop(&mut self) {
        if self.state().paused {
            self.signal(Signal::CONT).ok();
        }
        if let (Some(child), true) = (&mut self.state().child, self.command.is_some()) {
            child.kill().ok();
            child.wait().ok();
        }
    }
}
