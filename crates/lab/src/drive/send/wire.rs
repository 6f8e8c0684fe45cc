//! A connection that carries requests: HTTP with its answers, or a socket without answers.

use crate::http::{Client, Failure};
use crate::socket::Socket;

#[derive(Debug)]
pub(crate) enum Wire {
    Http(Client),
    Socket(Socket),
}

impl Wire {
    pub(crate) async fn connect(&mut self) -> Result<(), Failure> {
        match self {
            Self::Http(client) => client.connect().await,
            Self::Socket(socket) => socket.connect().await,
        }
    }
}
