"use strict";
// Cells, their colours, and the parts of a canvas that hold them. Row 0 has the lowest addresses and is drawn lowest.

const NOTHING = 0, BLIND = 1, COLD = 2;
const MARGIN = { left: 164, right: 118, top: 6, bottom: 30 };
const BARS = ["#5d667a", "#39404f"];

async function unpack(text) {
  const packed = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  while (bytes >= 1024 && i + 1 < units.length) { bytes /= 1024; i++; }
  return (i === 0 ? bytes : bytes >= 99.95 ? bytes.toFixed(0) : bytes >= 9.995 ? bytes.toFixed(1) : bytes.toFixed(2)) + " " + units[i];
}

function digits(value) {
  if (value === 0) return "0";
  if (value >= 9.95) return value.toFixed(0);
  return String(Number(value.toPrecision(2)));
}

/** Bytes, or that nobody knows. */
const known = bytes => bytes === null || bytes === undefined ? "not known" : size(bytes);

const percent = fraction => digits(fraction * 100) + " %";
/** The same with three significant digits: what is added up must add up. */
const exactly = fraction => fraction < 0.0000995 ? percent(fraction) : Number((fraction * 100).toFixed(fraction >= 0.09995 ? 1 : 2)) + " %";
const short = name => name.startsWith("/") ? name.split("/").filter(Boolean).pop() || name : name;

function duration(seconds) {
  if (seconds < 1) return digits(seconds * 1000) + " ms";
  if (seconds < 60) return String(Number(seconds.toPrecision(3))) + " s";
  if (seconds < 3600) return Math.floor(seconds / 60) + " m " + String(Math.floor(seconds % 60)).padStart(2, "0") + " s";
  return Math.floor(seconds / 3600) + " h " + String(Math.floor(seconds / 60) % 60).padStart(2, "0") + " m";
}

/** A rate in accesses per second, as a range where the sampling interval changed; nothing for a share of pages. */
function hertz(rate, map) {
  if (map.sample_us === null) return "";
  const [short, long] = map.sample_us.map(us => rate * 1e6 / us);
  return (short === long ? digits(short) : digits(long) + " to " + digits(short)) + " Hz";
}

function rateOf(code, map) {
  const first = map.lowest_rate_code;
  return code < first ? 0 : map.top_rate * Math.pow(10, ((code - first) / (255 - first) - 1) * map.decades);
}

function codeOf(rate, map) {
  const first = map.lowest_rate_code;
  const position = Math.min(1, Math.max(0, 1 + Math.log10(rate / map.top_rate) / map.decades));
  return first + Math.round(position * (255 - first));
}

function ageOf(code, map) {
  return code === 0 ? null : (Math.pow(2, code / map.age_steps) - 1) / 10;
}

function stretchAt(map, row) {
  return map.stretches.find(s => row >= s.from_row && row < s.to_row);
}

/** The first address of a row (which may lie between two rows). */
function addressAt(map, row) {
  const s = stretchAt(map, row);
  if (!s) return null;
  let offset = (row - s.from_row) / (s.to_row - s.from_row) * s.bytes;
  for (const [start, end] of s.ranges) {
    if (offset < end - start) return Math.floor((start + offset) / 4096) * 4096;
    offset -= end - start;
  }
  return s.ranges[s.ranges.length - 1][1];
}

function nameAt(map, row) {
  const found = map.names.find(([low, high]) => row >= low && row < high);
  return found ? found[2] : "";
}

/** The code that stands for the cells [c0, c1) x [r0, r1): any access wins, then the larger area. */
function codeFor(map, c0, c1, r0, r1) {
  let rate = 0, seen = 0, blind = 0;
  for (let r = r0; r < r1; r++) {
    for (let c = c0; c < c1; c++) {
      const code = map.cells[r * map.cols + c];
      if (code === BLIND) blind++;
      else if (code !== NOTHING) { seen++; rate += map.rates[code]; }
    }
  }
  if (rate > 0) return codeOf(rate / seen, map);
  return seen + blind === 0 ? NOTHING : blind > seen ? BLIND : COLD;
}

function drawCells(context, map, view, x0, y0, width, height, ratio) {
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  const image = context.createImageData(w, h);
  const out = new Uint32Array(image.data.buffer);
  const edges = (n, from, to, limit) => Array.from({ length: n }, (_, i) => {
    const a = Math.min(limit - 1, Math.max(0, Math.floor(from + (to - from) * i / n)));
    const b = Math.ceil(from + (to - from) * (i + 1) / n - 1e-9);
    return [a, Math.min(limit, Math.max(a + 1, Math.min(b, a + Math.max(1, Math.round((to - from) / n)))))];
  });
  const cols = edges(w, view.c0, view.c1, map.cols), rows = edges(h, view.r0, view.r1, map.rows);
  let last = null;
  for (let y = 0; y < h; y++) {
    const [r0, r1] = rows[h - 1 - y];
    // Zoomed in, many lines of pixels show the same cells.
    const same = last && last.r0 === r0 && last.r1 === r1 && !last.striped;
    if (same) { out.copyWithin(y * w, (y - 1) * w, y * w); continue; }
    let striped = false;
    for (let x = 0; x < w; x++) {
      const [c0, c1] = cols[x];
      const one = c1 - c0 === 1 && r1 - r0 === 1;
      const code = one ? map.cells[r0 * map.cols + c0] : codeFor(map, c0, c1, r0, r1);
      const stripe = code === BLIND && (x + y) % 8 < 3;
      striped = striped || code === BLIND;
      out[y * w + x] = stripe ? map.stripe : map.pixels[code];
    }
    last = { r0, r1, striped };
  }
  context.putImageData(image, Math.round(x0 * ratio), Math.round(y0 * ratio));
}

