use super::{commit, release};
use crate::seal::flush::flush_tenant;
use crate::seal::tests::{read_of, write_of};
use crate::write_path::tests::small_node;
use model::TenantId;
use std::sync::Arc;
use tables::Delete;

/// Samples are sealed and deleted while a query keeps them in the head. Then the same samples are sent again.
#[tokio::test(flavor = "multi_thread")]
async fn a_sample_that_is_sent_again_after_a_delete_is_no_duplicate_of_a_deleted_one() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    node.readiness().wait_for_replay().await;
    let tenant = TenantId::anonymous();
    let sent = write_of(&node, &tenant, 1000).await;
    let query = node.reads().lake.pins.pin();
    let sealing = tokio::spawn({
        let (node, tenant) = (node.clone(), tenant.clone());
        async move { flush_tenant(&node, &tenant).await }
    });
    let context = Arc::clone(node.reads());
    let of = tenant.clone();
    let deleted = move || {
        // waits until the commit of the seal is done; the release then waits for the query
        let is_sealed = || {
            let table = context.lake.existing(&of).unwrap();
            table.is_some_and(|table| {
                table.refresh().unwrap();
                !table.files().unwrap().all().is_empty()
            })
        };
        while !is_sealed() {
            std::thread::yield_now();
        }
        commit(&context, &of, &Delete::everything()).unwrap();
    };
    tokio::task::spawn_blocking(deleted).await.unwrap();
    let again = async {
        release(&node, &tenant).await.unwrap();
        write_of(&node, &tenant, 1000).await
    };
    let (again, ()) = tokio::join!(again, async { drop(query) });
    sealing.await.unwrap().unwrap();
    flush_tenant(&node, &tenant).await.unwrap();
    assert_eq!(again, sent);
    let there = node.clone();
    let found = tokio::task::spawn_blocking(move || read_of(&there, &tenant)).await.unwrap();
    assert_eq!(found, sent);
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}
