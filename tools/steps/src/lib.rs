//! The steps of the recipes: their names and documentation, and the step that a frame belongs to.
//!
//! A step is recognized by the frame alone, so that it is the same for docent and for Curator.

mod recognizer;
mod table;

pub use recognizer::{Frame, LOCK, Recognizer, is_lock_node, of_reply, parent};
pub use table::{STEPS, Step};
