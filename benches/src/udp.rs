//! The UDP device without a protocol: datagrams leave from registered memory and are placed in such.

use core::net::Ipv4Addr;
use std::io;

use unisono_core::device::{Cause, Device, Lane, Memory, Received, Token, Transmit};
use unisono_core::ids::PeerId;
use unisono_core::span::{Region, Span};
use unisono_memory::region::Regions;
use unisono_udp::{MTU_MAX, MTU_MIN, Options, Udp};

use crate::race::BATCH;

/// Bytes before the payload, as many as a protocol's header.
const HEAD: u8 = 32;
const PEER: PeerId = PeerId(0);

/// A device with memory to send from and to receive into.
pub struct Side {
    device: Udp,
    regions: Regions,
    source: Region,
    target: Region,
    bytes: u32,
    cursor: u32,
}

impl Side {
    /// Two that know each other, for payloads of `bytes` bytes.
    ///
    /// # Errors
    /// The system refuses a socket or memory.
    pub fn pair(bytes: u32, gso: bool) -> io::Result<[Self; 2]> {
        let options =
            Options { mtu: Some((bytes + 36).max(MTU_MIN)), gso, ..Options::new(Ipv4Addr::LOCALHOST.into(), 1) };
        let side = || -> io::Result<Self> {
            // SAFETY: each side copies on its own thread, one batch after the other, and its memory is never freed.
            let mut regions = unsafe { Regions::new() };
            let mut memory = || regions.allocate(bytes as usize * BATCH).map_err(io::Error::other);
            let (source, target) = (memory()?, memory()?);
            Ok(Self {
                device: Udp::bind(&options).map_err(io::Error::other)?,
                regions,
                source,
                target,
                bytes,
                cursor: 0,
            })
        };
        let (mut a, mut b) = (side()?, side()?);
        a.device.set_path(PEER, b.device.local()?, MTU_MAX).map_err(io::Error::other)?;
        b.device.set_path(PEER, a.device.local()?, MTU_MAX).map_err(io::Error::other)?;
        Ok([a, b])
    }

    /// Sends at most `count` datagrams; says how many left: where the kernel cuts runs, a batch is of whole ones.
    pub fn send(&mut self, count: usize) -> usize {
        let mut sent = 0;
        for index in 0..count as u32 {
            let span = Span { region: self.source, offset: (index * self.bytes) as usize, bytes: self.bytes };
            let Some(mut token) = self.device.token(Lane::Polled) else { break };
            token.head().fill(index as u8);
            let transmit = Transmit {
                to: PEER,
                at: Lane::Polled,
                head: HEAD,
                payload: Some(span),
                solicited: false,
                cause: Cause::First,
            };
            token.post(&transmit, self.regions.address(span));
            sent += 1;
        }
        self.device.flush(Lane::Polled);
        sent
    }

    /// Receives and places at most one batch; says how many datagrams came.
    pub fn receive(&mut self) -> usize {
        let mut count = 0;
        for _ in 0..BATCH {
            let Some(datagram) = self.device.receive(Lane::Polled) else { break };
            let (slot, known) = (datagram.slot(), datagram.is_from(PEER) && datagram.head().len() > usize::from(HEAD));
            let span = Span { region: self.target, offset: (self.cursor * self.bytes) as usize, bytes: self.bytes };
            if let (true, Some(to)) = (known, self.regions.address(span)) {
                self.device.place(slot, HEAD.into(), self.bytes, to);
                count += 1;
            }
            self.cursor = (self.cursor + 1) % BATCH as u32;
            self.device.release(slot);
        }
        count
    }

    /// Datagrams that came so far.
    pub fn received(&self) -> u64 {
        self.device.tally().received.get()
    }
}
