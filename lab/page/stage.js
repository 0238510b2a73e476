// The stage: lanes, frames, and bars of belief and truth, up to a time. Only what is in view is drawn.

import { seconds } from "./words.js";

const NS = "http://www.w3.org/2000/svg";
const LEFT = 92, TOP = 34, STORAGE = 40;
// The height of a client and of a server: less on a phone in landscape.
let ROW = 78, SERVER = 46;

export function element(name, attributes = {}, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export const colour = (client) => `var(--c${client % 8})`;

// From time to place and back. Idle times are short, and no two events are closer than some pixels: a run of half a minute
// whose messages take milliseconds is readable as a whole.
export class Scale {
  constructor(timeline, zoom, showsPings) {
    const times = new Set([0, timeline.end]);
    const add = (time) => time !== null && time <= timeline.end && times.add(time);
    for (const frame of timeline.frames)
      if (showsPings || frame.fields.op !== "ping") { add(frame.sent); add(frame.arrived); }
    for (const list of [timeline.beliefs, timeline.truths, timeline.faults]) for (const of of list) { add(of.from); add(of.to); }
    for (const list of [timeline.notes, timeline.writes]) for (const of of list) add(of.at);
    this.times = [...times].sort((a, b) => a - b);
    this.places = [LEFT];
    for (let at = 1; at < this.times.length; at++) {
      const gap = (this.times[at] - this.times[at - 1]) / 1000;
      this.places.push(this.places[at - 1] + zoom * (2.5 + 7.5 * Math.log1p(gap / 6)));
    }
    this.width = this.places[this.places.length - 1] + 60;
  }
  static find(list, value) {
    let low = 0, high = list.length - 1;
    while (low < high - 1) {
      const middle = (low + high) >> 1;
      if (list[middle] <= value) low = middle; else high = middle;
    }
    return low;
  }
  static map(from, to, value) {
    if (from.length < 2) return to[0];
    const at = Scale.find(from, value);
    const part = (value - from[at]) / (from[at + 1] - from[at]);
    return to[at] + Math.min(1, Math.max(0, part)) * (to[at + 1] - to[at]);
  }
  x(time) { return Scale.map(this.times, this.places, time); }
  time(x) { return Scale.map(this.places, this.times, x); }
}

export class Stage {
  constructor(svg, scroll, onSelect) {
    this.svg = svg;
    this.scroll = scroll;
    this.onSelect = onSelect;
    this.timeline = null;
  }
  set(timeline, names, options) {
    [ROW, SERVER] = innerHeight < 480 ? [58, 32] : [78, 46];
    this.timeline = timeline;
    this.names = names;
    this.options = options;
    this.scale = new Scale(timeline, options.zoom || 1, options.pings);
    if (!options.zoom) {
      const room = (this.scroll.clientWidth - LEFT - 70) / (this.scale.width - LEFT - 60);
      this.scale = new Scale(timeline, Math.min(2, Math.max(.6, room)), options.pings);
    }
    this.hasStorage = timeline.writes.length > 0;
    this.height = TOP + timeline.clients.length * ROW + timeline.members * SERVER + (this.hasStorage ? STORAGE : 0) + 8;
    // Each step has the time until which it is in view, so that the search for the first one is short.
    this.frames = timeline.frames.map((frame, index) => ({ frame, index }))
      .filter(({ frame }) => options.pings || frame.fields.op !== "ping");
    this.longest = Math.max(0, ...this.frames.map(({ frame }) => (frame.arrived ?? frame.sent) - frame.sent));
  }
  clientY(client) { return TOP + client * ROW + 16; }
  serverY(member) { return TOP + this.timeline.clients.length * ROW + member * SERVER + 24; }
  get storageY() { return TOP + this.timeline.clients.length * ROW + this.timeline.members * SERVER + 20; }

  // Draws up to a time. `all`: everything, not only what is in view.
  draw(now, selected, all = false) {
    const { timeline, scale, scroll } = this;
    const left = all ? 0 : scroll.scrollLeft - 80, right = all ? scale.width : scroll.scrollLeft + scroll.clientWidth + 80;
    const from = scale.time(Math.max(LEFT, left)), to = Math.min(now, scale.time(right));
    const width = Math.max(scale.width, scroll.clientWidth - 2);
    const svg = this.svg;
    svg.setAttribute("width", width);
    svg.setAttribute("height", this.height);
    svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    const parts = [this.definitions(), this.axis(from, scale.time(right)), this.lanes(width)];
    const isIn = (of) => of.from <= to && of.to >= from;
    const bars = element("g");
    this.stated = [];
    for (const fault of timeline.faults.filter(isIn)) bars.append(...this.fault(fault, now));
    for (const truth of timeline.truths.filter(isIn)) bars.append(...this.truth(truth, now));
    for (const belief of timeline.beliefs.filter(isIn)) bars.append(...this.belief(belief, now));
    for (const overlap of timeline.overlaps.filter(isIn)) bars.append(...this.overlap(overlap, now));
    parts.push(bars);
    const frames = element("g");
    const first = from - this.longest;
    for (const { frame, index } of this.frames) {
      if (frame.sent < first) continue;
      if (frame.sent > to) break;
      if ((frame.arrived ?? frame.sent) >= from || frame.sent >= from) frames.append(this.frame(frame, index, now, index === selected));
    }
    parts.push(frames);
    for (const note of timeline.notes) if (note.is_state && note.at >= from && note.at <= to) parts.push(...this.state(note));
    for (const write of timeline.writes) if (write.at >= from && write.at <= to) parts.push(...this.write(write));
    const x = scale.x(now);
    parts.push(element("line", { x1: x, x2: x, y1: TOP - 14, y2: this.height, stroke: "var(--accent)", "stroke-width": 1.5 }),
      element("path", { d: `M${x - 6} ${TOP - 18}h12l-6 8z`, fill: "var(--accent)" }));
    parts.push(this.labels(all ? 0 : scroll.scrollLeft));
    svg.replaceChildren(...parts);
    this.drawn = frames.childElementCount;
  }
  definitions() {
    const definitions = element("defs");
    const hatch = (id, width, path, stroke) => {
      const pattern = element("pattern", { id, width, height: width, patternUnits: "userSpaceOnUse" });
      pattern.append(element("path", { d: path, stroke, "stroke-width": 2, fill: "none" }));
      return pattern;
    };
    definitions.append(hatch("red", 8, "M0 8L8 0M-2 2L2 -2M6 10L10 6", "var(--bad)"), hatch("bars", 5, "M1 0V5", "var(--stop)"));
    return definitions;
  }
  axis(from, to) {
    const axis = element("g"), { scale } = this;
    const places = [];
    // Whole seconds first, and parts of them where there is room.
    for (const step of [1000000, 250000]) {
      for (let time = Math.floor(from / step) * step; time <= Math.min(to, this.timeline.end); time += step) {
        const x = scale.x(time);
        if (x < LEFT - 1 || places.some((place) => Math.abs(place - x) < 58)) continue;
        places.push(x);
        axis.append(element("line", { x1: x, x2: x, y1: TOP - 8, y2: this.height, stroke: "var(--line)", "stroke-dasharray": "1 4" }));
        axis.append(element("text", { x: x + 3, y: 14, class: "soft mono", "font-size": 11 }, (time / 1e6).toFixed(time % 1e6 ? 2 : 0) + " s"));
      }
    }
    return axis;
  }
  lanes(width) {
    const lanes = element("g"), { timeline } = this;
    timeline.clients.forEach((_, client) => {
      const y = this.clientY(client);
      lanes.append(element("line", { x1: 0, x2: width, y1: y, y2: y, stroke: colour(client), "stroke-width": 1.5, opacity: .55 }));
    });
    for (let member = 0; member < timeline.members; member++) {
      const y = this.serverY(member);
      lanes.append(element("line", { x1: 0, x2: width, y1: y, y2: y, stroke: "var(--truth)", "stroke-width": 2, opacity: .6 }));
    }
    if (this.hasStorage) lanes.append(element("line", { x1: 0, x2: width, y1: this.storageY, y2: this.storageY, stroke: "var(--soft)", "stroke-width": 1, "stroke-dasharray": "4 3" }));
    return lanes;
  }
  // The names stay in view while the stage is scrolled.
  labels(offset) {
    const labels = element("g", { transform: `translate(${offset} 0)` }), { timeline } = this;
    labels.append(element("rect", { x: 0, y: 0, width: LEFT - 14, height: this.height, fill: "var(--bg)" }));
    timeline.clients.forEach((name, client) => {
      const y = this.clientY(client);
      labels.append(element("circle", { cx: 20, cy: y, r: 12, fill: colour(client) }),
        element("text", { x: 20, y: y + 4.5, "text-anchor": "middle", "font-weight": 700, fill: "var(--bg)", class: "name" }, name.length < 3 ? name : name.slice(0, 3)));
      labels.append(element("text", { x: 8, y: y + 27, class: "soft", "font-size": 10.5 }, "believes"));
      labels.append(element("text", { x: 8, y: y + 44, class: "soft", "font-size": 10.5 }, "servers say"));
    });
    for (let member = 0; member < timeline.members; member++) {
      const y = this.serverY(member);
      labels.append(element("rect", { x: 6, y: y - 11, width: 30, height: 22, rx: 5, fill: "var(--truth)" }),
        element("text", { x: 21, y: y + 4, "text-anchor": "middle", "font-weight": 700, class: "name" }, "s" + member));
    }
    if (this.hasStorage) labels.append(element("text", { x: 6, y: this.storageY + 4, "font-weight": 600 }, "storage"));
    for (const text of labels.querySelectorAll(".name")) text.style.fill = "var(--bg)";
    return labels;
  }
  titled(shape, text) {
    shape.append(element("title", {}, text));
    return shape;
  }
  belief(belief, now) {
    const { scale, names } = this;
    const y = this.clientY(belief.client) + 17, x = scale.x(belief.from), end = Math.min(belief.to, now);
    const width = Math.max(2, scale.x(end) - x), parts = [];
    const text = `${names.client(belief.client)} believes from ${seconds(belief.from)}` + (belief.to <= now ? ` to ${seconds(belief.to)}` : "");
    parts.push(this.titled(element("rect", { x, y, width, height: 13, rx: 3, fill: colour(belief.client), "fill-opacity": .38, stroke: colour(belief.client), "data-bar": "belief" }), text));
    const bounds = belief.bounds.filter(([at]) => at <= now);
    const [, until, proven] = bounds[bounds.length - 1] ?? [];
    // The proof as it was known at each time.
    bounds.forEach(([at, , known], index) => {
      const next = Math.min(bounds[index + 1]?.[0] ?? end, end), to = Math.min(known, next);
      if (to > at) parts.push(element("rect", { x: scale.x(at), y: y + 1, width: Math.max(1, scale.x(to) - scale.x(at)), height: 11, fill: colour(belief.client), "fill-opacity": .75 }));
    });
    if (belief.to > now) {
      const bound = (time, dash, label) => {
        const bx = scale.x(Math.min(time, this.timeline.end));
        if (bx <= scale.x(now)) return;
        parts.push(element("line", { x1: scale.x(now), x2: bx, y1: y + 6.5, y2: y + 6.5, stroke: colour(belief.client), "stroke-dasharray": dash }),
          this.titled(element("path", { d: `M${bx} ${y}v13`, stroke: colour(belief.client), "stroke-width": 3 }), label));
      };
      if (until !== null && until !== undefined) bound(until, "3 3", `believes until ${seconds(until)}, if nothing more arrives`);
      if (proven > now) bound(proven, "none", `proven until ${seconds(proven)}`);
    }
    if (width > 60) parts.push(element("text", { x: x + 5, y: y + 10.5, "font-size": 10.5, "font-weight": 600 }, "holds"));
    return parts;
  }
  truth(truth, now) {
    const { scale, names } = this;
    const y = this.clientY(truth.client) + 35, x = scale.x(truth.from), width = Math.max(2, scale.x(Math.min(truth.to, now)) - x);
    const text = `The servers: ${names.client(truth.client)} is first from ${seconds(truth.from)}` + (truth.to <= now ? ` to ${seconds(truth.to)}` : "");
    return [this.titled(element("rect", { x, y, width, height: 10, rx: 2, fill: "var(--truth)", "fill-opacity": .1, stroke: "var(--truth)", "stroke-width": 1.7, "data-bar": "truth" }), text)];
  }
  overlap(overlap, now) {
    const { scale, names } = this, parts = [];
    const x = scale.x(overlap.from), width = Math.max(3, scale.x(Math.min(overlap.to, now)) - x);
    const who = overlap.clients.map((client) => names.client(client)).join(" and ");
    const ys = overlap.clients.map((client) => this.clientY(client) + 15);
    const top = Math.min(...ys), bottom = Math.max(...ys) + 17;
    parts.push(element("rect", { x, y: top, width, height: bottom - top, fill: "var(--bad)", "fill-opacity": .07 }));
    for (const y of ys) parts.push(this.titled(element("rect", { x, y, width, height: 17, fill: "url(#red)", stroke: "var(--bad)", "stroke-width": 1.5, "data-bar": "overlap" }), `${who} believe at once`));
    const label = element("text", { x: x + 3, y: top + 43, "font-size": 11, "font-weight": 700 }, `⚠ ${who} at once`);
    label.style.fill = "var(--bad)";
    parts.push(label);
    return parts;
  }
  fault(fault, now) {
    const { scale } = this, parts = [];
    const x = scale.x(fault.from), width = Math.max(0, scale.x(Math.min(fault.to, now)) - x);
    const isClient = fault.client !== null;
    if (!isClient && fault.member === null) {
      parts.push(this.titled(element("text", { x: x - 5, y: 28, "font-size": 12 }, "⚡"), fault.text));
      return parts;
    }
    const y = isClient ? this.clientY(fault.client) - 13 : this.serverY(fault.member) - 16, height = isClient ? ROW - 10 : SERVER - 12;
    const isStop = fault.kind === "stop" || fault.kind === "kill";
    if (width > 0) parts.push(this.titled(element("rect", { x, y, width, height, rx: 4, fill: isStop ? "url(#bars)" : "var(--bad)", "fill-opacity": isStop ? .5 : .09, stroke: isStop ? "var(--stop)" : "var(--bad)", "stroke-opacity": .5, "stroke-dasharray": "4 3", "data-fault": fault.kind }), fault.text));
    const label = element("text", { x: x + 3, y: y + 9, "font-size": 10.5, "font-weight": 600, "data-fault": fault.kind }, "⚡ " + (isStop && width ? (fault.kind === "kill" ? "killed" : "stopped") : fault.kind));
    label.style.fill = "var(--bad)";
    if (isClient) this.stated.push({ client: fault.client, x });
    parts.push(this.titled(label, fault.text));
    return parts;
  }
  state(note) {
    const words = { Suspended: "✂ no connection", Lost: "✝ session lost", Reconnected: "↻ again" };
    if (!words[note.text]) return [];
    // States that follow each other, or a fault, closely are one above the other.
    const x = this.scale.x(note.at) + 2, crowd = this.stated.filter((of) => of.client === note.client && Math.abs(x - of.x) < 110).length;
    this.stated.push({ client: note.client, x });
    const label = element("text", { x, y: this.clientY(note.client) - 4 - 11 * (crowd % 3), "font-size": 10.5, "font-weight": 600 }, words[note.text]);
    label.style.fill = "var(--bad)";
    return [label];
  }
  write(write) {
    const x = this.scale.x(write.at), y = this.storageY, y0 = this.clientY(write.client), isBad = write.is_late && write.accepted;
    const shown = isBad ? "var(--bad)" : write.accepted ? "var(--good)" : "var(--soft)";
    const mark = isBad ? "⚠" : write.accepted ? "✓" : "✗";
    const label = element("text", { x, y: y + 15, "text-anchor": "middle", "font-size": 10.5, class: "mono" }, `${mark}${write.token}`);
    label.style.fill = shown;
    const text = `${this.names.client(write.client)} writes with token ${write.token}: ` + (isBad ? "accepted, after a greater one" : write.accepted ? "accepted" : "refused");
    return [element("line", { x1: x, x2: x, y1: y0, y2: y, stroke: colour(write.client), "stroke-width": 1, "stroke-dasharray": "1 3" }),
      this.titled(element("circle", { cx: x, cy: y, r: isBad ? 5 : 3.5, fill: shown, "data-write": isBad ? "late" : write.accepted ? "accepted" : "refused" }), text), label];
  }
  frame(frame, index, now, isSelected) {
    const { scale } = this;
    const y1 = frame.to_server ? this.clientY(frame.client) : this.serverY(frame.member);
    const y2 = frame.to_server ? this.serverY(frame.member) : this.clientY(frame.client);
    const x1 = scale.x(frame.sent), isLost = frame.arrived === null;
    const xEnd = isLost ? x1 + 26 : scale.x(frame.arrived);
    let part = isLost ? .45 : 1;
    if (!isLost && frame.arrived > now) part = Math.max(.03, (now - frame.sent) / Math.max(1, frame.arrived - frame.sent));
    const x2 = x1 + (xEnd - x1) * part, y = y1 + (y2 - y1) * part;
    const isEvent = frame.fields.kind === "event", shown = isLost ? "var(--bad)" : colour(frame.client);
    const group = element("g", { class: "hit", "data-frame": index, "data-lost": isLost });
    group.append(element("line", { x1, y1, x2, y2: y, stroke: "transparent", "stroke-width": 11 }));
    if (isSelected) group.append(element("line", { x1, y1, x2, y2: y, stroke: "var(--accent)", "stroke-width": 7, "stroke-opacity": .35, "stroke-linecap": "round" }));
    const attributes = { x1, y1, x2, y2: y, stroke: shown, "stroke-width": isEvent ? 2.2 : 1.4 };
    if (!frame.to_server) attributes["stroke-dasharray"] = isEvent ? "2 3" : "6 3";
    group.append(element("line", attributes));
    if (isLost) group.append(element("path", { d: `M${x2 - 4} ${y - 4}l8 8m0 -8l-8 8`, stroke: "var(--bad)", "stroke-width": 2.4 }));
    else if (part === 1) {
      const angle = Math.atan2(y2 - y1, xEnd - x1), turn = (by) => `${x2 - 7 * Math.cos(angle + by)} ${y - 7 * Math.sin(angle + by)}`;
      group.append(element("path", { d: `M${x2} ${y}L${turn(.42)}L${turn(-.42)}z`, fill: shown }));
    } else group.append(element("circle", { cx: x2, cy: y, r: 3.5, fill: shown }));
    const step = this.names.step(frame);
    if (step?.number && part === 1) {
      const [bx, by] = [x1 + (x2 - x1) * .5, y1 + (y - y1) * (.3 + (index % 3) * .18)];
      const sx = x1 + (x2 - x1) * ((by - y1) / (y - y1 || 1));
      group.append(element("circle", { cx: isNaN(sx) ? bx : sx, cy: by, r: 8, fill: "var(--panel)", stroke: shown }), element("text", { x: isNaN(sx) ? bx : sx, y: by + 3.5, "text-anchor": "middle", "font-size": 9.5, "font-weight": 700 }, step.number));
    }
    group.append(element("title", {}, this.names.frame(frame) + (isLost ? " (does not arrive)" : "")));
    group.addEventListener("click", () => this.onSelect(index));
    return group;
  }
  // A file of the whole stage, with its colours.
  file(now) {
    this.draw(now, null, true);
    const copy = this.svg.cloneNode(true);
    const style = getComputedStyle(document.documentElement);
    const names = ["bg", "panel", "ink", "soft", "line", "accent", "bad", "good", "stop", "truth", ...Array.from({ length: 8 }, (_, at) => "c" + at)];
    const rules = names.map((name) => `--${name}:${style.getPropertyValue("--" + name)}`).join(";");
    copy.setAttribute("xmlns", NS);
    copy.prepend(element("rect", { width: "100%", height: "100%", fill: "var(--bg)" }));
    copy.prepend(element("style", {}, `svg{${rules}}text{font:12px system-ui,sans-serif;fill:var(--ink)}.mono{font-family:monospace}.soft{fill:var(--soft)}`));
    return new XMLSerializer().serializeToString(copy);
  }
}
