//! Categories of variables: the settings and the counters, by topic.

use core::ffi::c_int;

use unisono::environment::catalogue::Topic;
use unisono::raw::StatisticTopic;

use super::{controls, counters};

/// What a category has.
#[derive(Debug)]
pub enum Content {
    /// Other categories: the first one and the one after the last.
    Categories(c_int, c_int),
    /// Control variables.
    Controls(Topic),
    /// Performance variables.
    Counters(StatisticTopic),
}

/// A category.
#[derive(Debug)]
pub struct Category {
    /// Its name.
    pub name: &'static str,
    /// What its variables are about.
    pub description: &'static str,
    content: Content,
}

const fn of(name: &'static str, description: &'static str, content: Content) -> Category {
    Category { name, description, content }
}

/// All categories.
pub static ALL: [Category; 13] = [
    of("unisono_settings", "The settings.", Content::Categories(2, 9)),
    of("unisono_counters", "The counters.", Content::Categories(9, 13)),
    of("unisono_job", "The job, and this process's place in it.", Content::Controls(Topic::Job)),
    of("unisono_launcher", "The launcher.", Content::Controls(Topic::Launcher)),
    of("unisono_transport", "The transport of messages.", Content::Controls(Topic::Transport)),
    of("unisono_faults", "Injected faults.", Content::Controls(Topic::Faults)),
    of("unisono_failures", "The failure of ranks.", Content::Controls(Topic::Failures)),
    of("unisono_algorithms", "The algorithms of collectives.", Content::Controls(Topic::Algorithms)),
    of("unisono_reports", "Reports.", Content::Controls(Topic::Reports)),
    of("unisono_messages", "Messages and collectives.", Content::Counters(StatisticTopic::Messages)),
    of("unisono_datagrams", "Datagrams.", Content::Counters(StatisticTopic::Datagrams)),
    of("unisono_multicast", "Multicast.", Content::Counters(StatisticTopic::Multicast)),
    of("unisono_one_sided", "One-sided communication.", Content::Counters(StatisticTopic::OneSided)),
];

impl Category {
    /// The indices of its categories.
    pub fn categories(&self) -> Vec<c_int> {
        if let Content::Categories(first, end) = self.content { (first..end).collect() } else { Vec::new() }
    }

    /// The indices of its control variables.
    pub fn controls(&self) -> Vec<c_int> {
        let Content::Controls(topic) = self.content else { return Vec::new() };
        indices(controls::all(), |variable| variable.topic == topic)
    }

    /// The indices of its performance variables.
    pub fn counters(&self) -> Vec<c_int> {
        let Content::Counters(topic) = self.content else { return Vec::new() };
        indices(counters::all(), |counter| counter.topic == topic)
    }
}

fn indices<T>(all: &[T], is_its: impl Fn(&T) -> bool) -> Vec<c_int> {
    (0..).zip(all).filter(|(_, one)| is_its(one)).map(|(index, _)| index).collect()
}
