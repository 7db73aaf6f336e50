// The page: summary, moving and zooming, what is under the pointer, the working-set curve.

const data = JSON.parse(document.getElementById("data").textContent);
const element = id => document.getElementById(id);
const heat = element("heat"), wss = element("wss"), tip = element("tip");
// What is shown; `map` is null where nothing of the target was recorded in the range of the page.
let target = null, map = null, wanted = null;

function make(tag, text, className) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

function card(title, big, note, rest, warn) {
  const e = make("div", undefined, "card" + (warn ? " warn" : ""));
  e.append(make("h3", title));
  const line = make("div", big + " ", "big");
  line.append(make("small", note));
  const more = make("div", undefined, "rest");
  for (const [name, value] of rest) {
    const item = make("span");
    item.append(make("b", name), value);
    more.append(item);
  }
  e.append(line, more);
  return e;
}

function threshold(ns) {
  const s = ns / 1e9;
  return s % 60 === 0 && s >= 60 ? s / 60 + " min" : s + " s";
}

/** Both ends of a figure where they differ by more than 5 %; else nothing. */
function ends(x) {
  const apart = x.least !== null && x.least !== undefined && (x.most - x.least) * 20 > x.bytes;
  return apart ? size(x.least) + " to " + size(x.most) : "";
}

/** Bytes, with both ends where they differ by more than 5 %. */
const between = x => size(x.bytes) + (ends(x) && " (" + ends(x) + ")");

/** The ends of a figure that stands large above them. */
const endsBelow = x => ends(x) ? [["lies in", ends(x)]] : [];

function totalCard(t) {
  const cold = t.idle.cold[0], most = t.pages ? size(t.pages.resident) : t.resident ? size(t.resident.last) : "–";
  const title = t.gone ? "The " + t.targets + " targets left at the end, without " + t.gone + " that had ended" : "All " + t.targets + " targets";
  return card(title, known(cold.bytes), "cold for more than " + threshold(cold.for_ns), [...endsBelow(cold),
    ["working set", size(t.working_set.p50)], ["present", most], ["shared pages", t.shared === "counted_once" ? "count once" : "count for each"]]);
}

function restCard(r) {
  const some = r.cold !== null && r.cold_unknown ? [["not known", "of " + r.cold_unknown]] : [];
  return card("And " + r.targets + " more targets", known(r.cold), "cold", [...some,
    ["working sets", size(r.working_set)], ["resident", known(r.resident)], ["", "--target N shows one"]]);
}

function cards() {
  const { working_set: w, resident: r, pages: p, idle, cost: c } = target;
  const windows = w.windows.filter(x => x.bytes !== null).map(x => ["within " + threshold(x.within_ns), between(x)]);
  const all = [card("Working set, median", size(w.p50), r && r.last ? percent(w.p50 / r.last) + " of resident" : "",
    [["p95", size(w.p95)], ["p99", size(w.p99)], ...windows])];
  if (data.total) all.unshift(totalCard(data.total));
  if (data.rest) all.push(restCard(data.rest));
  if (r) {
    const swap = r.swap ? [["swapped out", size(r.swap)]] : [];
    all.push(card("Resident memory", size(r.last), "at the end", [["highest", size(r.highest)], ["virtual", size(r.vsz)], ...swap]));
  }
  const known = idle.cold.filter(x => x.bytes !== null);
  const coldest = known.length ? known[0] : null;
  all.push(card(coldest ? "Cold for more than " + threshold(coldest.for_ns) : "Cold memory", coldest ? size(coldest.bytes) : "not known",
    coldest ? (idle.present_only ? "of present memory" : "of mapped memory") : "watched too briefly",
    [...(coldest ? endsBelow(coldest) : []), ...idle.cold.filter(x => x !== coldest).map(x => ["> " + threshold(x.for_ns), x.bytes === null ? "not known yet" : between(x)])]));
  if (p) all.push(card("Present", size(p.resident), "in pages", [["accessed within " + threshold(p.within_ns), size(p.accessed)],
    ["cold", size(p.cold)], ["not resolved", size(p.not_resolved)], ["not observable", size(p.not_observable)]]));
  if (!p && idle.not_observable > 0) all.push(card("Not observable", size(idle.not_observable), "", [["", "neither hot nor cold: shared, locked or special pages"]]));
  if (!p && idle.not_visited > 0) all.push(card("Not looked at", size(idle.not_visited), "", [["", "yet: neither hot nor cold"]]));
  if (c) {
    const over = target.above_budget;
    all.push(card("Cost of watching", exactly(c.monitor + c.target), "of one core" + (over ? ", above the budget" : ""),
      [["budget", c.budget === null ? "none" : exactly(c.budget)], ["monitor", exactly(c.monitor)], ["target, est.", exactly(c.target)]], over));
  }
  element("cards").replaceChildren(...all);
}

