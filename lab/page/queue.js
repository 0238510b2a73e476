// The nodes of the lock as a queue, and the watches on them as threads.

import { colour, element } from "./stage.js";

const ROW = 34, LEFT = 58;

export function drawQueue(svg, timeline, names, now) {
  const width = svg.parentElement.clientWidth - 28;
  const snapshot = timeline.queues.filter((queues) => queues.at <= now).pop();
  const nodes = snapshot ? snapshot.nodes.slice(0, 24) : [];
  const watches = timeline.watches.filter((watch) => watch.from <= now && now < watch.to);
  const rows = Math.max(nodes.length, timeline.clients.length, 1);
  const height = rows * ROW + 8, parts = [];
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  const nodeY = new Map(nodes.map((node, at) => [node.path, 8 + at * ROW + 13]));
  const clientY = (client) => 8 + client * ROW + 13;
  for (const watch of watches) {
    const y = nodeY.get(watch.path), from = clientY(watch.client);
    const shape = { fill: "none", stroke: colour(watch.client), "stroke-width": 1.6, "stroke-dasharray": "4 3", "data-watch": watch.path };
    const title = element("title", {}, `${names.client(watch.client)} watches ${names.short(watch.path)}${watch.of_children ? ", its children" : ""}`);
    // A watch on a node that is not there ends in the air.
    const path = y === undefined ? `M30 ${from}q14 -4 18 -12` : `M30 ${from}C${LEFT - 4} ${from} ${LEFT - 24} ${y} ${LEFT} ${y}`;
    const thread = element("path", { ...shape, d: path });
    thread.append(title);
    parts.push(thread);
    if (y !== undefined) parts.push(element("circle", { cx: LEFT, cy: y, r: 3, fill: colour(watch.client) }));
  }
  timeline.clients.forEach((name, client) => {
    const y = clientY(client);
    const holds = timeline.beliefs.some((belief) => belief.client === client && belief.from <= now && now < belief.to);
    parts.push(element("circle", { cx: 17, cy: y, r: 12, fill: colour(client), stroke: holds ? "var(--ink)" : "none", "stroke-width": 2.5 }));
    const label = element("text", { x: 17, y: y + 4.5, "text-anchor": "middle", "font-weight": 700 }, name.slice(0, 3));
    label.style.fill = "var(--bg)";
    parts.push(label);
  });
  nodes.forEach((node, at) => {
    const y = 8 + at * ROW, owner = node.client, isFirst = timeline.truths.some((truth) => truth.path === node.path && truth.from <= now && now < truth.to);
    const box = element("rect", { x: LEFT, y, width: Math.max(60, width - LEFT - 2), height: 26, rx: 6, fill: owner === null ? "var(--bg)" : colour(owner), "fill-opacity": owner === null ? 1 : .16, stroke: owner === null ? "var(--line)" : colour(owner), "stroke-width": isFirst ? 2.6 : 1, "data-node": node.path });
    box.append(element("title", {}, `${node.path}${owner === null ? "" : ", of " + names.client(owner)}, transaction ${node.zxid}${node.data ? ": " + node.data : ""}`));
    parts.push(box);
    const depth = node.path.split("/").length - 2;
    let text = names.short(node.path);
    if (depth > 0) text = "… /" + text.split("/").pop();
    text = text.replace(/0000(\d{6})$/, "…$1");
    parts.push(element("text", { x: LEFT + 8 + Math.min(depth, 1) * 4, y: y + 17, class: "mono", "font-size": 11 }, (isFirst ? "★ " : "") + text));
    // The token, where there is room; it is in the title too.
    if (owner !== null && (text.length + String(node.zxid).length + 9) * 7 < width - LEFT) parts.push(element("text", { x: width - 8, y: y + 17, "text-anchor": "end", class: "mono soft", "font-size": 11 }, `token ${node.zxid}`));
  });
  if (!nodes.length) parts.push(element("text", { x: LEFT, y: 25, class: "soft" }, "no node yet"));
  svg.replaceChildren(...parts);
}
