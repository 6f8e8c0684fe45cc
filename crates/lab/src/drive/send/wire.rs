//! A connection that carries requests: HTTP or gRPC with their answers, or a socket without answers.

use crate::grpc;
use crate::http::{Client, Failure};
use crate::socket::Socket;
use hyper::HeaderMap;

#[derive(Debug)]
pub(crate) enum Wire {
    Http(Client),
    Grpc(grpc::Client),
    Socket(Socket),
}

impl Wire {
    pub(crate) async fn connect(&mut self) -> Result<(), Failure> {
        match self {
            Self::Http(client) => client.connect().await,
            Self::Grpc(client) => client.connect().await,
            Self::Socket(socket) => socket.connect().await,
        }
    }

    /// The headers of requests. `None` for a socket.
    pub(crate) fn headers_mut(&mut self) -> Option<&mut HeaderMap> {
        match self {
            Self::Http(client) => Some(client.headers_mut()),
            Self::Grpc(client) => Some(client.headers_mut()),
            Self::Socket(_) => None,
        }
    }
}
