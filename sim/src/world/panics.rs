//! Panics of a world: violations with their place, and nothing on standard error.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    panic,
};

thread_local! {
    /// Whether this thread runs a world.
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
    /// The place of the last panic of this thread.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps panics of worlds off standard error, and notes their places.
pub fn catch_panics() {
    let default = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !IS_RUNNING.get() {
            return default(info);
        }
        let place = info.location().map(|at| {
            // The end of the path: the rest differs between machines.
            let path: Vec<_> = at.file().rsplit(['/', '\\']).take(4).collect();
            let path: Vec<_> = path.into_iter().rev().collect();
            format!("{}:{}", path.join("/"), at.line())
        });
        PLACE.set(place);
    }));
}

/// Notes whether this thread runs a world.
pub(crate) fn set_running(is_running: bool) {
    IS_RUNNING.set(is_running);
}

/// The message of a panic, and its place if [`catch_panics`] was called.
pub(crate) fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let text = text.unwrap_or("without a message").replace('\n', " ");
    match PLACE.take() {
        Some(place) => format!("panic: {text} at {place}"),
        None => format!("panic: {text}"),
    }
}
