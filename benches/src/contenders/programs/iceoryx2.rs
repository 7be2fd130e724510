//! Latency of iceoryx2, measured as `unisono bench latency --bytes 8` does: half the median of timed round trips
//! between two processes, each on a processor of its own, that publish and poll. Prints nanoseconds.

use std::{
    env,
    error::Error,
    io::{BufRead, BufReader},
    process::{Command, Stdio, id},
    time::Instant,
};

use iceoryx2::{
    port::{publisher::Publisher, subscriber::Subscriber},
    prelude::*,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const ROUNDS: usize = 10_000;
const WARM_UP: usize = 100;

type Port<T> = Result<T, Box<dyn Error>>;

/// Publishes to one service and polls the other.
struct Ball {
    publisher: Publisher<ipc::Service, u64, ()>,
    subscriber: Subscriber<ipc::Service, u64, ()>,
}

impl Ball {
    fn new(node: &Node<ipc::Service>, to: &str, from: &str) -> Port<Self> {
        let service = |name: &str| -> Port<_> {
            let name: ServiceName = name.try_into()?;
            Ok(node.service_builder(&name).publish_subscribe::<u64>().open_or_create()?)
        };
        let publisher = service(to)?.publisher_builder().create()?;
        let subscriber = service(from)?.subscriber_builder().create()?;
        Ok(Self { publisher, subscriber })
    }

    fn send(&self, ball: u64) -> Port<()> {
        self.publisher.loan_uninit()?.write_payload(ball).send()?;
        Ok(())
    }

    fn receive(&self) -> Port<u64> {
        loop {
            if let Some(sample) = self.subscriber.receive()? {
                return Ok(*sample);
            }
        }
    }
}

fn pin(index: usize) -> Port<()> {
    let allowed = sched_getaffinity(None)?;
    let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect();
    let mut one = CpuSet::new();
    one.set(processors[index * processors.len() / 2]);
    Ok(sched_setaffinity(None, &one)?)
}

fn main() -> Port<()> {
    set_log_level(LogLevel::Error);
    let name = env::args().nth(1).unwrap_or_else(|| format!("unisono-benches-{}", id()));
    let [there, back] = ["there", "back"].map(|way| format!("{name}/{way}"));
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    if env::args().count() > 1 {
        pin(1)?;
        let ball = Ball::new(&node, &back, &there)?;
        println!("ready");
        for _ in 0..ROUNDS + WARM_UP {
            ball.send(ball.receive()?)?;
        }
        // The last ball is taken before its publisher goes.
        ball.receive()?;
        return Ok(());
    }
    let ball = Ball::new(&node, &there, &back)?;
    let mut other = Command::new(env::current_exe()?).arg(&name).stdout(Stdio::piped()).spawn()?;
    pin(0)?;
    if let Some(output) = other.stdout.take() {
        BufReader::new(output).read_line(&mut String::new())?;
    }
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS + WARM_UP {
        let start = Instant::now();
        ball.send(round as u64)?;
        ball.receive()?;
        if round >= WARM_UP {
            times.push(start.elapsed().as_nanos());
        }
    }
    ball.send(0)?;
    other.wait()?;
    times.sort_unstable();
    println!("{}", times[ROUNDS / 2] / 2);
    Ok(())
}
