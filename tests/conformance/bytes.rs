//! Names and data at their limits.

use docent::{CreateMode, ErrorKind};

use crate::{Playground, refused};

async fn data_may_be_empty_and_almost_a_mebibyte() {
    let Some(play) = Playground::new().await else { return };
    let path = play.node("a", b"").await;
    assert!(play.client.get_data(&path).await.unwrap().data.is_empty());
    let large = vec![7; (1 << 20) - 200];
    play.client.set_data(&path, &large, None).await.unwrap();
    assert_eq!(play.client.get_data(&path).await.unwrap().data, large);
    refused(play.client.set_data(&path, &vec![7; 1 << 20], None).await, ErrorKind::RequestTooLarge);
    assert_eq!(play.client.get_data(&path).await.unwrap().stat.version, 1);
}

async fn names_may_have_any_letter_of_the_basic_plane() {
    let Some(play) = Playground::new().await else { return };
    for name in ["ä", "日本", "a b", "a%b", "…", "x'\"\\"] {
        let path = play.path(name);
        assert_eq!(play.client.create(&path, b"", CreateMode::Persistent).await.unwrap(), path);
        assert!(play.client.exists(&path).await.unwrap().is_some(), "{name}");
    }
    let children = play.client.get_children(&play.base).await.unwrap();
    assert!(children.iter().any(|name| name == "日本"));
    for name in ["\u{1F600}", "\u{1}", "\u{7F}", "\u{E000}"] {
        let created = play.client.create(&play.path(name), b"", CreateMode::Persistent).await;
        refused(created, ErrorKind::InvalidPath);
    }
}

/// Ten thousand names in one reply.
async fn a_long_list_comes_whole() {
    let Some(play) = Playground::new().await else { return };
    let creates: Vec<_> = (0..10_000)
        .map(|number| {
            play.client.create(&play.path(&format!("{number:05}")), b"", CreateMode::Ephemeral)
        })
        .collect();
    for create in creates {
        create.await.unwrap();
    }
    let mut names = play.client.get_children(&play.base).await.unwrap().to_vec();
    names.sort();
    assert_eq!(names.len(), 10_000);
    assert_eq!((&*names[0], &*names[9999]), ("00000", "09999"));
}

crate::stories! {
    data_may_be_empty_and_almost_a_mebibyte,
    names_may_have_any_letter_of_the_basic_plane,
    a_long_list_comes_whole,
}
