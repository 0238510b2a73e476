// Faults: each is a line that is appended to the script, which then runs again.

export function time(us) {
  const ms = Math.ceil(us / 1000);
  return ms % 1000 ? `${ms}ms` : `${ms / 1000}s`;
}

// The faults of a client, of a server, and of everything: what is shown, and the line.
export const ofClient = (name) => [
  ["Cut", "its connection is cut; it connects again", `cut ${name}`],
  ["Lose", "nothing arrives, in both directions", `lose ${name} for 10s`],
  ["Lose →", "what it sends never arrives", `lose from ${name} for 10s`],
  ["Lose ←", "what is sent to it never arrives", `lose to ${name} for 10s`],
  ["Delay →", "what it sends arrives later", `delay from ${name} for 2s`],
  ["Delay ←", "what is sent to it arrives later", `delay to ${name} for 2s`],
  ["Stop 10 s", "its process is stopped, and goes on", `stop ${name} for 10s`],
  ["Kill", "its process ends", `kill ${name}`],
  ["End session", "the servers end its session", `expire ${name}`],
  ["Clock +20 %", "its clock is fast", `skew ${name} 20%`],
  ["Clock −20 %", "its clock is slow", `skew ${name} -20%`],
];
export const ofServer = (name) => [
  ["Isolate", "cut off from the other servers", `isolate ${name} for 10s`],
  ["Stop 5 s", "stopped, and started again", `stop ${name} for 5s`],
  ["Lag", "applies what others write later", `lag ${name} for 10s`],
];
export const ofAll = [["Delete the first node", "by hand, as an operator", "delete first"]];

// The lines for one message.
export function ofFrame(frame, timeline) {
  const client = timeline.clients[frame.client], way = frame.to_server ? "from" : "to";
  const lines = [];
  if (frame.delivery !== null) lines.push([`Drop this ${frame.to_server ? "request" : frame.fields.kind === "event" ? "event" : "reply"}`, "the connection ends in its place", `drop ${frame.delivery} ${way} ${client}`]);
  lines.push(["Delay it by 2 s", "and what is behind it", `at ${Math.floor(frame.sent / 1000)}ms delay ${way} ${client} for 2s`]);
  return lines;
}
