//! Each test plays the service that authenticates callers, and decides what to answer and when.

use crate::auth::tests::auth_of;
use crate::auth::{Access, Auth, Caller, Credential, Original, Presented};
use crate::refusal::Refusal;
use crate::settings::Given;
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::{HeaderMap, Method};
use model::{ErrorKind, TenantSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

struct Setup {
    auth: Arc<Auth>,
    service: TcpListener,
    dir: tempfile::TempDir,
}

impl Setup {
    async fn new(roles: &str) -> Self {
        let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("auth.toml");
        std::fs::write(&path, Self::file(&service, roles)).unwrap();
        let auth = Arc::new(auth_of(&Given::default().flag("auth_file", &path)));
        Self { auth, service, dir }
    }

    fn file(service: &TcpListener, roles: &str) -> String {
        let address = service.local_addr().unwrap();
        format!(
            "[forward]\nurl = \"http://{address}/\"\ntenants = [\"*\"]\nroles = [{roles}]\nremember = \"1h\"\n\
             roles_header = \"none\"\nuser_header = \"X-User\"\n"
        )
    }

    fn replace_file(&self, roles: &str) {
        std::fs::write(self.dir.path().join("auth.toml"), Self::file(&self.service, roles)).unwrap();
        self.auth.reload();
    }

    fn write(&self) -> tokio::task::JoinHandle<Result<Caller, Refusal>> {
        let auth = Arc::clone(&self.auth);
        tokio::spawn(async move {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer x"))]);
            let original = Original { method: &Method::POST, path: "/", headers: &headers };
            let presented = Presented {
                original,
                address: IpAddr::V4(Ipv4Addr::LOCALHOST),
                credential: Some(Credential::Token(b"x")),
                tenants: Some(TenantSet::parse("a").unwrap()),
            };
            auth.identify(Access::Write, presented).await
        })
    }

    async fn question(&self) -> BufReader<TcpStream> {
        let mut stream = BufReader::new(self.service.accept().await.unwrap().0);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(stream.read_line(&mut line).await.unwrap() > 0, "the question is cut short");
        }
        stream
    }
}

/// Answers a question so that the caller may write to tenant `a`.
async fn allow(mut question: BufReader<TcpStream>) {
    let answer = "HTTP/1.1 200 OK\r\nX-Scope-OrgID: a\r\nX-User: alice\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    question.write_all(answer.as_bytes()).await.unwrap();
}

fn kind(result: Result<Caller, Refusal>) -> Result<String, ErrorKind> {
    result.map(|caller| caller.name.to_string()).map_err(|refusal| refusal.kind)
}

/// The new `auth_file` allows no writes. An answer to a question asked under the old one must not allow a
/// write.
#[tokio::test]
async fn an_answer_that_is_pending_during_a_reload_is_discarded() {
    let setup = Setup::new("\"write\"").await;
    let before = setup.write();
    let first = setup.question().await;
    setup.replace_file("\"read\"");
    let after = setup.write();
    let second = setup.question().await; // this request does not wait for the first answer
    allow(first).await;
    allow(second).await;
    assert_eq!(kind(after.await.unwrap()), Err(ErrorKind::Forbidden));
    assert_eq!(kind(before.await.unwrap()), Err(ErrorKind::Forbidden), "the decision is repeated");
    assert_eq!(
        kind(setup.write().await.unwrap()),
        Err(ErrorKind::Forbidden),
        "later requests are refused, too"
    );
}

#[tokio::test]
async fn an_answer_under_a_replaced_file_does_not_displace_a_current_one() {
    let setup = Setup::new("\"write\"").await;
    let before = setup.write();
    let first = setup.question().await;
    setup.replace_file("\"read\", \"write\"");
    let after = setup.write();
    allow(setup.question().await).await;
    let granted = Ok("forward: alice".to_owned());
    assert_eq!(kind(after.await.unwrap()), granted);
    allow(first).await;
    assert_eq!(kind(before.await.unwrap()), granted, "by the cached answer to the second question");
    assert_eq!(kind(setup.write().await.unwrap()), granted);
}

#[tokio::test]
async fn a_file_that_is_replaced_during_each_decision_lets_nobody_in() {
    let setup = Setup::new("\"write\"").await;
    let request = setup.write();
    for version in 0..crate::auth::VERSIONS_MAX {
        let question = setup.question().await;
        setup.replace_file(if version % 2 == 0 { "\"read\", \"write\"" } else { "\"write\"" });
        allow(question).await;
    }
    assert_eq!(kind(request.await.unwrap()), Err(ErrorKind::Unavailable));
}