function legend() {
  const scale = make("div", undefined, "scale"), ramp = make("div", undefined, "ramp"), ticks = make("div", undefined, "ticks");
  const stops = [];
  for (let code = map.lowest_rate_code; code <= 255; code += 12) stops.push(data.colours[code]);
  stops.push(data.colours[255]);
  ramp.style.background = "linear-gradient(90deg, " + stops.join(", ") + ")";
  for (let d = map.decades; d >= 0; d--) {
    const rate = map.top_rate * Math.pow(10, -d), tick = make("span", percent(rate));
    tick.append(make("br"), make("i", hertz(rate, map)));
    tick.style.left = (1 - d / map.decades) * 100 + "%";
    ticks.append(tick);
  }
  scale.append(make("div", (map.sample_us ? "rate: " : "") + map.rate_text + "; log scale", "what"), ramp, ticks);
  const states = make("div", undefined, "states");
  for (const [name, code] of [["not accessed", COLD], ["not seen", BLIND], [map.sample_us ? "not mapped" : "no pages", NOTHING]]) {
    const item = make("span", name, code === BLIND ? "striped" : "");
    item.style.setProperty("--swatch", data.colours[code]);
    states.append(item);
  }
  element("legend").replaceChildren(scale, states);
}

function tables() {
  const row = (cells, tag) => { const tr = make("tr"); cells.forEach(c => tr.append(make(tag, c))); return tr; };
  const used = target.pages;
  const rows = target.mappings.slice(0, 15).map(m => used
    ? row([m.name, size(m.bytes), size(m.resident), size(m.accessed), m.not_observable === m.resident ? "not observable" : size(m.cold)], "td")
    : m.bytes === 0 && m.not_observable + m.not_visited > 0
    ? row([m.name, size(m.not_observable + m.not_visited), m.not_observable > 0 ? "not observable" : "not looked at yet", ""], "td")
    : row([m.name, size(m.bytes), size(m.accessed), m.accessed ? percent(m.rate) : "–"], "td"));
  if (target.mappings.length > 15) rows.push(row(["and " + (target.mappings.length - 15) + " more"], "td"));
  const within = used ? threshold(used.within_ns) : "";
  const head = used ? ["mapping", "size", "resident", "used in " + within, "cold > " + within] : ["mapping", "size", "accessed", "at rate"];
  element("mappings-title").textContent = used ? "Mappings, most cold memory first" : "Hottest mappings";
  element("mappings").replaceChildren(row(head, "th"), ...rows);
  const list = [], c = target.confidence, cost = target.cost;
  if (used) list.push(["Figures", "from pages, one by one; of what is cold, or was accessed within a time, both ends are given where they differ by more than 5 %"]);
  else if (c) {
    list.push(["Checks of a region in an interval", c.median_checks + " (median), " + c.low_checks + " (the least tenth)"],
      ["What one interval shows", "rates above " + percent(c.detectable_rate) + " with 95 % probability"]);
    if (c.unchecked >= 0.001) list.push(["Not looked at in an average interval", percent(c.unchecked) + " of the memory"]);
  } else list.push(["Checks", "the source does not tell how often it looked"]);
  if (cost) list.push(["How it looked", (cost.mode === "scan" ? "scanning" : "sampling") + " every " + duration(cost.sample_us / 1e6) + ", "
    + Math.round(cost.checks_per_second) + " checks/s, " + cost.late_samples + " samples late"]);
  if (map) list.push(["Drawn", size(map.mapped) + " mapped" + (map.absent ? ", of it " + size(map.absent) + " never present and folded" : "")
    + (map.compressed ? ", " + size(map.compressed) + " compressed" : "")]);
  const run = data.run || {};
  const source = [run.source, run.algorithm && "algorithm " + run.algorithm, run.kernel && "kernel " + run.kernel].filter(Boolean);
  if (source.length) list.push(["Source", source.join(", ")]);
  element("trust").replaceChildren(...list.flatMap(([name, text]) => [make("dt", name), make("dd", text)]));
}

