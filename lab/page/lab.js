// The page: a script is run by the server, and its timeline is played here. Winding back moves the cursor; a fault is a line
// that is appended to the script, which runs again. The address holds the script, so a link is an experiment.

import { events, grammar, Names, seconds } from "./words.js";
import { Stage } from "./stage.js";
import { drawQueue } from "./queue.js";
import * as breaks from "./breaks.js";

const byId = (id) => document.getElementById(id);
const state = { lessons: [], lesson: null, script: "", timeline: null, now: 0, selected: null, playing: false, list: [], times: [], names: null, opened: 0 };
const stage = new Stage(byId("stage"), byId("scroll"), select);

// The address: `#lesson=NAME`, or a script with `;` for the ends of lines and `+` for spaces.
const encode = (script) => script.trim().split("\n").map((line) => line.trim()).filter(Boolean)
  .map((line) => encodeURIComponent(line).replace(/%20/g, "+").replace(/%2C/g, ",").replace(/%3A/g, ":").replace(/%2F/g, "/")).join(";");
function decode(fragment) {
  try {
    return fragment.split(";").map((line) => decodeURIComponent(line.replace(/\+/g, " "))).join("\n");
  } catch {
    return fragment;
  }
}

async function ask(path, options = {}) {
  const token = new URLSearchParams(location.search).get("token");
  const headers = { "X-Docent-Lab": "1", ...(token ? { Authorization: "Bearer " + token } : {}) };
  const response = await fetch(path, { ...options, headers }).catch(() => {
    throw new Error("The lab does not answer: is `docent lab` still running?");
  });
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

function tell(error) {
  byId("error").hidden = !error;
  byId("error").textContent = error ? error.message : "";
}

// Runs a script. `keeps`: the time stays, because what was before it is the same.
async function run(script, { keeps = false, address = true } = {}) {
  pause();
  state.script = script;
  byId("script").value = script;
  byId("undo").disabled = !lastFault(script);
  if (address) history.pushState(null, "", "#" + encode(script));
  document.body.dataset.ready = "no";
  let timeline;
  try {
    timeline = await ask("/run", { method: "POST", body: script });
    tell(null);
  } catch (error) {
    tell(error);
    byId("editor").open = true;
    document.body.dataset.ready = "error";
    return;
  }
  show(timeline, keeps ? state.now : 0);
}

function show(timeline, now) {
  state.timeline = timeline;
  state.names = new Names(timeline);
  refresh();
  breakMenu();
  move(now);
  document.body.dataset.ready = "yes";
}

// After a change of what is shown: the list of events, and the scale.
function refresh() {
  const pings = byId("pings").checked;
  state.list = events(state.timeline, state.names, pings);
  state.times = [...new Set(state.list.map((event) => event.at))];
  stage.set(state.timeline, state.names, { zoom: Number(byId("zoom").value), pings });
  const items = state.list.map((event, index) => {
    const item = document.createElement("li"), button = document.createElement("button"), time = document.createElement("time");
    if (event.quiet) item.hidden = true;
    time.textContent = seconds(event.at);
    button.append(time, event.text);
    button.dataset.at = index;
    item.append(button);
    return item;
  });
  state.items = items;
  byId("events").replaceChildren(...items);
  byId("slider").max = Math.max(1, Math.round(stage.scale.width));
}

function move(now, scrolls = true) {
  const { timeline } = state;
  if (!timeline) return;
  state.now = Math.max(0, Math.min(now, timeline.end));
  const scroll = byId("scroll"), x = stage.scale.x(state.now);
  if (scrolls && (x < scroll.scrollLeft + 140 || x > scroll.scrollLeft + scroll.clientWidth * .72)) {
    stage.svg.setAttribute("width", Math.max(stage.scale.width, scroll.clientWidth - 2));
    scroll.scrollLeft = x - scroll.clientWidth * .72;
  }
  draw();
  byId("time").textContent = seconds(state.now);
  byId("when").textContent = seconds(state.now);
  byId("slider").value = Math.round(x);
  byId("slider").setAttribute("aria-valuetext", seconds(state.now));
  const at = last();
  const event = state.list[at];
  if (!state.playing) byId("now").textContent = event ? `${seconds(event.at)}: ${event.text}` : "Press play, or step from event to event.";
  state.current?.removeAttribute("aria-current");
  const item = state.items[at]?.firstChild;
  item?.setAttribute("aria-current", "true");
  state.current = item;
  const list = byId("list");
  if (item && !item.parentElement.hidden) list.scrollTop = item.offsetTop - list.offsetTop - list.clientHeight / 2;
  if (state.now >= timeline.end) reveal();
}

function draw() {
  stage.draw(state.now, state.selected);
  drawQueue(byId("nodes"), state.timeline, state.names, state.now);
}

// The number of the last event until now.
function last() {
  let low = 0, high = state.list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (state.list[middle].at <= state.now) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function step(by) {
  pause();
  const { times, now } = state;
  const next = by > 0 ? times.find((time) => time > now) ?? state.timeline.end : times.findLast((time) => time < now) ?? 0;
  move(next);
  const event = state.list.findLast((event) => event.at <= state.now && event.frame !== undefined);
  if (event && event.at === state.now) select(event.frame, false);
}

function pause() {
  state.playing = false;
  byId("play").textContent = "▶";
  byId("play").setAttribute("aria-label", "Play");
}

// Places, not times, pass evenly: what happens fast is shown slowly.
function play() {
  if (state.playing) return pause(), move(state.now);
  if (!state.timeline) return;
  if (state.now >= state.timeline.end) move(0);
  state.playing = true;
  byId("play").textContent = "❚❚";
  byId("play").setAttribute("aria-label", "Pause");
  let before = performance.now();
  const frame = (at) => {
    if (!state.playing) return;
    const x = stage.scale.x(state.now) + Math.min(100, at - before) * .11 * Number(byId("speed").value);
    before = at;
    if (x >= stage.scale.x(state.timeline.end)) {
      pause();
      return move(state.timeline.end);
    }
    move(stage.scale.time(x));
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}

function row(list, name, text, isCode) {
  if (text === null || text === undefined || text === "") return;
  const term = document.createElement("dt"), value = document.createElement("dd");
  term.textContent = name;
  if (isCode) {
    const code = document.createElement("code");
    code.textContent = text;
    value.append(code);
  } else value.textContent = text;
  list.append(term, value);
}

function paragraph(text, kind) {
  const made = document.createElement("p");
  made.className = kind;
  made.textContent = text;
  return made;
}

function select(index, redraws = true) {
  state.selected = index;
  const frame = state.timeline.frames[index], names = state.names, parts = [];
  const client = names.client(frame.client), server = "s" + frame.member;
  parts.push(paragraph(names.short(frame.text), "line"));
  const facts = document.createElement("dl");
  row(facts, "from, to", frame.to_server ? `${client} → ${server}` : `${server} → ${client}`);
  row(facts, "sent", seconds(frame.sent));
  row(facts, "arrived", frame.arrived === null ? "never" : seconds(frame.arrived));
  row(facts, "xid", frame.fields.header?.xid);
  parts.push(facts);
  const known = names.steps.get(frame.step);
  if (known) {
    const step = document.createElement("div"), title = document.createElement("b");
    step.className = "step";
    title.textContent = (known.number ? `Step ${known.number}: ` : "") + known.title;
    const list = document.createElement("dl");
    row(list, "believes", known.belief);
    row(list, "Curator", known.curator, true);
    row(list, "docent", known.source, true);
    row(list, "guide", known.chapter + ".md");
    step.append(title, paragraph(known.text, ""), list);
    parts.push(step);
  }
  const lines = breaks.ofFrame(frame, state.timeline);
  if (state.timeline.takes_faults) parts.push(group("", lines));
  const fields = document.createElement("details"), summary = document.createElement("summary"), text = document.createElement("pre");
  summary.textContent = "Decoded fields";
  text.textContent = names.short(JSON.stringify(frame.fields.body ?? null, null, 1));
  fields.append(summary, text);
  const bytes = document.createElement("details"), title = document.createElement("summary"), hex = document.createElement("p");
  title.textContent = `${frame.length} bytes`;
  hex.className = "hex";
  hex.textContent = frame.hex === null ? "Not shown: they hold a password." : frame.hex.replace(/(..)/g, "$1 ");
  bytes.append(title, hex);
  parts.push(fields, bytes);
  byId("inspector").replaceChildren(...parts);
  if (redraws && frame.sent > state.now) move(frame.arrived ?? frame.sent);
  else draw();
}

function group(title, lines) {
  const made = document.createElement("div");
  made.className = "group";
  if (title) {
    const name = document.createElement("span");
    name.textContent = title;
    made.append(name);
  }
  for (const [label, text, line] of lines) {
    const button = document.createElement("button");
    button.className = "danger";
    button.textContent = label;
    button.title = text;
    button.dataset.line = line;
    button.addEventListener("click", () => append(line));
    made.append(button);
  }
  return made;
}

function breakMenu() {
  const { timeline } = state, target = document.createElement("select"), shown = document.createElement("div");
  if (!timeline.takes_faults) return byId("breaks").replaceChildren(paragraph("This is only shown: it takes no faults.", "quiet"));
  target.setAttribute("aria-label", "What to break");
  const names = timeline.clients.filter((name) => name !== "you");
  for (const name of names) target.append(new Option("Client " + name, name));
  for (let member = 0; member < timeline.members; member++) target.append(new Option("Server s" + member, "s" + member));
  target.append(new Option("The nodes", ""));
  const fill = () => {
    const name = target.value, isServer = !names.includes(name);
    shown.replaceChildren(group("", name === "" ? breaks.ofAll : isServer ? breaks.ofServer(name) : breaks.ofClient(name)));
  };
  if ([...target.options].some((option) => option.value === state.target)) target.value = state.target;
  target.addEventListener("change", () => {
    state.target = target.value;
    fill();
  });
  fill();
  byId("breaks").replaceChildren(target, shown);
}

// Appends a fault: at the cursor, unless it names its time or its message.
function append(line) {
  const at = line.startsWith("at ") || line.startsWith("drop ") ? line : `at ${breaks.time(state.now)} ${line}`;
  return run(state.script.trim() + "\n" + at, { keeps: true });
}

const isFault = (line) => /^\s*(at|drop)\s/.test(line);
const lastFault = (script) => script.split("\n").findLast(isFault);
function undo() {
  const lines = state.script.split("\n"), at = lines.findLastIndex(isFault);
  if (at < 0) return;
  lines.splice(at, 1);
  run(lines.join("\n"), { keeps: true });
}

function choose(lesson, address = true) {
  state.lesson = lesson;
  byId("lessons").value = lesson.name;
  byId("title").textContent = lesson.title;
  byId("question").textContent = lesson.question;
  byId("prediction").hidden = false;
  byId("answer").hidden = true;
  byId("choices").replaceChildren(...lesson.choices.map((choice, index) => {
    const label = document.createElement("label"), radio = document.createElement("input"), text = document.createElement("span");
    radio.type = "radio";
    radio.name = "choice";
    radio.value = index;
    text.textContent = choice;
    label.append(radio, text);
    radio.addEventListener("change", () => byId("play").focus({ preventScroll: true }));
    return label;
  }));
  if (address) history.pushState(null, "", "#lesson=" + lesson.name);
  state.selected = null;
  byId("inspector").replaceChildren(paragraph("Select an arrow, or step with the arrow keys.", "quiet"));
  return run(lesson.script, { address: false });
}

// At the end of a lesson's own run: what it shows, and whether the prediction was right.
function reveal() {
  const { lesson } = state;
  if (!lesson || state.script !== lesson.script || !byId("answer").hidden) return;
  const chosen = document.querySelector("input[name=choice]:checked");
  const labels = [...byId("choices").children];
  labels[lesson.right]?.classList.add("right");
  const verdict = byId("verdict");
  verdict.className = "";
  verdict.textContent = "";
  if (chosen) {
    const isRight = Number(chosen.value) === lesson.right;
    if (!isRight) labels[Number(chosen.value)].classList.add("wrong");
    verdict.textContent = isRight ? "Your prediction was right." : "The run shows otherwise.";
    verdict.className = isRight ? "good" : "bad";
  }
  byId("shows").textContent = lesson.shows;
  byId("claims").textContent = "Checked on this run: " + lesson.claims.join("; ") + ".";
  byId("chapter").textContent = `docs/guide/src/${lesson.chapter}.md`;
  byId("answer").hidden = false;
}

// Traffic: asks for what is new while it goes on, and follows its end unless the reader has gone back.
async function watchTraffic() {
  state.lesson = null;
  byId("lessons").value = "";
  byId("title").textContent = "Traffic";
  byId("question").textContent = "What clients send to a server, step by step. Who believes is read from the frames: first in a listing, until its delete.";
  for (const id of ["prediction", "answer", "editor"]) byId(id).hidden = true;
  let known = 0, goesOn = true;
  while (location.hash === "#traffic" && goesOn) {
    try {
      const timeline = await ask("/traffic?known=" + known);
      if (timeline) {
        const follows = !state.timeline || known === 0 || state.now >= state.timeline.end;
        known = timeline.frames.length;
        goesOn = timeline.is_live;
        show(timeline, follows ? timeline.end : state.now);
        tell(timeline.is_cut_off ? new Error(goesOn ? "No more is recorded: start the lab again. The relay goes on." : "The capture is longer: only its start is shown.") : null);
      } else tell(null);
    } catch (error) {
      tell(error);
    }
    if (goesOn) await new Promise((done) => setTimeout(done, 500));
  }
}

// What the address names.
function follow() {
  if (location.hash === "#traffic") return void watchTraffic();
  byId("editor").hidden = false;
  const fragment = location.hash.slice(1), name = fragment.match(/^lesson=([\w-]+)$/)?.[1];
  const lesson = state.lessons.find((lesson) => lesson.name === (name ?? (fragment ? "" : state.lessons[0].name)));
  if (lesson) return choose(lesson, false);
  state.lesson = null;
  byId("lessons").value = "";
  byId("title").textContent = "An experiment";
  byId("question").textContent = "The address holds this script: whoever opens it sees the same run.";
  byId("prediction").hidden = true;
  byId("answer").hidden = true;
  byId("editor").open = true;
  return run(decode(fragment), { address: false });
}

function neighbour(by) {
  const at = state.lessons.indexOf(state.lesson) + by;
  const lesson = state.lessons[(at + state.lessons.length) % state.lessons.length];
  if (lesson) choose(lesson);
}

function theme() {
  const root = document.documentElement, isDark = getComputedStyle(root).colorScheme === "dark";
  root.dataset.theme = isDark ? "light" : "dark";
}

function save() {
  const blob = new Blob([stage.file(state.now)], { type: "image/svg+xml" }), link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = (state.lesson?.name ?? "experiment") + ".svg";
  link.click();
  URL.revokeObjectURL(link.href);
  draw();
}

async function share() {
  const button = byId("share");
  history.replaceState(null, "", state.lesson && state.script === state.lesson.script ? "#lesson=" + state.lesson.name : "#" + encode(state.script));
  try {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "Copied";
  } catch {
    button.textContent = "It is in the address bar";
  }
  setTimeout(() => (button.textContent = "Copy link"), 1500);
}

function zoom(by) {
  const list = byId("zoom"), next = list.selectedIndex + by;
  if (next < 0 || next >= list.options.length) return;
  list.selectedIndex = next;
  refresh();
  move(state.now);
}

const keys = {
  " ": play, ArrowRight: () => step(1), ArrowLeft: () => step(-1),
  Home: () => (pause(), move(0)), End: () => (pause(), move(state.timeline.end)),
  Enter: () => {
    const event = state.list.findLast((event) => event.at <= state.now && event.frame !== undefined);
    if (event) select(event.frame, false);
  },
  "+": () => zoom(1), "-": () => zoom(-1),
  d: () => byId("inspector").querySelector("[data-line^=drop]")?.click(),
  b: () => byId("breaks").querySelector("select,button")?.focus(),
  u: undo, n: () => neighbour(1), p: () => neighbour(-1), "?": () => byId("keys").showModal(),
};

addEventListener("keydown", (event) => {
  const on = event.target, isField = on.matches("textarea,select,input:not([type=range])");
  if (event.ctrlKey || event.metaKey || event.altKey || isField || byId("keys").open || !state.timeline) return;
  // A button keeps its own keys.
  if (on.matches("button,summary,a") && (event.key === " " || event.key === "Enter")) return;
  const action = keys[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

byId("start").onclick = keys.Home;
byId("end").onclick = keys.End;
byId("back").onclick = () => step(-1);
byId("step").onclick = () => step(1);
byId("play").onclick = play;
byId("slider").oninput = () => (pause(), move(stage.scale.time(Number(byId("slider").value))));
byId("zoom").onchange = () => (refresh(), move(state.now));
byId("pings").onchange = () => (refresh(), move(state.now));
byId("scroll").onscroll = () => state.timeline && !state.playing && requestAnimationFrame(draw);
byId("rerun").onclick = () => run(byId("script").value);
byId("undo").onclick = undo;
byId("share").onclick = share;
byId("svg").onclick = save;
byId("theme").onclick = theme;
byId("help").onclick = () => byId("keys").showModal();
byId("lessons").onchange = () => {
  const lesson = state.lessons.find((lesson) => lesson.name === byId("lessons").value);
  if (lesson) choose(lesson);
};
byId("events").onclick = (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const chosen = state.list[Number(button.dataset.at)];
  pause();
  move(chosen.at);
  if (chosen.frame !== undefined) select(chosen.frame, false);
};
addEventListener("popstate", follow);
addEventListener("resize", () => state.timeline && move(state.now));
byId("words").textContent = grammar;

try {
  state.lessons = await ask("/lessons");
  byId("lessons").append(new Option("your own", ""), ...state.lessons.map((lesson, at) => new Option(`${at + 1}. ${lesson.title}`, lesson.name)));
  await follow();
} catch (error) {
  tell(error);
  document.body.dataset.ready = "error";
}
