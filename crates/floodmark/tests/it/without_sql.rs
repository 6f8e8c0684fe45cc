//! A program that was built without SQL says so.

use crate::harness::{Options, Request, Server};

#[test]
fn sql_says_what_is_missing() {
    let server = Server::start(Options::default());
    for path in ["/api/v1/sql", "/prometheus/api/v1/sql"] {
        server.send(&Request::form(path, &[("query", "SELECT 1")])).expect(404, &["built without SQL"]);
        server.send(&Request::ask(path, &[("query", "SELECT 1")])).expect(404, &["built without SQL"]);
    }
}
