//! How the processes of a job find each other: an authenticated TCP rendezvous.
//!
//! The launcher, or rank 0 under a starter that brings none, runs a [`Server`]. Every process joins
//! ([`Membership::join`]) with what others must know of it and gets the table of everybody. The connection stays open:
//! deaths, new lives, answers about liveness, fences and small values travel on it, all sealed with keys that both ends
//! derive from the job's secret. Frames are bounded, and the table comes in parts, so a job may have 2²⁴ ranks.
//!
//! The seal keeps others from joining a job or speaking for its processes. Nothing is encrypted.

extern crate alloc;

mod agent_link;
mod ballot;
mod codec;
mod connect;
mod entry;
mod frame;
mod host;
mod host_port;
mod join_options;
mod link;
mod membership;
mod message;
mod on_death;
mod rank;
mod roll;
mod secret;
mod server;

pub use agent_link::{AgentLink, AgentRequest};
pub use ballot::{Ballot, Name, RANGES_MAX, Ranks, Verdict, WORDS_MAX};
pub use entry::{Digests, Ending, Entry, Incarnation, Offer, fresh_incarnation};
pub use frame::{FrameError, PAYLOAD_MAX};
pub use host_port::{HostPort, HostPortError};
pub use join_options::{JoinError, JoinOptions, Rendezvous};
pub use link::LinkError;
pub use membership::{AGENT_SILENCE, AwaitError, Liveness, Membership, Notice};
pub use message::{KEY_MAX, Malformed, Refusal, VALUE_MAX};
pub use on_death::{OnDeath, OnDeathError};
pub use rank::{Rank, SIZE_MAX, Seat};
pub use roll::Report;
pub use secret::{Secret, SecretError};
pub use server::{Hosting, Server};
