//! Simulated hosts: network namespaces on one machine, on cables of a limited rate.

use std::process::Command;

/// Makes the bridges, hosts and cables, and runs a program beside them. Its arguments are the bytes of a token bucket, the
/// rates in bits per second and the hosts, each list in one word, and the program. All ends with the program.
const SET_UP: &str = "set -e
burst=$1 rates=$2 hosts=$3; shift 3
mount -t tmpfs tmpfs /run && mkdir /run/netns /run/cpu
ip link set lo up
rail=0
for rate in $rates; do
    ip link add name hub$rail type bridge && ip addr add 10.8$rail.0.254/24 dev hub$rail && ip link set hub$rail up
    rail=$((rail + 1))
done
cp /etc/hosts /run/hosts
i=1
for host in $hosts; do
    echo 10.80.0.$i $host >>/run/hosts
    echo $(((i - 1) % $(nproc))) >/run/cpu/$host
    ip netns add $host && ip -n $host link set lo up
    rail=0
    for rate in $rates; do
        port=port$rail-$host
        ip link add name $port type veth peer name rail$rail netns $host
        ip link set $port master hub$rail && ip link set $port up
        ip -n $host addr add 10.8$rail.0.$i/24 dev rail$rail && ip -n $host link set rail$rail up
        tc qdisc add dev $port root tbf rate ${rate}bit burst $burst limit 120000
        tc -n $host qdisc add dev rail$rail root tbf rate ${rate}bit burst $burst limit 120000
        rail=$((rail + 1))
    done
    i=$((i + 1))
done
mount --bind /run/hosts /etc/hosts
cat >/run/on <<'END'
#!/bin/sh
# Runs the words after the name of a host there as ssh does: in a shell.
host=$1; shift
exec taskset -c $(cat /run/cpu/$host) ip netns exec $host unshare --uts --mount sh -c \\
    'hostname $1 && mount -t tmpfs tmpfs /dev/shm && shift && exec sh -c \"$*\"' sh $host \"$@\"
END
chmod +x /run/on
exec \"$@\"";

/// Hosts with a network, name and shared memory of their own, each of which has a cable to the bridge of each rail. They
/// take turns on the processors. Host i, counted from 1, has the address 10.8R.0.i on rail R, and its name leads to that
/// on rail 0. Needs root, `ip`, `tc`, `taskset` and `unshare`.
#[derive(Clone, Copy, Debug)]
pub struct Lab<'l> {
    /// Their names, at most 250.
    pub hosts: &'l [&'l str],
    /// Bits per second of each rail, of which there are at most ten. A token bucket of two frames limits it at both ends of
    /// each cable.
    pub rates: &'l [f64],
}

impl Lab<'_> {
    /// The remote shell that reaches the hosts.
    pub const RSH: &'static str = "/run/on";
    /// The address on the first rail of what [`command`](Self::command) runs.
    pub const OUTSIDE: &'static str = "10.80.0.254";
    /// Bytes that a token bucket holds: two frames of the largest size.
    pub const BURST: usize = 2 * 1514;

    /// The hosts with `ranks` ranks on each, as launchers take them: `a:2,b:2`.
    pub fn places(&self, ranks: u32) -> String {
        self.hosts.iter().map(|host| format!("{host}:{ranks}")).collect::<Vec<_>>().join(",")
    }

    /// The network of a rail.
    pub fn network(rail: usize) -> String {
        format!("10.8{rail}.0.0/24")
    }

    /// A command to which a program and its arguments are to be added: makes the hosts, runs the program, and ends all
    /// processes of the hosts when it ends.
    pub fn command(&self) -> Command {
        let rates: Vec<String> = self.rates.iter().map(|rate| format!("{rate:.0}")).collect();
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", SET_UP, "sh"]);
        command.arg(Self::BURST.to_string()).arg(rates.join(" ")).arg(self.hosts.join(" "));
        command
    }
}
