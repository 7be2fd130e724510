//! Programs of other projects: a server on the second adapter, a client on the first, and the table that one of them
//! prints.

use core::time::Duration;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use super::{DATAGRAMS, Processor, SHORT, TRIPS, WARM};
use crate::verbs::Outcome;

/// A program that takes longer has failed.
const BOUND: Duration = Duration::from_secs(20);
/// Bytes of a mebibyte, in which the programs count, in units of 10⁶.
const MEBI: f64 = 1.048_576;
/// The IPv6 GID of a port: with IPv4 addresses UCX 1.13 transfers nothing over Soft-RoCE.
const UCX_GID: &str = "0";
/// Messages of UCX: with its headers, datagrams as large as the link takes.
const UCX_BYTES: u32 = 4072;

pub(super) fn perftest_latency(adapters: [&str; 2]) -> Outcome<f64> {
    let [trips, bytes] = [TRIPS, SHORT].map(|number| number.to_string());
    let [_, client] = run(18515, &perftest("ib_send_lat", adapters, &["-n", &trips, "-s", &bytes]))?;
    figure(&client, &bytes, 4)
}

/// As the receiver counts.
pub(super) fn perftest_rate(adapters: [&str; 2]) -> Outcome<f64> {
    let how = ["-n", &DATAGRAMS.to_string(), "-s", "4096", "-t", "64", "-r", "2048"];
    let [server, _] = run(18515, &perftest("ib_send_bw", adapters, &how))?;
    Ok(figure(&server, "4096", 3)? * MEBI)
}

fn perftest(program: &str, [here, there]: [&str; 2], how: &[&str]) -> [Vec<String>; 2] {
    let one = |adapter: &str, to: &[&str]| {
        let all = [&[program, "-c", "UD", "-x", "1", "-F", "-d", adapter], how, to].concat();
        all.into_iter().map(str::to_owned).collect()
    };
    [one(there, &[]), one(here, &["127.0.0.1"])]
}

pub(super) fn ucx_latency(adapters: [&str; 2]) -> Outcome<f64> {
    let [_, client] = run(13337, &ucx(adapters, "ucp_am_lat", TRIPS, SHORT))?;
    figure(&client, "Final:", 2)
}

pub(super) fn ucx_rate(adapters: [&str; 2]) -> Outcome<f64> {
    let [_, client] = run(13337, &ucx(adapters, "ucp_am_bw", DATAGRAMS, UCX_BYTES))?;
    Ok(figure(&client, "Final:", 6)? * MEBI)
}

/// The server learns the test from the client.
fn ucx([here, there]: [&str; 2], test: &str, count: u32, bytes: u32) -> [Vec<String>; 2] {
    let one = |adapter: &str, how: &[&str]| {
        let settings = [&format!("UCX_NET_DEVICES={adapter}:1"), &format!("UCX_IB_GID_INDEX={UCX_GID}")];
        let settings = settings.map(|setting| setting.as_str());
        let all = [&["env", "UCX_TLS=ud_v,self"], &settings[..], &["ucx_perftest", "-p", "13337"], how].concat();
        all.into_iter().map(str::to_owned).collect()
    };
    let [count, bytes] = [count, bytes].map(|number| number.to_string());
    [one(there, &[]), one(here, &["-t", test, "-n", &count, "-w", &WARM.to_string(), "-s", &bytes, "127.0.0.1"])]
}

pub(super) fn libfabric_latency([here, there]: [&str; 2]) -> Outcome<f64> {
    let [trips, bytes] = [TRIPS, SHORT].map(|number| number.to_string());
    let one = |adapter: &str, to: &[&str]| {
        let domain = format!("{adapter}-dgram");
        let how = ["fi_pingpong", "-p", "verbs;ofi_rxd", "-e", "rdm", "-d", &domain, "-I", &trips, "-S", &bytes];
        [&how, to].concat().into_iter().map(str::to_owned).collect()
    };
    let [_, client] = run(47592, &[one(there, &[]), one(here, &["127.0.0.1"])])?;
    figure(&client, &bytes, 6)
}

/// Starts the server, waits until it listens, runs the client. Returns what both printed.
fn run(port: u16, [server, client]: &[Vec<String>; 2]) -> Outcome<[String; 2]> {
    let mut server = start(server, Processor::There)?;
    let started = Instant::now();
    while !listens(port)? {
        if let Some(status) = server.try_wait()? {
            return Err(format!("the server ended with {status}").into());
        }
        if started.elapsed() > BOUND {
            server.kill()?;
            return Err(format!("nobody listens at port {port}").into());
        }
        thread::sleep(Duration::from_millis(20));
    }
    let client = start(client, Processor::Here)?.wait_with_output()?;
    let server = server.wait_with_output()?;
    Ok([server, client].map(|output| {
        let [said, complained] =
            [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        said + &complained
    }))
}

fn start(words: &[String], side: Processor) -> Outcome<Child> {
    let mut command = Command::new("timeout");
    let mask = 1 << side as u32;
    command.args([&BOUND.as_secs().to_string(), "taskset", &format!("{mask:x}")]).args(words);
    Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
}

/// Whether somebody listens at the TCP port: the fourth word of a line of the kernel's table is 0A.
fn listens(port: u16) -> Outcome<bool> {
    let address = format!(":{port:04X}");
    let mut tables = String::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        tables += &fs::read_to_string(table)?;
    }
    Ok(tables
        .lines()
        .map(str::split_whitespace)
        .any(|mut words| words.nth(1).is_some_and(|local| local.ends_with(&address)) && words.nth(1) == Some("0A")))
}

/// The `column`-th word of the line that begins with `first`.
fn figure(text: &str, first: &str, column: usize) -> Outcome<f64> {
    let line = text.lines().map(str::split_whitespace).find(|words| words.clone().next() == Some(first));
    let figure = line.and_then(|mut words| words.nth(column)?.parse().ok());
    figure.ok_or_else(|| format!("no table:\n{text}").into())
}
