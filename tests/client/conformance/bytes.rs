//! Names and data at their limits.

use super::{Fixture, refused};
use crate::*;

async fn data_may_be_empty_and_almost_a_mebibyte(fixture: Fixture) {
    let path = fixture.node("a", b"").await;
    assert!(fixture.client.get_data(&path).await.unwrap().data.is_empty());
    let large = vec![7; (1 << 20) - 200];
    fixture.client.set_data(&path, &large, None).await.unwrap();
    assert_eq!(fixture.client.get_data(&path).await.unwrap().data, large);
    refused(
        fixture.client.set_data(&path, &vec![7; 1 << 20], None).await,
        ErrorKind::RequestTooLarge,
    );
    assert_eq!(fixture.client.get_data(&path).await.unwrap().stat.version, 1);
}

/// The server appends digits, so the name before them may be empty or consist of dots.
async fn a_sequential_name_may_be_empty_or_dots(fixture: Fixture) {
    let parent = fixture.node("s", b"").await;
    for name in ["", ".", ".."] {
        let path = format!("{parent}/{name}");
        let created = fixture.client.create(&path, b"", CreateMode::PersistentSequential).await;
        let created = created.unwrap();
        assert_eq!(created.strip_prefix(&path).map(str::len), Some(10), "{created}");
        assert!(fixture.client.exists(&created).await.unwrap().is_some());
        refused(
            fixture.client.create(&path, b"", CreateMode::Persistent).await,
            ErrorKind::InvalidPath,
        );
    }
}

super::on_all_servers! {
    data_may_be_empty_and_almost_a_mebibyte,
    a_sequential_name_may_be_empty_or_dots,
}
