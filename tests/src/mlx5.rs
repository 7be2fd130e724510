//! The raw mlx5 work queues: a software adapter that executes them, and a comparison with rdma-core's.

pub mod adapter;
pub mod rdma_core;
pub mod wqe;
