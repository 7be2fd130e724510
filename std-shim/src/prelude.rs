//! All that most programs need: `use unisono::prelude::*;`.

pub use crate::collective::{
    AsView, AsViewMut, CollectiveError, CollectiveRequest, Complex, Operation, Partition, PartitionMut,
    PersistentRequest, Reproducible, SystemOperation, TypedBlocks, TypedBlocksMut, UserOperation, ValueIndex, Vector,
    View, ViewMut,
};
pub use crate::{
    AccumulateOperation, AgreeError, Agreement, AnyPersistent, AnyRequest, AttributeKey, Buffer, Cartesian,
    Communicator, CreateError, Datatype, DatatypeError, Equivalence, Error, ErrorClass, Failure, GetRequest, Graph,
    Grid, Group, LockKind, Message, Neighbour, Neighbourhood, Peer, PersistentExchange, PersistentMessage, PutRequest,
    Rank, RecvRequest, Request, RequestError, RequestFailed, Scope, SendBuffer, SplitType, Status, Tag, Window,
    WindowError, World, WorldError, start_all, test_all, test_any, test_some, wait_all, wait_any, wait_some,
};
/// Structs without padding are sent as they are: `#[derive(FromBytes, IntoBytes, Immutable)]`, with
/// `#[zerocopy(crate = "unisono::zerocopy")]` in a package that does not depend on zerocopy itself.
pub use zerocopy::{FromBytes, Immutable, IntoBytes};
