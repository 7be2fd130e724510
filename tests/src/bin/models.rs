//! scratch
use core::marker::PhantomData;
use unisono_tests::explore::{Explorer, Order};
use unisono_tests::models::clock::{Abstract, Clock, Relative};
use unisono_tests::models::window::{May, Window};

fn go<T: Clock, const W: usize, const B: u32, const N: usize>(m: u8, l: u8, credits: &'static [u16], may: May) {
    let model = Window::<T, W, B, N> { lifetime: l as i8, credits, may, clock: PhantomData };
    if std::env::var("AN").is_ok() {
        return analyse(&model, std::env::var("CAP").unwrap().parse().unwrap());
    }
    let r = Explorer {
        order: Order::Breadth,
        most_states: std::env::var("CAP").ok().and_then(|c| c.parse().ok()).unwrap_or(40_000_000),
    }
    .explore(&model);
    println!("{} W{W} B{B} N{N} m{m} L{l} {credits:?} {may:?}: {r}", T::NAME);
}

fn analyse<M: unisono_tests::explore::Model>(model: &M, cap: usize) {
    use std::collections::{HashMap, HashSet, VecDeque};
    let mut seen = HashSet::new();
    let mut q = VecDeque::new();
    let s = model.initial();
    seen.insert(s.clone());
    q.push_back(s);
    let mut fields: HashMap<String, HashMap<String, usize>> = HashMap::new();
    let mut acts = vec![];
    while let Some(s) = q.pop_front() {
        let d = format!("{s:?}");
        for part in ["sender: SendWindow", "inbound: Inbound", "receiver: ", "network: Network", "posted: "] {
            let i = d.find(part).unwrap();
            let (mut depth, mut end) = (0, d.len());
            for (k, c) in d[i..].char_indices() {
                match c {
                    '{' | '(' | '[' => depth += 1,
                    '}' | ')' | ']' => {
                        depth -= 1;
                    }
                    ',' if depth == 0 => {
                        end = i + k;
                        break;
                    }
                    _ => {}
                }
            }
            let text = &d[i..end];
            *fields.entry(part.into()).or_default().entry(text.into()).or_default() += 1;
            if part.starts_with("sender") || part.starts_with("inb") {
                for f in text.split([',', '{', '}']) {
                    if let Some((k, v)) = f.trim().split_once(':') {
                        *fields.entry(format!("{part}.{k}")).or_default().entry(v.into()).or_default() += 1;
                    }
                }
            }
        }
        acts.clear();
        model.actions(&s, &mut acts);
        for a in &acts {
            if let Some(n) = model.next(&s, a) {
                if seen.len() < cap && seen.insert(n.clone()) {
                    q.push_back(n);
                }
            }
        }
    }
    let mut f: Vec<_> = fields.iter().collect();
    f.sort_by_key(|f| f.0.clone());
    println!("{} states", seen.len());
    for (k, v) in f {
        let mut v: Vec<_> = v.iter().collect();
        v.sort_by_key(|x| core::cmp::Reverse(*x.1));
        if v.len() > 1 {
            println!("{k}: {}", v.len());
            for (t, n) in v.iter().take(if k.contains('.') { 12 } else { 6 }) {
                println!("      {n} {t}");
            }
        }
    }
}

fn main() {
    let a: Vec<String> = std::env::args().collect();
    if a[1].starts_with("life") {
        let n = |i: usize| a[i].parse::<u8>().unwrap();
        let f = |c: char| a[6].contains(c);
        let may = unisono_tests::models::life::May {
            messages: [n(2), n(3)],
            restart: [n(4) & 1 > 0, n(4) & 2 > 0],
            suspicions: n(5),
            finish_late: f('f'),
            double: f('d'),
            leave: !f('s'),
        };
        macro_rules! go {
            ($n:literal) => {{
                let model = unisono_tests::models::life::Lives::<$n>::new(may);
                let r = Explorer {
                    order: Order::Breadth,
                    most_states: std::env::var("CAP").ok().and_then(|c| c.parse().ok()).unwrap_or(40_000_000),
                }
                .explore(&model);
                println!("life N{} {may:?} sides {}: {r}", $n, model.sides());
            }};
        }
        match a[1].as_str() {
            "life1" => go!(1),
            "life2" => go!(2),
            _ => go!(3),
        }
        return;
    }
    let n = |i: usize| a[i].parse::<u8>().unwrap();
    let flag = |c: char| a[5].contains(c);
    let may = May { finish_late: flag('f'), lack_window: flag('l'), renew: flag('r'), probe_late: flag('p') };
    let credits: &'static [u16] = if flag('0') {
        &[0, 2]
    } else if flag('1') {
        &[0, 1, 2]
    } else if flag('3') {
        &[3]
    } else {
        &[2]
    };
    let (m, l) = (n(3), n(4));
    macro_rules! pick { ($($name:literal $t:ty, $w:literal $b:literal $n:literal;)*) => { match a[1].as_str() { $($name => go::<$t, $w, $b, $n>(m, l, credits, may),)* _ => panic!() } } }
    let _ = n(2);
    pick! {
        "a0.2.1" Abstract<0>, 2 3 1; "a0.2.2" Abstract<0>, 2 3 2; "a0.2.3" Abstract<0>, 2 3 3;
        "a1.2.1" Abstract<1>, 2 3 1; "a1.2.2" Abstract<1>, 2 3 2; "a1.2.3" Abstract<1>, 2 3 3;
        "a3.2.1" Abstract<3>, 2 3 1; "a3.2.2" Abstract<3>, 2 3 2;
        "a0.3.1" Abstract<0>, 3 4 1; "a0.3.2" Abstract<0>, 3 4 2; "a0.3.3" Abstract<0>, 3 4 3;
        "a1.3.1" Abstract<1>, 3 4 1; "a1.3.2" Abstract<1>, 3 4 2;
        "r0.2.1" Relative<0>, 2 3 1; "r0.2.2" Relative<0>, 2 3 2; "r0.2.3" Relative<0>, 2 3 3;
        "r0.3.1" Relative<0>, 3 4 1; "r0.3.2" Relative<0>, 3 4 2;
        "r1.2.1" Relative<1>, 2 3 1; "r1.2.2" Relative<1>, 2 3 2;
    }
}
