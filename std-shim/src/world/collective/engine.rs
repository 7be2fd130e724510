//! Collectives over messages: contexts, schedules, the collectives under way and their transfers.

pub(in crate::world) mod active_collective;
pub(in crate::world) mod attached;
pub(in crate::world) mod context;
pub(in crate::world) mod group_lane;
pub(in crate::world) mod group_lanes;
pub(in crate::world) mod group_message;
pub(in crate::world) mod group_names;
pub(in crate::world) mod job_pool;
pub(in crate::world) mod machine;
pub(in crate::world) mod multicast_call;
pub(in crate::world) mod multicast_streams;
pub(in crate::world) mod progress_table;
pub(in crate::world) mod rdma_all_to_all;
pub(in crate::world) mod release_groups;
pub(in crate::world) mod rooted_stream;
pub(in crate::world) mod schedule;
pub(in crate::world) mod scratch_pool;
pub(in crate::world) mod started_calls;
pub(in crate::world) mod status;
pub(in crate::world) mod token_trees;
pub(in crate::world) mod transfer;
