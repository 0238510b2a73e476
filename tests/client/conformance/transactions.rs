//! Transactions, and reads of several nodes in one request.

use docent::{TransactionResult, client::ReadResult};

use super::{Fixture, refused};
use crate::*;

async fn a_transaction_does_all_of_it_in_order(fixture: Fixture) {
    let [old, new, queue] = ["old", "new", "entry-"].map(|name| fixture.path(name));
    fixture.node("old", b"1").await;
    let results = fixture
        .client
        .transaction()
        .check(&old, Some(0))
        .set_data(&old, b"22", Some(0))
        .create(&new, b"", CreateMode::Ephemeral)
        .create(&queue, b"", CreateMode::PersistentSequential)
        .delete(&old, Some(1))
        .commit()
        .await
        .unwrap();
    let [checked, set, created, numbered, deleted] = &results[..] else { panic!("{results:?}") };
    assert_eq!((checked, deleted), (&TransactionResult::Checked, &TransactionResult::Deleted));
    assert!(matches!(set, TransactionResult::DataSet(stat) if stat.version == 1));
    assert!(matches!(created, TransactionResult::Created { path, .. } if *path == new));
    let number = format!("{queue}0000000002");
    assert!(matches!(numbered, TransactionResult::Created { path, .. } if *path == number));
    assert_eq!(fixture.client.exists(&old).await.unwrap(), None);
}

/// The reply's header has no error; the result says which operation failed.
async fn a_failed_transaction_names_the_operation_and_does_nothing(fixture: Fixture) {
    let [a, b, none] = ["a", "b", "none"].map(|name| fixture.path(name));
    for position in 0..3 {
        let mut transaction = fixture.client.transaction();
        for index in 0..3 {
            if index == position {
                transaction.set_data(&none, b"", None);
            } else {
                transaction.create(if index == 0 { &a } else { &b }, b"", CreateMode::Persistent);
            }
        }
        let error = refused(transaction.commit().await, ErrorKind::NoNode);
        assert_eq!(error.index(), Some(position));
        assert_eq!((error.operation(), error.path()), (Some(OpCode::SetData), Some(&*none)));
        assert_eq!(fixture.client.get_children(&fixture.base).await.unwrap().len(), 0);
    }
    let error = fixture.client.transaction().check(&fixture.base, Some(9)).commit().await;
    assert_eq!(refused(error, ErrorKind::BadVersion).operation(), Some(OpCode::Check));
}

/// The results of containers and TTL nodes have a Stat; the others need not.
async fn every_kind_of_node_is_created_by_a_transaction(fixture: Fixture) {
    let ttl = docent::Ttl::from_millis(60_000).unwrap();
    let [container, timed, plain] = ["container", "timed", "plain"].map(|name| fixture.path(name));
    let results = fixture
        .client
        .transaction()
        .create(&container, b"", CreateMode::Container)
        .create(&timed, b"", CreateMode::PersistentWithTtl(ttl))
        .create(&plain, b"", CreateMode::Persistent)
        .commit()
        .await
        .unwrap();
    for (result, (wanted, with_stat)) in
        results.iter().zip([(&container, true), (&timed, true), (&plain, false)])
    {
        let TransactionResult::Created { path, stat } = result else { panic!("{result:?}") };
        assert_eq!(path, wanted);
        assert!(stat.is_some() || !with_stat, "{result:?}");
    }
}

/// A commit keeps the operations, so the transaction can be committed again.
async fn a_transaction_is_built_in_a_loop_and_committed_again(fixture: Fixture) {
    let mut transaction = fixture.client.transaction();
    assert!(transaction.is_empty());
    for number in 0..5_u8 {
        let path = fixture.path(&format!("node-{number}"));
        transaction.create(&path, &[number], CreateMode::Persistent);
    }
    assert_eq!(transaction.len(), 5);
    let response = transaction.commit();
    // Later operations belong to the next commit.
    transaction.check(&fixture.base, None);
    assert_eq!(response.await.unwrap().len(), 5);
    let node = fixture.client.get_data(&fixture.path("node-4")).await.unwrap();
    assert_eq!(node.data, [4][..]);
    let error = refused(transaction.commit().await, ErrorKind::NodeExists);
    assert_eq!((error.index(), error.path()), (Some(0), Some(&*fixture.path("node-0"))));

    transaction.clear();
    assert!((transaction.len(), transaction.encoded_len()) == (0, 0) && transaction.is_empty());
    for number in 0..5 {
        transaction.delete(&fixture.path(&format!("node-{number}")), Some(0));
    }
    assert_eq!(transaction.commit().await.unwrap(), [const { TransactionResult::Deleted }; 5]);
}

