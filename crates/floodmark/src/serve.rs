//! `floodmark serve`: a node until SIGTERM or SIGINT.

use crate::cli::ServeArgs;
use crate::output;
use anyhow::Context;
use server::{Node, Settings};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use stdx::clock::SystemClock;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    log_to_stderr();
    server::raise_files().context("cannot raise the limit of open files")?;
    let settings = Settings::resolve(&args.given()?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(settings))
}

async fn serve(settings: Settings) -> anyhow::Result<()> {
    let http = settings.http;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        data_dir = %settings.data_dir.display(),
        memory = %settings.budget,
        files = settings.files.most,
        connections = settings.connections_max,
        "starting"
    );
    for warning in &settings.warnings {
        tracing::warn!("{warning}");
    }
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    // before the node makes its directory: an address that is taken leaves nothing behind
    let listener = listen(http)?;
    let node = Node::start_alone(settings, Arc::new(SystemClock))?;
    let address = listener.local_addr()?;
    if !address.ip().is_loopback() {
        tracing::warn!(
            %address,
            "reachable from other machines, and there is no authentication: whoever reaches this address can read and \
             write everything; listen on 127.0.0.1 and put a proxy in front of it, or keep others away by a firewall"
        );
    }
    tracing::info!(%address, "listening");
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: finishing what was taken in"),
            _ = interrupt.recv() => tracing::info!("SIGINT: finishing what was taken in"),
        }
    };
    server::http::serve(node.clone(), listener, stop).await;
    tokio::task::spawn_blocking(move || node.stop()).await.context("cannot stop the node")?;
    tracing::info!("stopped");
    Ok(())
}

/// Connections that the kernel keeps until they are accepted; it may have a lower limit (`net.core.somaxconn`). Where they are
/// too many, the kernel ignores one, and its client tries again after a second.
const BACKLOG: u32 = 4096;

/// Listens. Where this machine has no IPv6, "all addresses" are those of IPv4.
fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = match bind(address) {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && error.kind() != ErrorKind::AddrInUse => {
            bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))
        }
        bound => bound,
    };
    bound.with_context(|| format!("cannot listen on {address}"))
}

fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Default log filter. Libraries log each of their steps otherwise; the kernel of Delta tables also repeats, in kilobytes,
/// each error that it returns to us and that is logged once.
const LOGGED: &str = "info,delta_kernel=off,delta_kernel_default_engine=off,object_store=warn";

/// Logs to stderr, coloured in a terminal; `RUST_LOG` chooses what.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(LOGGED));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output::colours_stderr())
        .init();
}
