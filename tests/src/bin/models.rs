//! scratch
use core::marker::PhantomData;
use unisono_core::time::Anytime;
use unisono_tests::explore::{Explorer, Order};
use unisono_tests::models::clock::{Clock, Relative};
use unisono_tests::models::window::{May, Window};

fn go<T: Clock, const W: usize, const B: u32, const N: usize>(m: u8, l: u8, credits: &'static [u16], may: May) {
    let model = Window::<T, W, B, N> { messages: m, lifetime: l, credits, may, clock: PhantomData };
    let r = Explorer { order: Order::Breadth, most_states: 40_000_000 }.explore(&model);
    println!("{} W{W} B{B} N{N} m{m} L{l} {credits:?} {may:?}: {r}", T::NAME);
}

fn main() {
    let a: Vec<String> = std::env::args().collect();
    let n = |i: usize| a[i].parse::<u8>().unwrap();
    let flag = |c: char| a[5].contains(c);
    let may = May { finish_late: flag('f'), lack_window: flag('l'), renew: flag('r'), drain: flag('d') };
    let credits: &'static [u16] = if flag('0') { &[0, 2] } else if flag('1') { &[0, 1, 2] } else if flag('3') { &[3] } else { &[2] };
    let (m, l) = (n(3), n(4));
    match (a[1].as_str(), n(2)) {
        ("any2", 1) => go::<Anytime, 2, 3, 1>(m, l, credits, may),
        ("any2", 2) => go::<Anytime, 2, 3, 2>(m, l, credits, may),
        ("any2", 3) => go::<Anytime, 2, 3, 3>(m, l, credits, may),
        ("any2", 4) => go::<Anytime, 2, 3, 4>(m, l, credits, may),
        ("any3", 1) => go::<Anytime, 3, 4, 1>(m, l, credits, may),
        ("any3", 2) => go::<Anytime, 3, 4, 2>(m, l, credits, may),
        ("any3", 3) => go::<Anytime, 3, 4, 3>(m, l, credits, may),
        ("rel2", 2) => go::<Relative, 2, 3, 2>(m, l, credits, may),
        ("rel2", 3) => go::<Relative, 2, 3, 3>(m, l, credits, may),
        ("rel3", 2) => go::<Relative, 3, 4, 2>(m, l, credits, may),
        _ => panic!(),
    }
}
