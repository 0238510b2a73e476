//! Claims: statements on a timeline that a lesson makes, and that are checked.

use crate::{frames::Frame, timeline::Timeline};

/// Whether a claim holds for a timeline.
///
/// | claim | holds if |
/// |---|---|
/// | `overlap A B` | both believe, at one time, in holds that exclude each other |
/// | `no overlap` | no two clients do so |
/// | `holds A N` | A believes in a hold N times |
/// | `order A B C` | these are the clients that begin to believe, in this order, and no other |
/// | `waits A B N` | B believes N seconds or more after the servers have deleted A's node |
/// | `woken A N` | A receives N events |
/// | `woken together N` | N clients receive an event of one node's deletion |
/// | `nodes A N` | A has at most N nodes at once, and N at some time |
/// | `told after reconnect A` | A sets its watches again, and receives an event that it has missed |
/// | `late write` | the storage accepts a token after a greater one |
/// | `late write refused` | it refuses one, and accepts none |
/// | `step A ID` | A sends a frame of this step |
/// | `lost A OP` | a reply of this operation does not arrive at A |
/// | `proof holds` | each belief of a strict mutex ends within its proven bound |
/// | `denied A` | A believes longer than the servers keep its node |
///
/// # Errors
///
/// What is wrong with the claim, or why it does not hold.
pub fn check(claim: &str, timeline: &Timeline) -> Result<(), String> {
    let client = |name: &str| timeline.client(name).ok_or_else(|| format!("no client {name}"));
    let number = |text: &str| text.parse::<usize>().map_err(|_| format!("{text} is no number"));
    let equal = |found: usize, expected: usize| {
        if found == expected { Ok(()) } else { Err(format!("{claim}: there are {found}")) }
    };
    let holds = |is_so: bool| if is_so { Ok(()) } else { Err(format!("{claim}: it is not so")) };
    let words: Vec<_> = claim.split_whitespace().collect();
    match words.as_slice() {
        ["overlap", a, b] => {
            let pair = [client(a)?, client(b)?];
            let both = timeline.overlaps.iter();
            holds(both.clone().any(|of| pair.iter().all(|client| of.clients.contains(client))))
        }
        ["no", "overlap"] => equal(timeline.overlaps.len(), 0),
        ["holds", name, count] => {
            let client = client(name)?;
            let holds = timeline.beliefs.iter().filter(|of| of.client == client).count();
            equal(holds, number(count)?)
        }
        ["order", names @ ..] => {
            let names = names.iter().map(|name| client(name)).collect::<Result<Vec<_>, _>>()?;
            let found: Vec<_> = timeline.beliefs.iter().map(|of| of.client).collect();
            holds(found == names)
        }
        ["waits", before, after, seconds] => {
            let (before, after) = (client(before)?, client(after)?);
            let gone =
                timeline.truths.iter().filter(|of| of.client == before).map(|of| of.to).max();
            let mut begins = timeline.beliefs.iter().filter(|of| of.client == after);
            let least = number(seconds)? as u64 * 1_000_000;
            holds(gone.zip(begins.next()).is_some_and(|(gone, of)| of.from >= gone + least))
        }
        ["woken", "together", count] => {
            let events = timeline.frames.iter().filter(|frame| frame.kind() == "event");
            let deleted: Vec<_> =
                events.filter(|frame| frame.fields["event"] == "NodeDeleted").collect();
            let together = |sent| deleted.iter().filter(|frame| frame.sent == sent).count();
            let most = deleted.iter().map(|frame| together(frame.sent)).max();
            equal(most.unwrap_or(0), number(count)?)
        }
        ["woken", name, count] => {
            let client = client(name)?;
            let events = timeline.frames.iter().filter(|frame| frame.kind() == "event");
            equal(events.filter(|frame| frame.client == client).count(), number(count)?)
        }
        ["nodes", name, count] => {
            let client = client(name)?;
            let most = timeline.queues.iter().map(|queues| {
                queues.nodes.iter().filter(|node| node.client == Some(client)).count()
            });
            equal(most.max().unwrap_or(0), number(count)?)
        }
        ["told", "after", "reconnect", name] => {
            let client = client(name)?;
            let of_client = timeline.frames.iter().filter(|frame| frame.client == client);
            let sets = |frame: &&Frame| frame.to_server && frame.op().starts_with("setWatches");
            let mut set = of_client.clone().filter(sets);
            // The server sends what was missed in front of the reply.
            holds(set.any(|set| {
                let mut replies = of_client
                    .clone()
                    .filter(|frame| frame.connection == set.connection && frame.sent > set.sent);
                replies.find(|frame| !frame.to_server).is_some_and(|first| first.kind() == "event")
            }))
        }
        ["late", "write"] => holds(timeline.writes.iter().any(|of| of.is_late && of.accepted)),
        ["late", "write", "refused"] => {
            let mut late = timeline.writes.iter().filter(|of| of.is_late);
            holds(late.clone().next().is_some() && late.all(|of| !of.accepted))
        }
        ["step", name, id] => {
            let client = client(name)?;
            let mut frames = timeline.frames.iter().filter(|frame| frame.client == client);
            holds(frames.any(|frame| frame.step == Some(*id)))
        }
        ["lost", name, op] => {
            let client = client(name)?;
            let of_client = timeline.frames.iter().filter(|frame| frame.client == client);
            let mut lost = of_client.filter(|frame| !frame.to_server && frame.arrived.is_none());
            holds(lost.any(|frame| frame.op() == *op))
        }
        ["proof", "holds"] => {
            let mut proven = timeline.beliefs.iter().map(|belief| {
                belief.bounds.iter().map(|(_, _, proven)| *proven).max().unwrap_or(0) >= belief.to
            });
            holds(proven.len() > 0 && proven.all(|is_proven| is_proven))
        }
        ["denied", name] => {
            let client = client(name)?;
            let mut believed = timeline.beliefs.iter().filter(|of| of.client == client);
            holds(believed.any(|belief| {
                let truth = timeline.truths.iter().filter(|of| of.client == client);
                let end = truth.filter(|of| of.path == belief.path).map(|of| of.to).max();
                end.is_some_and(|end| end < belief.to)
            }))
        }
        _ => Err(format!("{claim:?} is no claim")),
    }
}
