//! The bootstrap service of a job: an authenticated TCP rendezvous, comparable to PMI.
//!
//! The launcher, or rank 0 under a launcher that has no server of its own, runs a [`Server`]. Every process joins
//! ([`Membership::join`]) with its addresses and settings, and receives the table of all ranks. The connection stays
//! open and carries failures, new incarnations, liveness queries, fences and small key-value pairs; every frame is
//! authenticated with keys that both ends derive from the job's secret. Frames are bounded, and the table is sent in
//! parts, so a job may have 2²⁴ ranks.
//!
//! The authentication keeps others from joining a job or impersonating its processes. Nothing is encrypted.

extern crate alloc;

mod agent_link;
mod ballot;
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
