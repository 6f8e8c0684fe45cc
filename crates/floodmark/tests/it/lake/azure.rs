//! Tables in Azure's blob storage, for which Azurite stands in.

use super::{compact, fill, seed};
use crate::harness::ledger::Writer;
use crate::harness::programs::{Running, find, free_port};
use crate::harness::{Options, Server, wait_for};
use std::process::Command;
use tempfile::TempDir;

/// The account that Azurite has by default, with its published key.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A script that creates a container. It signs the request with the "Shared Key" of Azure's REST API.
const MAKE_CONTAINER: &str = r#"
const [port, account, key, container] = process.argv.slice(1);
const headers = { "x-ms-date": new Date().toUTCString(), "x-ms-version": "2021-08-06", "Content-Length": 0 };
const text = `PUT${"\n".repeat(12)}x-ms-date:${headers["x-ms-date"]}\nx-ms-version:2021-08-06\n` +
    `/${account}/${account}/${container}\nrestype:container`;
const signed = require("crypto").createHmac("sha256", Buffer.from(key, "base64")).update(text).digest("base64");
headers.Authorization = `SharedKey ${account}:${signed}`;
const path = `/${account}/${container}?restype=container`;
const request = require("http").request({ host: "127.0.0.1", port, path, method: "PUT", headers });
request.on("response", (answer) => process.exit(answer.statusCode == 201 ? 0 : 1));
request.on("error", () => process.exit(1));
request.end();
"#;

struct Azurite {
    _dir: TempDir,
    port: u16,
    _running: Running,
}

impl Azurite {
    fn start() -> Option<Self> {
        let (Some(program), Some(node)) = (find(&["azurite-blob"]), find(&["node"])) else {
            stdx::skipped::for_want_of("Azurite and Node (scripts/test-servers.sh)");
            return None;
        };
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        let mut command = Command::new(program);
        command.args(["--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry"]);
        command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()]);
        let running = Running::start(&mut command, port, dir.path().join("log"));
        wait_for("a container", || {
            let mut make = Command::new(&node);
            make.args(["-e", MAKE_CONTAINER, &port.to_string(), ACCOUNT, KEY, "lake"]);
            make.status().unwrap().success().then_some(())
        });
        Some(Self { _dir: dir, port, _running: running })
    }

    fn options(&self) -> Options {
        let config = format!(
            "tables = \"az://lake/here\"\n[tables_options]\nazure_storage_account_name = \"{ACCOUNT}\"\n\
             azure_storage_account_key = \"{KEY}\"\nazure_allow_http = \"true\"\n\
             azure_storage_endpoint = \"http://127.0.0.1:{}/{ACCOUNT}\"",
            self.port
        );
        Options::default().config(&config)
    }
}

#[test]
fn tables_in_azure_take_everything_once() {
    let Some(azurite) = Azurite::start() else { return };
    let mut server = Server::start(azurite.options());
    let mut writer = Writer::new(seed(), 1);
    fill(&server, &mut writer, 5);
    let compacted = compact(&server);
    assert!(compacted["merges"].as_u64() > Some(0), "{compacted}");
    server.kill9();
    server.restart();
    assert_eq!(server.metric("floodmark_journal_replayed_samples_total"), 0.0);
    writer.verify(&server, 0);
    assert!(!server.data_dir().join("tables").exists(), "the data directory has tables too");
}
