//! The lines of traces, and the alignment of Curator's lines with docent's.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// Identifies a list of lines that are compared in order: those of one client and one kind.
pub(crate) type List = (String, Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// `A -> create2(15) ...`
    Request,
    /// `A <- create2 OK ...`
    Reply,
    /// `# A ! cache ...`: a peer's report about a cache.
    Event,
}

/// The rules of the comparison, from the head of a scenario.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub(crate) kinds: BTreeSet<Kind>,
    /// Operations that are left out; with the prefix `watching`, only those that set a watch.
    pub(crate) without: Vec<String>,
    /// Requests are compared in any order.
    pub(crate) any_order: bool,
    /// A repeated request counts once.
    pub(crate) ignore_repeats: bool,
    /// Requests that only docent sends are no difference.
    pub(crate) allow_extra_requests: bool,
    /// Reads that are repeated immediately after a reconnect count once.
    pub(crate) collapse_repeated_reads: bool,
}

/// A line that is compared.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) list: List,
    /// Its index among all lines, including those that are not compared.
    pub(crate) at: usize,
    /// The text without the parts that differ from run to run. Each id is `@`.
    masked: String,
    /// The ids, in the order of their places.
    ids: Vec<String>,
}

/// The lines of a text that are compared, in its order.
pub(crate) fn read<'a>(lines: impl Iterator<Item = &'a str>, rules: &Rules) -> Vec<Line> {
    let lines = lines.enumerate().filter_map(|(at, line)| {
        let (client, kind, text) = split(line)?;
        let op = text.split(['(', ' ']).next().unwrap_or_default();
        let is_left_out = |one: &String| match one.strip_prefix("watching ") {
            Some(one) => one == op && text.ends_with(" watch=true"),
            None => one == op,
        };
        let is_wire = matches!(kind, Kind::Request | Kind::Reply);
        if !rules.kinds.contains(&kind) || (is_wire && rules.without.iter().any(is_left_out)) {
            return None;
        }
        let (masked, ids) = mask(&sorted_children(&steady(text)));
        Some(Line { list: (client.to_owned(), kind), at, masked, ids })
    });
    let mut lines: Vec<_> = lines.collect();
    if rules.collapse_repeated_reads {
        collapse_repeated_reads(&mut lines);
    }
    let mut seen = BTreeSet::new();
    lines.retain(|line| {
        let is_request = line.list.1 == Kind::Request;
        !(rules.ignore_repeats && is_request)
            || seen.insert((line.list.clone(), line.masked.clone()))
    });
    lines
}

/// Client, kind and text. A client keeps the name of its first connection; a recording writes `A'` after a reconnect.
fn split(line: &str) -> Option<(&str, Kind, &str)> {
    let line = line.split("   [[").next()?.trim();
    let (client, kind, text) = if let Some(comment) = line.strip_prefix("# ") {
        let (client, event) = comment.split_once(" ! ")?;
        let is_of_cache = event.starts_with("cache ");
        (client, is_of_cache.then_some(Kind::Event)?, event)
    } else if let Some((client, text)) = line.split_once(" -> ") {
        (client, Kind::Request, text)
    } else {
        let (client, text) = line.split_once(" <- ")?;
        (client, Kind::Reply, text)
    };
    let client = client.trim_end_matches(['\'', '*']);
    (client.len() == 1).then_some((client, kind, text))
}

/// Leaves out the granted timeout, and the zxid of setWatches, which recordings do not have.
fn steady(text: &str) -> String {
    match (text.strip_prefix("connected timeout="), text.split_once(" zxid=")) {
        (Some(timeout), _) if timeout.starts_with("0 ") => "connected (SESSION EXPIRED)".to_owned(),
        (Some(_), _) => "connected".to_owned(),
        (None, Some((front, back))) => match back.split_once(' ') {
            Some((_, back)) => format!("{front} {back}"),
            None => text.to_owned(),
        },
        (None, None) => text.to_owned(),
    }
}

/// Sorts the children, because a server's order of children is not defined.
fn sorted_children(text: &str) -> String {
    let Some((front, list)) = text.split_once("children=[") else { return text.to_owned() };
    let Some((list, tail)) = list.split_once(']') else { return text.to_owned() };
    let mut names: Vec<_> = list.split(", ").collect();
    // The sequence number comes first, since GUIDs differ from run to run.
    names.sort_by_key(|name| (name.rsplit('-').next(), *name));
    format!("{front}children=[{}]{tail}", names.join(", "))
}

/// Replaces the ids in a text, and returns them: `G1` or a UUID, after `_c_` or as a name in a path.
fn mask(text: &str) -> (String, Vec<String>) {
    let (mut masked, mut ids, mut copied) = (String::new(), Vec::new(), 0);
    for place in ids_of(text) {
        masked.push_str(&text[copied..place.start]);
        masked.push('@');
        ids.push(text[place.clone()].to_owned());
        copied = place.end;
    }
    (masked + &text[copied..], ids)
}

