//! The lab: a script of clients, locks and faults runs in the simulator, and its timeline is shown on a page that a small
//! server on loopback delivers. docs/LAB.md is the guide.

mod belief;
mod builder;
mod claim;
mod frames;
mod http;
pub mod lessons;
mod program;
pub mod run;
pub mod script;
pub mod serve;
mod steps;
pub mod timeline;
pub mod traffic;
