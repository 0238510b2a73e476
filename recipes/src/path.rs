//! Paths of znodes, taken apart and put together.

/// The parent and the name of a node.
pub(crate) fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some(split) => split,
        None => ("/", path),
    }
}

/// A child's path.
pub(crate) fn join(parent: &str, name: &str) -> String {
    if parent == "/" { format!("/{name}") } else { format!("{parent}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_into_parent_and_name() {
        assert_eq!(split("/a/b"), ("/a", "b"));
        assert_eq!(split("/a"), ("/", "a"));
        assert_eq!(split("/a/"), ("/a", ""));
        assert_eq!(split("/"), ("/", ""));
        for path in ["/a/b", "/a"] {
            let (parent, name) = split(path);
            assert_eq!(join(parent, name), path);
        }
    }
}
