// The events of a timeline in words: the list for screen readers, and the positions of the cursor.

export const seconds = (us) => (us / 1e6).toFixed(3) + " s";

// GUIDs become G1, G2..., in the order of their appearance.
export class Names {
  constructor(timeline) {
    this.timeline = timeline;
    this.guids = new Map();
    this.steps = new Map(timeline.steps.map((step) => [step.id, step]));
  }
  // The step that a frame begins: a reply is part of its request's, but for the one that decides.
  step(frame) {
    const step = this.steps.get(frame.step);
    return step && (frame.fields.kind !== "reply" || step.number === 6) ? step : undefined;
  }
  short(text) {
    const guid = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;
    return text.replace(guid, (found) => {
      if (!this.guids.has(found)) this.guids.set(found, "G" + (this.guids.size + 1));
      return this.guids.get(found);
    });
  }
  client(number) {
    return this.timeline.clients[number] ?? "?";
  }
  frame(frame) {
    const body = frame.fields.body ?? {};
    const path = body.path ? " " + body.path : "";
    const error = frame.fields.error ? " " + frame.fields.error : "";
    let text;
    switch (frame.fields.kind) {
      case "connect":
        text = frame.to_server
          ? body.sessionId ? "connect, resume session" : "connect"
          : body.timeOut ? "session" : "no such session";
        break;
      case "request": {
        const watch = body.watch ? ", watch" : "";
        const parts = Array.isArray(body) ? " of " + body.map((part) => part.op).join(", ") : "";
        text = `${frame.fields.op}${parts}${path}${watch}`;
        break;
      }
      case "reply":
        text = (frame.fields.op ?? "reply") + (error || " OK");
        break;
      case "event":
        text = `event ${frame.fields.event}${path}`;
        break;
      default:
        text = frame.text;
    }
    return this.short(text);
  }
}

const states = {
  Connected: "is connected", Suspended: "has lost the connection", Reconnected: "is connected again",
  Lost: "its session is lost", ReadOnly: "is connected to a read-only server", ended: "has ended", "is done": "is done",
};

// All events in the order of time: { at, client, kind, text, frame? }.
export function events(timeline, names, showsPings) {
  const all = [];
  timeline.frames.forEach((frame, index) => {
    if (!showsPings && frame.fields.op === "ping") return;
    const client = names.client(frame.client), server = "s" + frame.member, step = names.step(frame);
    const text = names.frame(frame) + (step?.number ? ` (step ${step.number}: ${step.title.toLowerCase()})` : "");
    const way = frame.to_server ? `${client} to ${server}` : `${server} to ${client}`;
    all.push({ at: frame.sent, client: frame.client, kind: "frame", frame: index, text: `${way}: ${text}` });
    if (frame.arrived === null)
      all.push({ at: frame.sent + 1, client: frame.client, kind: "lost", frame: index, text: `${way}: ${text}: does not arrive` });
    else all.push({ at: frame.arrived, client: frame.client, kind: "arrival", frame: index, text: `${way}: ${text}: arrives`, quiet: true });
  });
  for (const belief of timeline.beliefs) {
    const client = names.client(belief.client), node = names.short(belief.path);
    all.push({ at: belief.from, client: belief.client, kind: "belief", text: `${client} believes that it holds, by ${node}` });
    if (belief.to < timeline.end)
      all.push({ at: belief.to, client: belief.client, kind: "belief", text: `${client} believes no longer in ${node}` });
  }
  for (const truth of timeline.truths) {
    const client = names.client(truth.client), node = names.short(truth.path);
    all.push({ at: truth.from, client: truth.client, kind: "truth", text: `The servers: ${client} is first, by ${node}` });
    if (truth.to < timeline.end)
      all.push({ at: truth.to, client: truth.client, kind: "truth", text: `The servers: ${client} is first no longer: ${node} is gone` });
  }
  for (const overlap of timeline.overlaps) {
    const who = overlap.clients.map((client) => names.client(client)).join(" and ");
    all.push({ at: overlap.from, client: overlap.clients[0], kind: "overlap", text: `OVERLAP: ${who} believe at once, until ${seconds(overlap.to)}` });
  }
  for (const note of timeline.notes) {
    const text = note.is_state ? states[note.text] ?? note.text : names.short(note.text);
    all.push({ at: note.at, client: note.client, kind: note.is_state ? "state" : "note", text: `${names.client(note.client)}: ${text}` });
  }
  for (const fault of timeline.faults) {
    const who = fault.client !== null ? names.client(fault.client) + ": " : "";
    all.push({ at: fault.from, client: fault.client, kind: "fault", text: `Fault: ${who}${fault.text}` });
    if (fault.to > fault.from && fault.to < timeline.end)
      all.push({ at: fault.to, client: fault.client, kind: "fault", text: `${who}this fault is over: ${fault.text}` });
  }
  for (const text of timeline.violations) all.push({ at: timeline.end, client: null, kind: "overlap", text: `Broken rule: ${text}` });
  const order = all.map((event, index) => [event, index]);
  order.sort((a, b) => a[0].at - b[0].at || a[1] - b[1]);
  return order.map(([event]) => event);
}

export const grammar = `seed 1            decides delays and GUIDs
servers 3         1 to 5
session 6s        session timeout
delay 40ms        longest way of a message
run 30s           length of the run
leases 2          of a semaphore
storage checks    tokens; or: trusts
A: wait 1s, mutex 5s
                  a client and its steps: wait,
                  naive, sequential, mutex, strict,
                  read, write, downgrade, lease, latch
drop 7 to A       the 8th delivery; or: from A
at 3s cut A
at 3s stop A for 8s
at 3s kill A
at 3s expire A    the servers end its session
at 3s lose A for 5s      or: lose to A, lose from A
at 3s delay to A for 2s  or: delay from A
at 3s skew A 20%         the rate of its clock
at 3s delete first       or a path
at 3s isolate s0 for 5s
at 3s stop s1 for 5s
at 3s lag s2 for 5s
plan 17           a seed of cargo xtask sim`;
