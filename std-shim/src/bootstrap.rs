//! How the processes of a job find each other: an authenticated TCP rendezvous.
//!
//! The launcher, or rank 0 under a starter that brings none, runs a [`Server`]. Every process joins
//! ([`Membership::join`]) with what others must know of it and gets the table of everybody. The connection stays open:
//! deaths, new lives, answers about liveness, fences and small values travel on it, all sealed with keys that both ends
//! derive from the job's secret. Frames are bounded, and the table comes in parts, so a job may have 2²⁴ ranks.
//!
//! The seal keeps others from joining a job or speaking for its processes. Nothing is encrypted.

mod ballot;
mod codec;
mod connect;
mod entry;
mod frame;
mod host;
mod host_port;
mod link;
mod membership;
mod message;
mod on_death;
mod roll;
mod secret;
mod server;
mod serving;

pub use ballot::{Ballot, Name, RANGES_MAX, Ranks, Verdict, WORDS_MAX};
pub use entry::{Digests, Ending, Entry, Incarnation, Offer, fresh_incarnation};
pub use frame::{FrameError, PAYLOAD_MAX};
pub use host_port::{HostPort, HostPortError};
pub use link::LinkError;
pub use membership::{AGENT_SILENCE, AwaitError, JoinError, JoinOptions, Liveness, Membership, Notice, Rendezvous};
pub use message::{KEY_MAX, Malformed, Refusal, VALUE_MAX};
pub use on_death::{OnDeath, OnDeathError};
pub use roll::Report;
pub use secret::{Secret, SecretError};
pub use server::{Hosting, Server};

pub(crate) use connect::connect;
pub(crate) use link::{Role, Sealed};
pub(crate) use message::{Say, Tell};