async fn an_empty_transaction_is_a_success(fixture: Fixture) {
    assert_eq!(fixture.client.transaction().commit().await.unwrap(), []);
    assert!(fixture.client.multi_read(&[]).await.unwrap().is_empty());
}

/// Nothing is sent, and the operation is named.
async fn a_bad_path_in_a_transaction_is_refused_with_its_number(fixture: Fixture) {
    let a = fixture.path("a");
    let mut transaction = fixture.client.transaction();
    transaction.create(&a, b"", CreateMode::Persistent);
    let error = refused(transaction.delete("b", None).commit().await, ErrorKind::InvalidPath);
    assert_eq!((error.index(), error.operation()), (Some(1), Some(OpCode::Delete)));
    assert_eq!(fixture.client.exists(&a).await.unwrap(), None);
    transaction.clear();
    assert_eq!(transaction.commit().await.unwrap(), []);
    let reads = [Read::GetData(&a), Read::GetData("b")];
    let error = refused(fixture.client.multi_read(&reads).await, ErrorKind::InvalidPath);
    assert_eq!((error.index(), error.path()), (Some(1), Some("b")));
    assert_eq!(error.operation(), Some(OpCode::GetData));
}

/// The chroot is added to the paths of the requests and removed from those of the results.
async fn a_chroot_holds_inside_a_transaction(fixture: Fixture) {
    let client = fixture.chrooted().await;
    let mut transaction = client.transaction();
    transaction.create("/a-", b"x", CreateMode::PersistentSequential).check("/", None);
    let TransactionResult::Created { path, .. } = &transaction.commit().await.unwrap()[0] else {
        panic!("no node was created");
    };
    assert_eq!(path, "/a-0000000000");
    let found = client.multi_read(&[Read::GetData("/a-0000000000")]).await.unwrap();
    assert!(matches!(&found[0], Ok(ReadResult::GetData(node)) if node.data == "x"));
}

async fn each_read_of_several_fails_for_itself(fixture: Fixture) {
    let [a, none] = ["a", "none"].map(|name| fixture.path(name));
    fixture.node("a", b"data").await;
    let reads = [
        Read::GetData(&a),
        Read::GetChildren(&fixture.base),
        Read::GetData(&none),
        Read::GetChildren(&a),
    ];
    let found = fixture.client.multi_read(&reads).await.unwrap();
    let [data, children, missing, leaf] = &found[..] else { panic!("{found:?}") };
    assert!(matches!(data, Ok(ReadResult::GetData(node)) if node.data == "data"));
    assert!(matches!(children, Ok(ReadResult::GetChildren(names)) if names.to_vec() == ["a"]));
    let error = missing.as_ref().unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome(), error.index(), error.path()),
        (ErrorKind::NoNode, Outcome::NotApplied, Some(2), Some(&*none))
    );
    assert!(matches!(leaf, Ok(ReadResult::GetChildren(names)) if names.is_empty()));
}

super::on_all_servers! {
    a_transaction_does_all_of_it_in_order,
    a_failed_transaction_names_the_operation_and_does_nothing,
    every_kind_of_node_is_created_by_a_transaction,
    a_transaction_is_built_in_a_loop_and_committed_again,
    an_empty_transaction_is_a_success,
    a_bad_path_in_a_transaction_is_refused_with_its_number,
    a_chroot_holds_inside_a_transaction,
    each_read_of_several_fails_for_itself,
}
