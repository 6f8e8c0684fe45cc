//! Serves a node on its sockets, with or without TLS, until it is stopped.
//!
//! ```text
//!   main socket  ─▶ Listener ─▶ http::router        everything, or everything but administration
//!   admin socket ─▶ Listener ─▶ http::admin_router  administration, if it has an address of its own
//!   grpc         ─▶ Listener ─▶ http::grpc_router   OpenTelemetry's metrics over gRPC, if it has an address
//!   graphite     ─▶ Lines ─▶ write_path             Graphite's protocols, if they have addresses
//!   statsd       ─▶ Statsd ─▶ write_path            statsd's datagrams, if they have an address
//! ```

use crate::http::{self, App};
use crate::listen::lines::Lines;
use crate::listen::statsd::Statsd;
use crate::listen::{GraphiteSockets, HandshakeContext, Handshakes, Listener, PendingHandshakes};
use crate::node::Node;
use crate::settings::is_reachable;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{oneshot, watch};

#[derive(Debug)]
pub struct Sockets {
    pub main: TcpListener,
    pub admin: Option<TcpListener>,
    /// For OpenTelemetry's protocol over gRPC.
    pub grpc: Option<TcpListener>,
    pub graphite: GraphiteSockets,
    pub statsd: Option<UdpSocket>,
}

/// Limit on connections to the administration listener. They are counted separately, so that operators can
/// connect even if the main listener is full.
const ADMIN_CONNECTIONS_MAX: usize = 16;

const GRPC_CONNECTIONS: &str = "floodmark_grpc_connections";
const GRPC_HELP: &str = "Open connections of gRPC; 0 if it is not served.";

pub async fn serve(node: Node, sockets: Sockets, stop: impl Future<Output = ()> + Send) {
    let (app, settings, registry) = (App::new(node.clone()), node.settings(), node.registry());
    let audit = Arc::clone(&app.audit);
    let context = HandshakeContext {
        tls: Arc::clone(node.tls()),
        pending: app.handshakes.clone(),
        traffic: Arc::clone(&node.writes().traffic),
        clock: Arc::clone(&node.reads().clock),
        audit: Arc::clone(&app.audit),
    };
    let handshakes = Handshakes::new(context, registry);
    let handshakes = settings.tls.as_ref().map(|_| handshakes);
    let of_grpc = handshakes.as_ref().map(|handshakes| handshakes.bounded_by(app.grpc_handshakes.clone()));
    let counted = [app.handshakes.clone(), app.grpc_handshakes.clone()];
    registry.gauge_fn("floodmark_tls_handshakes_pending", "TLS handshakes in progress.", &[], move || {
        counted.iter().map(PendingHandshakes::count).sum::<usize>() as f64
    });
    let Sockets { main, admin, grpc, graphite, statsd } = sockets;
    let statsd = Statsd::new(&app, statsd);
    let lines = Lines::new(&app, graphite, handshakes.clone());
    let service = http::router(app.clone(), address(&main));
    let main = Listener::new(main, service, settings.connections_max, settings.transfer_rate)
        .encrypted(handshakes.clone());
    main.report(registry, "floodmark_http_connections", "Open connections.");
    app.connections.get_or_init(|| main.connections());
    let grpc = grpc.map(|socket| {
        let (service, memory) = (http::grpc_router(app.clone()), node.writes().grpc.clone());
        let most = settings.otlp_grpc.connections_max;
        Listener::http2(socket, service, most, settings.transfer_rate, memory).encrypted(of_grpc)
    });
    match &grpc {
        Some(grpc) => grpc.report(registry, GRPC_CONNECTIONS, GRPC_HELP),
        None => registry.gauge_fn(GRPC_CONNECTIONS, GRPC_HELP, &[], || 0.0),
    }
    let admin = admin.map(|socket| {
        let address = address(&socket);
        let service = http::admin_router(app, address);
        let listener = Listener::new(socket, service, ADMIN_CONNECTIONS_MAX, settings.transfer_rate);
        // connections on a loopback address are not encrypted: certificates are rarely valid for such
        // addresses
        listener.encrypted(handshakes.filter(|_| is_reachable(address)))
    });
    let stopping = watch::Sender::new(false);
    let is_stopping = || {
        let mut stopping = stopping.subscribe();
        async move {
            let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
        }
    };
    let (name, help) = (
        "floodmark_admin_connections",
        "Open connections of the administration listener; 0 if there is none.",
    );
    match &admin {
        Some(admin) => admin.report(registry, name, help),
        None => registry.gauge_fn(name, help, &[], || 0.0),
    }
    let admin = admin.map(|listener| listener.serve(is_stopping()));
    let admin = async {
        if let Some(admin) = admin {
            admin.await;
        }
    };
    let grpc = async {
        if let Some(grpc) = grpc {
            grpc.serve(is_stopping()).await;
        }
    };
    let stop = async {
        stop.await;
        stopping.send_replace(true);
    };
    let serve = async {
        // a task of its own, because to end an interval takes longer than a new connection should wait
        let statsd = tokio::spawn(statsd.serve(is_stopping()));
        let (main, (draining, drained)) = (main.serve(is_stopping()), oneshot::channel::<()>());
        let main = async {
            main.await;
            drop(draining);
        };
        let lines = lines.serve(is_stopping(), async {
            let _ = drained.await; // nothing is sent: this resolves when the sender is dropped
        });
        let (.., ended, ()) = tokio::join!(main, admin, grpc, lines, statsd, stop);
        ended.expect("BUG: statsd's task has panicked");
    };
    // a task of its own, because writing lines may take long
    let log_due = tokio::spawn({
        let audit = Arc::clone(&audit);
        async move { audit.log_due().await }
    });
    tokio::select! {
        () = serve => {}
        () = node.auth().fetch_keys() => unreachable!("BUG: the fetching of keys has ended"),
    }
    log_due.abort();
    audit.log_rest();
}

/// If the address of the socket is unknown, returns 0.0.0.0:0, so that it counts as reachable from other
/// machines.
fn address(socket: &TcpListener) -> SocketAddr {
    socket.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)))
}
