//! Writes all or none, reads of one moment.

use docent::protocol::{OpCode, call::Read};
use docent::session::{ReadResult, TransactionResult};
use docent::{CreateMode, ErrorKind, Outcome};

use crate::{Playground, refused};

async fn a_transaction_does_all_of_it_in_order() {
    let Some(play) = Playground::new().await else { return };
    let [old, new, queue] = ["old", "new", "entry-"].map(|name| play.path(name));
    play.node("old", b"1").await;
    let results = play
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
    assert_eq!(play.client.exists(&old).await.unwrap(), None);
}

/// pitfall 1: the reply has no error, and says which operation had.
async fn a_failed_transaction_names_the_operation_and_does_nothing() {
    let Some(play) = Playground::new().await else { return };
    let [a, b, none] = ["a", "b", "none"].map(|name| play.path(name));
    for position in 0..3 {
        let mut transaction = play.client.transaction();
        for index in 0..3 {
            transaction = if index == position {
                transaction.set_data(&none, b"", None)
            } else {
                transaction.create(if index == 0 { &a } else { &b }, b"", CreateMode::Persistent)
            };
        }
        let error = refused(transaction.commit().await, ErrorKind::NoNode);
        assert_eq!(error.index(), Some(position));
        assert_eq!((error.operation(), error.path()), (Some(OpCode::SetData), Some(&*none)));
        assert_eq!(play.client.get_children(&play.base).await.unwrap().len(), 0);
    }
    let error = play.client.transaction().check(&play.base, Some(9)).commit().await;
    assert_eq!(refused(error, ErrorKind::BadVersion).operation(), Some(OpCode::Check));
}

/// pitfall 2: containers and TTL nodes answer with their Stat, others need not.
async fn every_kind_of_node_is_created_by_a_transaction() {
    let Some(play) = Playground::new().await else { return };
    let ttl = docent::Ttl::from_millis(60_000).unwrap();
    let [container, timed, plain] = ["container", "timed", "plain"].map(|name| play.path(name));
    let results = play
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

async fn an_empty_transaction_is_a_success() {
    let Some(play) = Playground::new().await else { return };
    assert_eq!(play.client.transaction().commit().await.unwrap(), []);
    assert!(play.client.multi_read(&[]).await.unwrap().is_empty());
}

/// Nothing is sent, and the operation is named.
async fn a_bad_path_in_a_transaction_is_refused_with_its_number() {
    let Some(play) = Playground::new().await else { return };
    let a = play.path("a");
    let transaction = play.client.transaction().create(&a, b"", CreateMode::Persistent);
    let error = refused(transaction.delete("b", None).commit().await, ErrorKind::InvalidPath);
    assert_eq!((error.index(), error.operation()), (Some(1), Some(OpCode::Delete)));
    assert_eq!(play.client.exists(&a).await.unwrap(), None);
    let reads = [Read::GetData(&a), Read::GetData("b")];
    let error = refused(play.client.multi_read(&reads).await, ErrorKind::InvalidPath);
    assert_eq!(error.index(), Some(1));
}

/// pitfalls 40, 42: requests and results of a transaction under a chroot (Java forgets the latter).
async fn a_chroot_holds_inside_a_transaction() {
    let Some(play) = Playground::new().await else { return };
    let client = play.chrooted().await;
    let results = client
        .transaction()
        .create("/a-", b"x", CreateMode::PersistentSequential)
        .check("/", None)
        .commit()
        .await
        .unwrap();
    assert!(
        matches!(&results[0], TransactionResult::Created { path, .. } if path == "/a-0000000000")
    );
    let found = client.multi_read(&[Read::GetData("/a-0000000000")]).await.unwrap();
    assert!(matches!(&found[0], Ok(ReadResult::GetData(node)) if node.data == "x"));
}

async fn each_read_of_several_fails_for_itself() {
    let Some(play) = Playground::new().await else { return };
    let [a, none] = ["a", "none"].map(|name| play.path(name));
    play.node("a", b"data").await;
    let reads = [
        Read::GetData(&a),
        Read::GetChildren(&play.base),
        Read::GetData(&none),
        Read::GetChildren(&a),
    ];
    let found = play.client.multi_read(&reads).await.unwrap();
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

crate::stories! {
    a_transaction_does_all_of_it_in_order,
    a_failed_transaction_names_the_operation_and_does_nothing,
    every_kind_of_node_is_created_by_a_transaction,
    an_empty_transaction_is_a_success,
    a_bad_path_in_a_transaction_is_refused_with_its_number,
    a_chroot_holds_inside_a_transaction,
    each_read_of_several_fails_for_itself,
}
