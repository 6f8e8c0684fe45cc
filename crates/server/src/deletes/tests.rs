use super::{commit, delete, release};
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

/// Queries and writes of any tenant refer to series, some of them for minutes.
#[tokio::test(flavor = "multi_thread")]
async fn a_delete_does_not_wait_for_those_who_refer_to_series() {
    let dir = tempfile::tempdir().unwrap();
    let node = small_node(dir.path());
    node.readiness().wait_for_replay().await;
    let [tenant, other] = ["gone", "other"].map(|name| TenantId::parse(name).unwrap());
    for tenant in [&tenant, &other] {
        write_of(&node, tenant, 1000).await;
    }
    let listed = |tenant: &TenantId| -> usize {
        let of = |head: &head::Partition| head.tenant(tenant).map_or(0, head::TenantHead::listed_count);
        node.reads().partitions.iter().map(|partition| of(&partition.head.read())).sum()
    };
    let before = (listed(&tenant), listed(&other));
    let queries: Vec<_> = node.reads().partitions.iter().map(|p| p.head.read().pin()).collect();
    for _ in 0..20 {
        delete(&node, tenant.clone(), Delete::everything()).await.unwrap();
        assert_eq!((listed(&tenant), listed(&other)), (0, before.1));
        write_of(&node, &tenant, 1000).await;
        assert_eq!((listed(&tenant), listed(&other)), before, "what is written after the delete is listed");
    }
    drop(queries);
    tokio::task::spawn_blocking(move || node.stop()).await.unwrap();
}
