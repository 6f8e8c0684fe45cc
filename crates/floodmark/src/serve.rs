//! `floodmark serve`: a node until SIGTERM or SIGINT.

use crate::cli::ServeArgs;
use anyhow::Context;
use server::{Flags, Node, Settings};
use std::io::IsTerminal;
use std::sync::Arc;
use stdx::clock::SystemClock;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) fn run(args: ServeArgs) -> anyhow::Result<()> {
    log_to_stderr();
    let ServeArgs { data_dir, http, memory, durability, tables, seal_after, retention, config } = args;
    let flags = Flags { data_dir, http, memory, durability, tables, seal_after, retention, config };
    let settings = Settings::resolve(flags)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(serve(settings))
}

async fn serve(settings: Settings) -> anyhow::Result<()> {
    let http = settings.http;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        data_dir = %settings.data_dir.display(),
        memory = %settings.budget,
        "starting"
    );
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let node = Node::start(settings, Arc::new(SystemClock))?;
    let listener = TcpListener::bind(http).await.with_context(|| format!("listen on {http}"))?;
    tracing::info!(address = %listener.local_addr()?, "listening");
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: finishing what was taken in"),
            _ = interrupt.recv() => tracing::info!("SIGINT: finishing what was taken in"),
        }
    };
    server::http::serve(node.clone(), listener, stop).await;
    tokio::task::spawn_blocking(move || node.stop()).await.context("stop the node")?;
    tracing::info!("stopped");
    Ok(())
}

/// What is logged by default: libraries tell about each of their steps otherwise.
const LOGGED: &str = "info,delta_kernel=warn,delta_kernel_default_engine=warn,object_store=warn";

/// Logs to stderr: coloured in a terminal, plain elsewhere; `RUST_LOG` chooses what.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(LOGGED));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