/// The places of the ids in a text.
pub(crate) fn ids_of(text: &str) -> Vec<Range<usize>> {
    let is_end = |at: usize| !text[at..].starts_with(|c: char| c.is_ascii_alphanumeric());
    let id_at = |start: usize| {
        let rest = &text[start..];
        let digits = rest.strip_prefix('G')?.bytes().take_while(u8::is_ascii_digit).count();
        (digits > 0 && is_end(start + 1 + digits)).then_some(start..start + 1 + digits)
    };
    let uuid_at = |start: usize| {
        let name = text.get(start..start + 36)?;
        let is_uuid = name.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
        is_uuid.then_some(start..start + 36)
    };
    let starts = text.match_indices("_c_").map(|(at, _)| at + 3);
    let starts = starts.chain(text.match_indices('/').map(|(at, _)| at + 1));
    let places: BTreeMap<_, _> = starts
        .filter_map(|start| id_at(start).or_else(|| uuid_at(start)))
        .map(|place| (place.start, place))
        .collect();
    places.into_values().collect()
}

/// After a cut and a reconnect, `ready`, the members and the member's own node may be read once or twice, and so may a
/// barrier. The watches are set again by such a read, or before it by setWatches.
fn collapse_repeated_reads(lines: &mut Vec<Line>) {
    let mut kept: Vec<Line> = Vec::new();
    for line in lines.drain(..).filter(|line| !line.masked.contains("Watches(")) {
        kept.push(line);
        let same = |a: &Line, b: &Line| (&a.list, &a.masked) == (&b.list, &b.masked);
        if let [.., a, b, c, d, e, f] = &kept[..]
            && same(a, d)
            && same(b, e)
            && same(c, f)
            && a.masked.contains("/ready watch=true")
        {
            kept.truncate(kept.len() - 3);
        }
        if let [.., a, b] = &kept[..]
            && same(a, b)
            && a.masked.contains("getData(4)")
        {
            kept.truncate(kept.len() - 1);
        }
    }
    *lines = kept;
}

/// The alignment of two texts.
#[derive(Debug, Default)]
pub(crate) struct Alignment {
    /// The indices of equal lines.
    pub(crate) both: Vec<(usize, usize)>,
    pub(crate) left: Vec<Line>,
    pub(crate) right: Vec<Line>,
    /// Maps each id on the right to its id on the left.
    pub(crate) ids: BTreeMap<String, String>,
}

/// Pairs the lines of two texts, list by list; ids correspond one to one.
pub(crate) fn align(left: Vec<Line>, right: Vec<Line>, rules: &Rules) -> Alignment {
    let lists: BTreeSet<List> = left.iter().chain(&right).map(|line| line.list.clone()).collect();
    let mut result = Alignment::default();
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for list in lists {
        let of = |lines: &[Line]| {
            let mut lines: Vec<_> =
                lines.iter().filter(|line| line.list == list).cloned().collect();
            if list.1 == Kind::Event || (rules.any_order && list.1 == Kind::Request) {
                lines.sort_by(|a, b| a.masked.cmp(&b.masked));
            }
            lines
        };
        for (left, right) in longest_common(&of(&left), &of(&right)) {
            match (left, right) {
                (Some(left), Some(right)) => {
                    let pairs = || left.ids.iter().zip(&right.ids);
                    let fits = pairs().all(|(left, right)| {
                        known.get(left).unwrap_or(right) == right
                            && result.ids.get(right).unwrap_or(left) == left
                    });
                    if fits {
                        for (left, right) in pairs() {
                            known.insert(left.clone(), right.clone());
                            result.ids.insert(right.clone(), left.clone());
                        }
                        result.both.push((left.at, right.at));
                    } else {
                        result.left.push(left);
                        result.right.push(right);
                    }
                }
                (left, right) => {
                    result.left.extend(left);
                    result.right.extend(right);
                }
            }
        }
    }
    result.right.retain(|line| !(rules.allow_extra_requests && line.list.1 == Kind::Request));
    result
}

/// Pairs of equal lines, and lines that only one side has, by the longest common subsequence.
fn longest_common(left: &[Line], right: &[Line]) -> Vec<(Option<Line>, Option<Line>)> {
    let width = right.len() + 1;
    let mut table = vec![0_u32; (left.len() + 1) * width];
    for (i, l) in left.iter().enumerate().rev() {
        for (j, r) in right.iter().enumerate().rev() {
            let next = i * width + j;
            table[next] = match l.masked == r.masked {
                true => table[next + width + 1] + 1,
                false => table[next + width].max(table[next + 1]),
            };
        }
    }
    let (mut i, mut j, mut pairs) = (0, 0, Vec::new());
    loop {
        let (l, r) = (left.get(i), right.get(j));
        let is_left_first = l.is_some()
            && table[i * width + j] == table.get((i + 1) * width + j).copied().unwrap_or(0);
        match (l, r) {
            (None, None) => return pairs,
            (Some(l), Some(r)) if l.masked == r.masked => {
                pairs.push((Some(l.clone()), Some(r.clone())));
                (i, j) = (i + 1, j + 1);
            }
            (Some(l), _) if r.is_none() || is_left_first => {
                pairs.push((Some(l.clone()), None));
                i += 1;
            }
            _ => {
                pairs.push((None, r.cloned()));
                j += 1;
            }
        }
    }
}