/** Round steps for a time axis, and how to write them. */
function timeTicks(from, to, most) {
  const steps = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200,
    10800, 21600, 43200, 86400, 172800, 432000];
  const step = steps.find(s => (to - from) / s <= most) || (to - from) / most;
  const two = n => String(Math.floor(n)).padStart(2, "0");
  const decimals = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  const label = t => to < 120 || step < 1 ? t.toFixed(decimals) + " s"
    : to < 7200 ? Math.floor(t / 60) + ":" + two(t % 60)
    : Math.floor(t / 3600) + ":" + two(t / 60 % 60) + (step < 60 ? ":" + two(t % 60) : " h");
  const ticks = [];
  for (let i = Math.ceil(from / step - 1e-6); i * step <= to + step * 1e-6; i++) ticks.push([i * step, label(Math.round(i * step * 1e6) / 1e6)]);
  return ticks;
}

function drawTimeAxis(context, frame, from, to) {
  context.fillStyle = "#c4c8d0";
  context.strokeStyle = "#4a505e";
  context.textAlign = "center";
  context.beginPath();
  context.moveTo(frame.x, frame.y + frame.height + 0.5);
  context.lineTo(frame.x + frame.width, frame.y + frame.height + 0.5);
  for (const [t, label] of timeTicks(from, to, frame.width / 90)) {
    const x = Math.round(frame.x + (t - from) / (to - from) * frame.width) + 0.5;
    context.moveTo(x, frame.y + frame.height);
    context.lineTo(x, frame.y + frame.height + 5);
    context.fillText(label, x, frame.y + frame.height + 19);
  }
  context.stroke();
}

/** Bars and names of mappings on the left; large ones first. */
function drawNames(context, map, frame, rowY) {
  const seen = map.names.filter(([low, high]) => rowY(high) < frame.y + frame.height && rowY(low) > frame.y);
  seen.forEach(([low, high], i) => {
    const top = Math.max(frame.y, rowY(high)), bottom = Math.min(frame.y + frame.height, rowY(low));
    context.fillStyle = BARS[map.names.indexOf(seen[i]) % 2];
    context.fillRect(frame.x - 9, top, 5, Math.max(1, bottom - top));
  });
  const taken = [];
  context.textAlign = "right";
  context.fillStyle = "#c4c8d0";
  const height = n => Math.min(frame.y + frame.height, rowY(n[0])) - Math.max(frame.y, rowY(n[1]));
  for (const n of seen.slice().sort((a, b) => height(b) - height(a))) {
    const y = (Math.min(frame.y + frame.height, rowY(n[0])) + Math.max(frame.y, rowY(n[1]))) / 2;
    if (taken.some(t => Math.abs(t - y) < 15)) continue;
    taken.push(y);
    let text = short(n[2]);
    while (text.length > 3 && context.measureText(text).width > frame.x - 18) text = text.slice(0, -2) + "…";
    context.fillText(text, frame.x - 15, y + 4);
  }
}

/** Addresses on the right, the marks of compressed stretches, and lines where addresses jump. */
function drawAddresses(context, map, frame, rowY) {
  const right = frame.x + frame.width, bottom = frame.y + frame.height;
  context.textAlign = "left";
  let last = Infinity;
  for (const s of map.stretches) {
    const low = Math.min(bottom, rowY(s.from_row)), high = Math.max(frame.y, rowY(s.to_row));
    if (low <= frame.y || high >= bottom) continue;
    if (s.compressed) {
      context.fillStyle = "#8b919e";
      for (let y = high; y < low; y += 5) context.fillRect(right + 4, y, 3, Math.min(2, low - y));
      if (low - high > 44) {
        context.fillText(size(s.bytes), right + 14, (low + high) / 2 - 3);
        context.fillText("compressed", right + 14, (low + high) / 2 + 11);
      }
    }
    const mark = (y, row) => {
      const address = addressAt(map, row);
      if (address === null || last - y < 15) return;
      last = y;
      context.fillStyle = "#4a505e";
      context.fillRect(right, Math.round(y) - 1, 8, 1);
      context.fillStyle = "#8b919e";
      context.fillText(address.toString(16), right + 14, y + 4);
    };
    mark(low, Math.max(s.from_row, map.view.r0));
    // Zoomed into one stretch, its ends may be far outside: write some addresses in between.
    const inside = Math.floor((low - high) / 110);
    if (!s.compressed) {
      for (let i = 1; i <= inside; i++) {
        const y = low - (low - high) * i / (inside + 1);
        mark(y, map.view.r0 + (bottom - y) / frame.height * (map.view.r1 - map.view.r0));
      }
    }
  }
  for (const [row, unmapped] of map.folds) {
    const y = Math.round(rowY(row));
    if (row === 0 || row === map.rows || y <= frame.y || y >= bottom) continue;
    const near = map.names.some(([low, high]) => (Math.abs(low - row) < 0.6 || Math.abs(high - row) < 0.6) && rowY(low) - rowY(high) < 5);
    if (near) continue;
    context.fillStyle = "#171a22";
    context.fillRect(frame.x - 9, y - 1, frame.width + 9, 2);
    context.strokeStyle = "#8b919e";
    context.beginPath();
    context.moveTo(frame.x - 12, y + 2);
    context.lineTo(frame.x - 1, y - 2);
    context.stroke();
  }
}
