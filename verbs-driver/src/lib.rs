//! The verbs driver: unreliable datagrams and raw work queue entries on InfiniBand and RoCE adapters.
//!
//! The crate holds no code yet. Its place is fixed so that the driver can be added beside the other devices without
//! moving anything: it will implement `unisono_core::device::Device` over UD queue pairs.
#![no_std]
