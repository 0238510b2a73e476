//! The example `embed` is short and has no runtime, as it claims.

#[test]
fn the_embedded_client_is_short_and_needs_no_runtime() {
    let source = include_str!("../examples/embed.rs");
    assert!(source.lines().count() <= 60);
    assert!(!source.contains("tokio") && !source.contains("async"));
}
