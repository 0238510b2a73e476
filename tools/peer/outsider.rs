//! Verbs without an object: plain requests to nodes.

use docent::{Acl, Client, CreateMode, CreateOptions, Perms};

use super::{Answer, Failure, done, kept::mode, list, text, token};

pub(super) async fn command(client: &Client, verb: &str, args: &[&str]) -> Answer {
    match (verb, args) {
        ("children", [path]) => {
            let (children, _) = client.get_children_with_stat(path).await?;
            let mut names = children.to_vec();
            names.sort_unstable();
            Ok(Some(list(names)))
        }
        ("read", [path]) => {
            let node = client.get_data(path).await?;
            let (data, stat) = (token(&node.data), node.stat);
            let (version, owner) = (stat.version, stat.ephemeral_owner);
            Ok(Some(format!("{data} {version} {owner:x} {}", stat.czxid)))
        }
        ("make", [path, data, mode_text]) => {
            client.create(path, text(data).as_bytes(), mode(mode_text)?).await?;
            done()
        }
        ("makero", [path]) => {
            let read = [Acl::new(Perms::READ, "world", "anyone")];
            client
                .create(path, b"", CreateOptions::new(CreateMode::Persistent).with_acl(&read))
                .await?;
            done()
        }
        ("write", [path, data]) => {
            client.set_data(path, text(data).as_bytes(), None).await?;
            done()
        }
        ("remove", [path]) => {
            client.delete(path, None).await?;
            done()
        }
        _ => Err(Failure::unknown(verb, args)),
    }
}
