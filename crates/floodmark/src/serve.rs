//! `floodmark serve`: runs a node until SIGTERM or SIGINT.

use crate::allocator::{self, Jemalloc};
use crate::cli::ServeArgs;
use crate::output;
use anyhow::Context;
use server::settings::{AdminListen, GraphiteSettings, TenantAddress};
use server::{GraphiteSockets, Node, Settings, Sockets, TenantSockets};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use stdx::clock::SystemClock;
use tokio::net::{TcpListener, TcpSocket, UdpSocket};
use tokio::signal::unix::{SignalKind, signal};

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    log_to_stderr();
    server::raise_files().context("cannot raise the limit of open files")?;
    let settings = Settings::resolve(&args.given()?)?;
    if settings.heap_profile_percent.is_some() {
        allocator::sample_allocations()
            .context("cannot collect heap profiles (setting heap_profile_percent)")?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .on_thread_start(server::prefer_short_slices)
        .build()
        .context("cannot start the runtime")?;
    runtime.block_on(serve(settings))
}

async fn serve(settings: Settings) -> anyhow::Result<()> {
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
    if let Some(warning) = settings.warning_of_access() {
        tracing::warn!("{warning}");
    }
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
    // ports are opened first, so that a port in use does not leave a new data directory behind
    let main = listen(settings.http)?;
    let admin = settings.admin_listen.address().map(listen).transpose();
    let admin = admin.context("cannot serve administration (setting admin_listen)")?;
    let grpc = settings.otlp_grpc.address.map(listen).transpose();
    let grpc = grpc.context("cannot serve OpenTelemetry's gRPC (setting otlp_grpc)")?;
    let graphite = listen_for_graphite(&settings.graphite)?;
    let statsd = settings.statsd.address.map(|address| receive(address, "statsd")).transpose()?;
    let (is_encrypted, administration) = (settings.is_encrypted(), settings.admin_listen);
    let node = Node::start_alone(settings, Arc::new(SystemClock), Arc::new(Jemalloc))?;
    match (&admin, administration) {
        (Some(admin), _) => tracing::info!(address = %admin.local_addr()?, "listening for administration"),
        (None, AdminListen::Nowhere) => tracing::info!("administration is not served"),
        (None, _) => {}
    }
    if let Some(socket) = &grpc {
        tracing::info!(grpc = %socket.local_addr()?, "listening for OpenTelemetry's gRPC");
    }
    log_graphite(&graphite)?;
    if let Some(socket) = &statsd {
        tracing::info!(statsd = %socket.local_addr()?, "listening for statsd's datagrams");
    }
    if is_encrypted {
        tracing::info!("connections are encrypted with TLS");
    }
    let address = main.local_addr()?;
    tracing::info!(%address, "listening");
    let hung_up = node.clone();
    let stop = async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => return tracing::info!("SIGTERM: finishing requests in progress"),
                _ = interrupt.recv() => return tracing::info!("SIGINT: finishing requests in progress"),
                _ = hangup.recv() => {
                    tracing::info!("SIGHUP: reloading overrides, credentials, certificates and rules");
                    let node = hung_up.clone();
                    tokio::task::spawn_blocking(move || node.reload_on_request());
                }
            }
        }
    };
    let monitoring = tokio::spawn(node.monitor_itself(address.port()));
    server::serve(node.clone(), Sockets { main, admin, grpc, graphite, statsd }, stop).await;
    monitoring.abort();
    tokio::task::spawn_blocking(move || node.stop()).await.context("cannot stop the node")?;
    tracing::info!("stopped");
    Ok(())
}

fn listen_for_graphite(settings: &GraphiteSettings) -> anyhow::Result<GraphiteSockets> {
    let open = |address: Option<SocketAddr>, setting: &str| {
        let socket = address.map(listen).transpose();
        socket.with_context(|| format!("cannot serve one of Graphite's protocols (setting {setting})"))
    };
    let plaintext = open(settings.plaintext, "graphite")?;
    let datagrams = match &plaintext {
        Some(socket) if settings.has_udp => Some(receive(socket.local_addr()?, "graphite, graphite_udp")?),
        _ => None,
    };
    let pickle = open(settings.pickle, "graphite_pickle")?;
    let protobuf = open(settings.protobuf, "graphite_protobuf")?;
    let encrypted = open(settings.encrypted, "graphite_tls")?;
    let tenant_sockets = |address: &TenantAddress| {
        let context = || format!("cannot serve {address} (setting graphite_tenants)");
        let socket = listen(address.address).with_context(context)?;
        let datagrams = match settings.has_udp && !address.is_pickle {
            true => Some(receive(socket.local_addr()?, "graphite_tenants, graphite_udp")?),
            false => None,
        };
        anyhow::Ok(TenantSockets { address: address.clone(), socket, datagrams })
    };
    let of_tenants = settings.of_tenants.iter().map(tenant_sockets).collect::<Result<_, _>>()?;
    Ok(GraphiteSockets { plaintext, datagrams, pickle, protobuf, encrypted, of_tenants })
}

fn log_graphite(sockets: &GraphiteSockets) -> anyhow::Result<()> {
    if let Some(socket) = &sockets.plaintext {
        let has_udp = sockets.datagrams.is_some();
        tracing::info!(graphite = %socket.local_addr()?, udp = has_udp, "listening for Graphite's plaintext protocol");
    }
    if let Some(socket) = &sockets.pickle {
        tracing::info!(pickle = %socket.local_addr()?, "listening for Graphite's pickle protocol");
    }
    if let Some(socket) = &sockets.protobuf {
        tracing::info!(protobuf = %socket.local_addr()?, "listening for go-carbon's protobuf messages");
    }
    if let Some(socket) = &sockets.encrypted {
        tracing::info!(graphite_tls = %socket.local_addr()?, "listening for Graphite's plaintext protocol over TLS");
    }
    for TenantSockets { address: of, socket, datagrams } in &sockets.of_tenants {
        let (tenant, has_udp, address) = (of.tenant.as_str(), datagrams.is_some(), socket.local_addr()?);
        match of.is_pickle {
            true => {
                tracing::info!(%address, tenant, "listening for a tenant's points in Graphite's pickle protocol")
            }
            false => {
                tracing::info!(%address, tenant, udp = has_udp, "listening for a tenant's points in Graphite's plaintext protocol")
            }
        }
    }
    Ok(())
}

/// Opens a port for datagrams.
fn receive(address: SocketAddr, settings: &str) -> anyhow::Result<UdpSocket> {
    let opened = std::net::UdpSocket::bind(address).and_then(|socket| {
        socket.set_nonblocking(true)?;
        UdpSocket::from_std(socket)
    });
    opened.with_context(|| format!("cannot receive datagrams at {address} (settings {settings})"))
}

/// Up to this many connections can wait to be accepted, or fewer if `net.core.somaxconn` is lower. If there
/// are more, a client's system tries again after a second.
const BACKLOG: u32 = 4096;

/// Opens a port. If the machine has no IPv6, a request for all addresses is served on all IPv4 addresses.
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

/// The default log filter. Without it, libraries would log each of their steps, the Delta kernel would log kilobytes for each
/// error, and the library for HTTP/2 what strangers send.
const LOGGED: &str = "info,delta_kernel=off,delta_kernel_default_engine=off,object_store=warn,h2=off";

/// The variable `RUST_LOG` replaces the default filter.
fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(LOGGED));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output::colours_stderr())
        // otherwise, a line that cannot be written is reported to stderr, which panics: a full disk would end threads
        .log_internal_errors(false)
        .init();
}
