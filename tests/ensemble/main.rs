//! The client on ensembles: members are killed, stopped and restarted, or too few for a majority.

extern crate docent_tests as support;

mod elections;
mod ensemble;
mod lost_members;
mod moved_session;
mod partitions;
mod proven;
mod read_only;
mod reconfig;
mod resumed_session;
mod strict;
mod tracker;