function prepare(canvas) {
  const ratio = window.devicePixelRatio || 1, { width, height } = canvas.getBoundingClientRect();
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = "12px system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
  const frame = { x: MARGIN.left, y: MARGIN.top, width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
  return { context, frame, ratio };
}

const secondsAt = col => map.from + col / map.cols * (map.to - map.from);

function draw() {
  const { context, frame, ratio } = prepare(heat), view = map.view;
  drawCells(context, map, view, frame.x, frame.y, frame.width, frame.height, ratio);
  const rowY = row => frame.y + frame.height - (row - view.r0) / (view.r1 - view.r0) * frame.height;
  drawAddresses(context, map, frame, rowY);
  drawNames(context, map, frame, rowY);
  drawTimeAxis(context, frame, secondsAt(view.c0), secondsAt(view.c1));
  drawCurve(null);
}

function drawCurve(pointer) {
  const { context, frame } = prepare(wss), from = secondsAt(map.view.c0), to = secondsAt(map.view.c1);
  frame.y += 16;
  frame.height -= 16;
  const max = Math.max(1, ...target.wss.map(p => p[1])) * 1.06;
  const y = v => frame.y + frame.height - v / max * frame.height;
  let step = 1;
  while (max / step > 4) step *= 2;
  context.textAlign = "right";
  for (let v = 0; v <= max; v += step) {
    context.fillStyle = "#262b36";
    context.fillRect(frame.x, Math.round(y(v)), frame.width, 1);
    context.fillStyle = "#c4c8d0";
    context.fillText(size(v), frame.x - 15, y(v) + 4);
  }
  context.save();
  context.beginPath();
  context.rect(frame.x, frame.y - 2, frame.width, frame.height + 2);
  context.clip();
  context.beginPath();
  const x = t => frame.x + (t - from) / (to - from) * frame.width;
  target.wss.forEach(([t, v], i) => i ? context.lineTo(x(t), y(v)) : context.moveTo(x(t), y(v)));
  context.strokeStyle = "#f08a5d";
  context.lineWidth = 1.5;
  context.stroke();
  if (target.wss.length) {
    context.lineTo(x(target.wss[target.wss.length - 1][0]), y(0));
    context.lineTo(x(target.wss[0][0]), y(0));
    context.fillStyle = "#f08a5d30";
    context.fill();
  }
  if (pointer !== null) {
    context.fillStyle = "#f2f3f580";
    context.fillRect(pointer, frame.y, 1, frame.height);
  }
  context.restore();
  context.textAlign = "left";
  context.fillStyle = "#8b919e";
  context.fillText("working set", frame.x, frame.y - 6);
  for (const [name, value] of [["p95", target.working_set.p95], ["p50", target.working_set.p50]]) {
    context.fillStyle = "#8b919e";
    context.fillRect(frame.x + frame.width, Math.round(y(value)), 8, 1);
    const apart = name === "p50" && y(value) - y(target.working_set.p95) < 14 ? 14 - (y(value) - y(target.working_set.p95)) : 0;
    context.fillText(name + " " + size(value), frame.x + frame.width + 14, y(value) + 4 + apart);
  }
  drawTimeAxis(context, frame, from, to);
}

/** Keeps a range of `span` inside [0, limit] and above a least width. */
function clampRange(from, to, limit, least) {
  const span = Math.min(limit, Math.max(least, to - from));
  const start = Math.min(limit - span, Math.max(0, (from + to) / 2 - span / 2));
  return [start, start + span];
}

function setView(c0, c1, r0, r1) {
  [map.view.c0, map.view.c1] = clampRange(c0, c1, map.cols, Math.min(4, map.cols));
  [map.view.r0, map.view.r1] = clampRange(r0, r1, map.rows, Math.min(4, map.rows));
  redraw();
}

/** Draws with the next frame; by then there may be nothing to draw. */
const redraw = () => requestAnimationFrame(() => map && draw());

/** Column and row under the pointer, or null outside the cells. */
function under(event) {
  const box = heat.getBoundingClientRect(), view = map.view;
  const fx = (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
  const fy = 1 - (event.clientY - box.top - MARGIN.top) / (box.height - MARGIN.top - MARGIN.bottom);
  if (fx < 0 || fx >= 1 || fy < 0 || fy >= 1) return null;
  return { fx, fy, col: view.c0 + fx * (view.c1 - view.c0), row: view.r0 + fy * (view.r1 - view.r0) };
}

function zoom(at, factor, addresses) {
  const v = map.view;
  if (addresses) setView(v.c0, v.c1, at.row - (at.row - v.r0) * factor, at.row + (v.r1 - at.row) * factor);
  else setView(at.col - (at.col - v.c0) * factor, at.col + (v.c1 - at.col) * factor, v.r0, v.r1);
}

heat.addEventListener("wheel", event => {
  const at = under(event);
  if (!at) return;
  event.preventDefault();
  const delta = event.deltaY || event.deltaX;
  zoom(at, Math.pow(1.0015, delta * (event.deltaMode === 1 ? 20 : 1)), event.shiftKey);
}, { passive: false });

let held = null;
heat.addEventListener("pointerdown", event => {
  if (event.button !== 0 || !under(event)) return;
  heat.setPointerCapture(event.pointerId);
  held = { x: event.clientX, y: event.clientY, view: { ...map.view } };
  heat.classList.add("moving");
});
const letGo = () => { held = null; heat.classList.remove("moving"); };
heat.addEventListener("pointerup", letGo);
heat.addEventListener("pointercancel", letGo);
heat.addEventListener("pointermove", event => {
  if (held) {
    tip.hidden = true;
    const box = heat.getBoundingClientRect(), v = held.view;
    const dc = (held.x - event.clientX) / (box.width - MARGIN.left - MARGIN.right) * (v.c1 - v.c0);
    const dr = (event.clientY - held.y) / (box.height - MARGIN.top - MARGIN.bottom) * (v.r1 - v.r0);
    setView(v.c0 + dc, v.c1 + dc, v.r0 + dr, v.r1 + dr);
    return;
  }
  explain(event);
});
heat.addEventListener("pointerleave", () => { tip.hidden = true; drawCurve(null); });
heat.addEventListener("dblclick", () => setView(0, map.cols, 0, map.rows));
element("reset").addEventListener("click", () => setView(0, map.cols, 0, map.rows));
heat.addEventListener("keydown", event => {
  const v = map.view, dc = (v.c1 - v.c0) / 10, dr = (v.r1 - v.r0) / 10, middle = { col: (v.c0 + v.c1) / 2, row: (v.r0 + v.r1) / 2 };
  const moves = { ArrowLeft: [-dc, 0], ArrowRight: [dc, 0], ArrowUp: [0, dr], ArrowDown: [0, -dr] };
  if (moves[event.key]) {
    const [c, r] = moves[event.key];
    setView(v.c0 + c, v.c1 + c, v.r0 + r, v.r1 + r);
  } else if (event.key === "+" || event.key === "=") zoom(middle, 0.7, event.altKey);
  else if (event.key === "-") zoom(middle, 1.4, event.altKey);
  else if (event.key === "0") setView(0, map.cols, 0, map.rows);
  else return;
  event.preventDefault();
});

function explain(event) {
  const at = under(event);
  tip.hidden = !at;
  if (!at) { drawCurve(null); return; }
  const col = Math.floor(at.col), row = Math.floor(at.row), index = row * map.cols + col;
  const code = map.cells[index], stretch = stretchAt(map, row), age = ageOf(map.ageCodes[index], map);
  const start = addressAt(map, row), bytes = stretch ? stretch.bytes / (stretch.to_row - stretch.from_row) : 0;
  const rate = rateOf(code, map);
  const state = code === NOTHING ? (map.sample_us ? "not mapped" : "no pages") : code === BLIND ? "could not be observed"
    : code === COLD ? "0 % (not accessed)" : percent(rate) + (map.sample_us ? "  =  " + hertz(rate, map) : " of the pages");
  const lines = [["address", start === null ? "–" : start.toString(16) + "  (" + size(bytes) + " a row)"],
    ["time", secondsAt(col).toFixed(2) + " s to " + secondsAt(col + 1).toFixed(2) + " s"], [map.sample_us ? "rate" : "accessed", state]];
  if (age !== null) lines.push(["age", "the same for " + (age < 0.05 ? "less than an interval" : duration(age))]);
  const table = make("table");
  for (const [name, value] of lines) {
    const tr = make("tr");
    tr.append(make("td", name), make("td", value));
    table.append(tr);
  }
  tip.replaceChildren(make("b", nameAt(map, row) || "no mapping known"), table);
  const box = element("figure").getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top;
  tip.style.left = (x + 20 + tip.offsetWidth > box.width ? x - tip.offsetWidth - 14 : x + 16) + "px";
  tip.style.top = Math.max(4, y + 20 + tip.offsetHeight > box.height ? y - tip.offsetHeight - 12 : y + 16) + "px";
  drawCurve(event.clientX - heat.getBoundingClientRect().left);
}

/** `#rrggbb` as a pixel of little-endian ImageData. */
const pixel = hex => (0xff000000 | parseInt(hex.slice(5, 7), 16) << 16 | parseInt(hex.slice(3, 5), 16) << 8 | parseInt(hex.slice(1, 3), 16)) >>> 0;

/** Unpacks a map, once. */
async function ready(map) {
  const [cells, ageCodes] = await Promise.all([unpack(map.codes), unpack(map.ages)]);
  if (map.cells) return;
  map.rates = Float64Array.from({ length: 256 }, (_, code) => rateOf(code, map));
  map.pixels = Uint32Array.from(data.colours, pixel);
  map.stripe = pixel("#6b6f76");
  map.view = { c0: 0, c1: map.cols, r0: 0, r1: map.rows };
  Object.assign(map, { cells, ageCodes });
}

async function show(index) {
  const next = wanted = data.targets[index];
  if (next.map && !next.map.cells) await ready(next.map);
  // Meanwhile another one may have been chosen.
  if (wanted !== next) return;
  target = next;
  map = next.map;
  element("figure").hidden = !map;
  element("nothing").hidden = !!map;
  element("nothing").textContent = map ? "" : target.no_map;
  element("title").textContent = target.title;
  const when = data.wall_ms === null ? "" : new Date(data.wall_ms).toLocaleString() + "  ·  ";
  element("subtitle").textContent = when + duration(target.seconds) + " recorded  ·  " + target.snapshots + " snapshots";
  cards();
  tables();
  if (!map) return;
  legend();
  draw();
}

if (data.targets.length > 1) {
  element("chooser").hidden = false;
  element("targets").append(...data.targets.map((t, i) => { const o = make("option", t.title); o.value = i; return o; }));
  element("targets").addEventListener("change", event => show(Number(event.target.value)));
}
window.addEventListener("resize", redraw);
show(0);
