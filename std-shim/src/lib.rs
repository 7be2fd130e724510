//! Messaging and collective communication on clusters.
//!
//! A program joins its job with [`World::join`] and talks to the other ranks: messages by rank and tag, collectives
//! ([`collective`]), groups that shrink when a rank has died ([`Communicator`]). [`environment`] says which job that
//! is: `unisono run` sets it, or any other starter.
//!
//! What it stands on:
//! - [`unisono_udp`]: datagrams of the operating system; [`unisono_memory`]: regions and the records of an endpoint.
//! - [`unisono_bootstrap`]: how the ranks find each other.
//! - [`Node`]: the memory that the ranks of one host share.

extern crate alloc;
// The paths that `#[derive(Equivalence)]` names.
extern crate self as unisono;

pub mod environment;
#[cfg(target_os = "linux")]
mod equivalence;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
mod node;
#[cfg(target_os = "linux")]
pub mod prelude;
#[cfg(target_os = "linux")]
mod world;

pub use environment::{Settings, SettingsError};
#[cfg(target_os = "linux")]
pub use equivalence::{Equivalence, EquivalenceReader, EquivalenceWriter};
#[cfg(target_os = "linux")]
pub use error::{Error, ErrorClass, JoinCause};
#[cfg(target_os = "linux")]
pub use node::{Node, NodeError, NodeRankState};
pub use unisono_bootstrap::Rank;
pub use unisono_datatype::{ArrayOrder, Basic, BasicType, Datatype, DatatypeError, Field, Signature};
pub use unisono_derive::Equivalence;
#[cfg(target_os = "linux")]
pub use world::{
    ATTACHED_MAX, AccumulateOperation, AddRailError, AgreeError, Agreement, AllocateError, AnyPersistent, AnyRequest,
    AttributeKey, Buffer, Cartesian, CartesianError, Communicator, CreateError, EventSource, ExchangeRequest, Failure,
    GetRequest, Graph, Grid, Group, GroupError, LockKind, Message, Neighbour, Neighbourhood, OpenScope, Peer,
    PersistentExchange, PersistentMessage, PutRequest, RKey, RailStats, RecvRequest, Region, RemoteRegion, Request,
    RequestError, RequestFailed, Rights, Scope, SendBuffer, SplitType, Status, Tag, TypeCode, Window, WindowError,
    World, WorldError, collective, start_all, test_all, test_any, test_some, wait_all, wait_any, wait_some,
};
pub use zerocopy;

/// What other programming interfaces are built on.
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub mod raw {
    pub use crate::world::{
        Channel, ProposalBytes, RawBlocks, RawCollective, RawMessage, RawRequest, RawUpdate, SentMessage, Snapshot,
        Statistic, StatisticTopic, WindowBlocks, WindowReads, statistics,
    };
    pub use unisono_core::collective::{CollectiveKind, Order};
    pub use unisono_memory::element_type::ElementType;
    pub use unisono_shmem::reduction_ops::{Element, ReduceOperation, kind};
    pub use unisono_shmem::slot_collectives::data_executor::{Builtin, NoReduction, ReductionOp};
}

/// The README's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
