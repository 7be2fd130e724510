//! The bootstrap service of a job: an authenticated rendezvous, comparable to PMI, over TCP or over a local socket where
//! all processes are on one host.
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
mod agreement;
mod auth;
mod fence;
mod frame;
mod host_port;
mod join_options;
mod location;
mod membership;
mod membership_state;
mod message;
mod on_death;
mod peer_record;
mod rank;
mod rank_zero;
mod server;
mod stream;
mod stuck;
mod version;
mod waits;

pub use agent_link::{AgentLink, AgentRequest};
pub use agreement::{AgreementId, AgreementOutcome, RANGES_MAX, RankRanges, Vote, WORDS_MAX};
pub use auth::{Secret, SecretError};
pub use fence::{FENCE_RECORDS_MAX, FenceDifference, FenceRecord};
pub use frame::{FrameError, PAYLOAD_MAX};
pub use host_port::{HostPort, HostPortError};
pub use join_options::{JoinError, JoinOptions, Rendezvous};
pub use location::{Location, LocationError};
pub use membership::{AGENT_SILENCE, AwaitError, Liveness, Membership, MembershipEvent};
pub use membership_state::{Participation, ServerReport, StuckRank};
pub use message::{KEY_MAX, Malformed, Refusal, VALUE_MAX};
pub use on_death::{OnDeath, OnDeathError};
pub use peer_record::{Digests, Ending, Incarnation, LocalRecord, PeerRecord, RAILS_MAX, fresh_incarnation};
pub use rank::{JobPosition, Rank, SIZE_MAX};
pub use server::{Server, ServerConfig};
pub use stream::ConnectionError;
pub use version::Version;
pub use waits::{CONDITIONS_MAX, WAITS_MAX, Wait, WaitCondition, WaitReport};
