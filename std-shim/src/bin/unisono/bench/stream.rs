//! Windows of messages one after the other.

use core::time::Duration;
use std::time::Instant;

use unisono::rank::Rank;
use unisono::world::{Failure, Tag, World};

const DATA: Tag = Tag(6);
const DONE: Tag = Tag(7);
/// Messages of a window.
const WINDOW: usize = 64;

/// Sends windows of messages of `bytes` bytes from rank 0 to rank 1 for about `least`; every window is answered. Returns
/// messages and the time they took.
pub(super) fn windows(world: &World, bytes: usize, least: Duration) -> Result<(u64, Duration), Failure> {
    match world.rank() {
        Rank(0) => send(world, bytes, least),
        Rank(1) => receive(world, bytes),
        _ => Ok((0, Duration::ZERO)),
    }
}

fn send(world: &World, bytes: usize, least: Duration) -> Result<(u64, Duration), Failure> {
    let data = vec![7_u8; bytes * WINDOW];
    let mut messages = 0;
    // The first window warms up.
    window(world, &data, bytes)?;
    world.receive_into(&mut [0_u8], Rank(1), DONE)?;
    let started = Instant::now();
    loop {
        let ends = started.elapsed() >= least;
        world.send(&[u8::from(ends)], Rank(1), DONE)?;
        if ends {
            return Ok((messages, started.elapsed()));
        }
        window(world, &data, bytes)?;
        world.receive_into(&mut [0_u8], Rank(1), DONE)?;
        messages += WINDOW as u64;
    }
}

fn window(world: &World, data: &[u8], bytes: usize) -> Result<(), Failure> {
    world.scope(|scope| {
        let mut requests = Vec::with_capacity(WINDOW);
        for i in 0..WINDOW {
            let message = data.get(i * bytes..(i + 1) * bytes).unwrap_or_default();
            requests.push(scope.immediate_send(message, Rank(1), DATA)?);
        }
        requests.into_iter().try_for_each(|request| request.wait().map(|_| ()))
    })
}

fn receive(world: &World, bytes: usize) -> Result<(u64, Duration), Failure> {
    let mut data = vec![0_u8; bytes * WINDOW];
    loop {
        world.scope(|scope| {
            let mut rest = data.as_mut_slice();
            let mut requests = Vec::with_capacity(WINDOW);
            for _ in 0..WINDOW {
                let (message, behind) = rest.split_at_mut(bytes);
                rest = behind;
                requests.push(scope.immediate_receive_into(message, Rank(0), DATA)?);
            }
            requests.into_iter().try_for_each(|request| request.wait().map(|_| ()))
        })?;
        world.send(&[1_u8], Rank(0), DONE)?;
        let mut ends = [0_u8];
        world.receive_into(&mut ends, Rank(0), DONE)?;
        if ends == [1] {
            return Ok((0, Duration::ZERO));
        }
    }
}
