//! All that most programs need: `use unisono::prelude::*;`.

pub use crate::collective::{
    AsView, AsViewMut, CollectiveError, CollectiveRequest, Complex, Operation, Partition, PartitionMut,
    PersistentRequest, Reproducible, SystemOperation, TypedBlocks, TypedBlocksMut, UserOperation, ValueIndex, Vector,
    View, ViewMut,
};
pub use crate::{
    AgreeError, Agreement, AnyPersistent, AnyRequest, AttributeKey, Buffer, Cartesian, Communicator, CreateError,
    Equivalence, Error, ErrorClass, Failure, Graph, Grid, Group, Message, Neighbour, Neighbourhood, Peer,
    PersistentExchange, PersistentMessage, Rank, RecvRequest, Request, RequestError, RequestFailed, Scope, SendBuffer,
    SplitType, Status, Tag, World, WorldError, start_all, test_all, test_any, test_some, wait_all, wait_any, wait_some,
};
/// Structs without padding are sent as they are: `#[derive(FromBytes, IntoBytes, Immutable)]`, with
/// `#[zerocopy(crate = "unisono::zerocopy")]` in a package that does not depend on zerocopy itself.
pub use zerocopy::{FromBytes, Immutable, IntoBytes};
