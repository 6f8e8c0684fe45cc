//! Clients that speak TLS.

use super::PATIENCE;
use super::http::{Reply, Request};
use std::io::{self, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use stdx::authority::Authority;
use tokio::net::TcpSocket;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, DEFAULT_VERSIONS, RootCertStore, StreamOwned, SupportedProtocolVersion,
    crypto::ring,
};

/// A client that trusts certain authorities, and that may have a certificate of its own.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    config: Arc<ClientConfig>,
    from: Option<IpAddr>,
}

impl Client {
    /// Creates a client that trusts `authorities`. If `certificate` is a name, the client's own certificate
    /// is the file with this name and `.pem` in the directory of the last authority.
    pub(crate) fn new(authorities: &[&Authority], certificate: Option<&str>) -> Self {
        Self::with(authorities, certificate, DEFAULT_VERSIONS, b"http/1.1")
    }

    pub(crate) fn with(
        authorities: &[&Authority],
        certificate: Option<&str>,
        versions: &[&'static SupportedProtocolVersion],
        protocol: &[u8],
    ) -> Self {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(CertificateDer::from_pem_file(authority.path("ca.pem")).unwrap()).unwrap();
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match (certificate, authorities.last()) {
            (Some(name), Some(authority)) => {
                let chain = CertificateDer::pem_file_iter(authority.path(&format!("{name}.pem"))).unwrap();
                let key = PrivateKeyDer::from_pem_file(authority.path(&format!("{name}.key"))).unwrap();
                builder.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).unwrap()
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        config.resumption = Resumption::disabled();
        Self { config: Arc::new(config), from: None }
    }

    pub(crate) fn from(self, address: IpAddr) -> Self {
        Self { from: Some(address), ..self }
    }

    fn session(&self) -> io::Result<ClientConnection> {
        let name = ServerName::try_from("localhost").unwrap();
        ClientConnection::new(Arc::clone(&self.config), name).map_err(io::Error::other)
    }

    pub(crate) fn hello(&self) -> Vec<u8> {
        let mut hello = Vec::new();
        self.session().unwrap().write_tls(&mut hello).unwrap();
        hello
    }

    pub(crate) fn open(&self, address: SocketAddr) -> io::Result<Connection> {
        let mut socket = match self.from {
            Some(from) => connect_from(from, address)?,
            None => TcpStream::connect(address)?,
        };
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut session = self.session()?;
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        Ok(Connection(BufReader::new(StreamOwned::new(session, socket))))
    }

    /// Sends one request on a new connection. With TLS 1.3, a client learns only from the answer that its
    /// certificate was refused.
    pub(crate) fn send(&self, address: SocketAddr, request: &Request) -> io::Result<Reply> {
        self.open(address)?.send(request)
    }
}

fn connect_from(from: IpAddr, address: SocketAddr) -> io::Result<TcpStream> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        socket.connect(address).await?.into_std()
    })?;
    stream.set_nonblocking(false)?;
    Ok(stream)
}

pub(crate) struct Connection(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl Connection {
    pub(crate) fn send(&mut self, request: &Request) -> io::Result<Reply> {
        self.0.get_mut().write_all(&request.bytes())?;
        Reply::read(&mut self.0)
    }

    /// Sends a request that the server may refuse before it has arrived completely.
    pub(crate) fn send_until_refused(&mut self, request: &Request) -> io::Result<Reply> {
        let _ = self.0.get_mut().write_all(&request.bytes()); // fails after the server has closed the connection
        let StreamOwned { conn, sock } = self.0.get_mut();
        // read directly, because `StreamOwned` would first try to send the rest of the request
        while conn.read_tls(sock).is_ok_and(|bytes| bytes > 0) {
            conn.process_new_packets().map_err(io::Error::other)?;
        }
        Reply::read(&mut BufReader::new(conn.reader()))
    }

    pub(crate) fn stream(&mut self) -> &mut StreamOwned<ClientConnection, TcpStream> {
        self.0.get_mut()
    }

    pub(crate) fn session(&self) -> &ClientConnection {
        &self.0.get_ref().conn
    }
}
