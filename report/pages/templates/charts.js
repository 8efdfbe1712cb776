"use strict";
/* Charts of the report as SVG; need viewer.js. */

// Marks of an axis: round numbers between two ends.
function roundMarks(low, high, most) {
  const rough = (high - low) / most || 1, power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 5, 10].map((times) => times * power).find((each) => each >= rough);
  const marks = [];
  for (let at = Math.ceil(low / step); at * step <= high * (1 + 1e-9); at += 1) marks.push(at * step);
  return marks;
}
function powerMarks(low, high) {
  const marks = [];
  for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power += 1) marks.push(Math.pow(10, power));
  return marks;
}

/* lineChart(host, { x, lines, log, unit, text, chosen }): lines over sizes in bytes; a line is { name, y, dashed }, and
`text(value)` writes a value.  The keys left and right, or the pointer, read the values of a size. */
function lineChart(host, chart) {
  host.replaceChildren();
  const width = Math.max(host.clientWidth, 260), height = width < 420 ? 250 : 300, room = { left: 52, right: 14, top: 14, bottom: 40 };
  const values = chart.lines.flatMap((line) => line.y), low = chart.log ? Math.min(...values) : 0, high = Math.max(...values) * (chart.log ? 1 : 1.05);
  const x = chart.x.map((_, at) => room.left + ((width - room.left - room.right) * at) / (chart.x.length - 1));
  const share = chart.log ? (value) => Math.log(value / low) / Math.log(high / low) : (value) => value / high;
  const y = (value) => height - room.bottom - (height - room.top - room.bottom) * share(value);
  const svg = svgElement("svg", { viewBox: "0 0 " + width + " " + height, height, tabindex: 0, role: "img", "aria-label": host.dataset.label }, host);
  for (const mark of chart.log ? powerMarks(low, high) : roundMarks(0, high, 5)) {
    svgElement("line", { class: "grid", x1: room.left, x2: width - room.right, y1: y(mark), y2: y(mark) }, svg);
    svgElement("text", { class: "mark", x: room.left - 6, y: y(mark), dy: ".35em", "text-anchor": "end" }, svg, chart.log ? SceneText.time(mark) : SceneText.digits(mark));
  }
  const every = width < 420 ? 4 : 2, sized = (size) => SceneText.bytes(size).replace("iB", "").replace(" ", "");
  chart.x.forEach((size, at) => { if (at % every === 0) svgElement("text", { class: "mark", x: x[at], y: height - room.bottom + 16, "text-anchor": "middle" }, svg, sized(size)); });
  svgElement("text", { class: "mark", x: (room.left + width - room.right) / 2, y: height - 4, "text-anchor": "middle" }, svg, "total size in bytes" + (chart.unit ? "; up: " + chart.unit : ""));
  const reading = svgElement("line", { class: "reading", y1: room.top, y2: height - room.bottom, visibility: "hidden" }, svg);
  chart.lines.forEach((line) => {
    const style = line.dashed ? "--step: var(--cut)" : "--step: var(--series-" + (line.number % STEP_COLORS) + ")";
    if (line.y.length) svgElement("path", { class: "curve" + (line.dashed ? " dashed" : "") + (line.number === chart.chosen ? " chosen" : ""), style, d: "M" + line.y.map((value, at) => x[at].toFixed(1) + " " + y(value).toFixed(1)).join("L") }, svg);
    if (!line.dashed) line.y.forEach((value, at) => svgElement("circle", { class: "spot", style, cx: x[at].toFixed(1), cy: y(value).toFixed(1), r: 2.6 }, svg));
  });
  const legend = host.appendChild(Object.assign(document.createElement("p"), { className: "chart-legend" }));
  legend.setAttribute("role", "status");
  let at = null;
  function read(next) {
    at = next;
    reading.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at !== null) for (const end of ["x1", "x2"]) reading.setAttribute(end, x[at]);
    legend.replaceChildren(...(at === null ? [] : [Object.assign(document.createElement("strong"), { textContent: sized(chart.x[at]) })]), ...chart.lines.map((line) => {
      const entry = Object.assign(document.createElement("span"), { className: "scene-entry" });
      entry.append(Object.assign(document.createElement("i"), { className: "swatch line" + (line.dashed ? " dashed" : "") }), SceneText.short(line.name, 40) + (at === null || !line.y.length ? "" : ": " + chart.text(line.y[at])));
      entry.firstChild.style.setProperty("--heat", line.dashed ? "var(--cut)" : "var(--series-" + (line.number % STEP_COLORS) + ")");
      return entry;
    }));
  }
  svg.addEventListener("pointermove", (event) => {
    const spot = event.clientX - svg.getBoundingClientRect().left;
    read(x.reduce((best, each, number) => (Math.abs(each - spot) < Math.abs(x[best] - spot) ? number : best), 0));
  });
  svg.addEventListener("pointerleave", () => read(null));
  svg.addEventListener("blur", () => read(null));
  svg.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    const by = event.key === "ArrowRight" ? 1 : -1;
    read(at === null ? (by > 0 ? 0 : x.length - 1) : Math.min(Math.max(at + by, 0), x.length - 1));
  });
  read(null);
}

/* timeLine(host, scene, run, part, view): a row for links that are busy at the same times, the busiest first, or those of
one part in its order.  Events of `host`: scene-seek, detail { time }; scene-row, detail the links of a row or null; it
returns { at(time), mark(link) }. */
function timeLine(host, scene, run, part, view) {
  host.replaceChildren();
  const { nodes, links } = scene, width = Math.max(host.clientWidth, 260), narrow = width < 520;
  const MOST = narrow ? 16 : 32, MOST_BARS = 5000, HIGH = narrow ? 13 : 15, right = 12, top = 4, bottom = 34;
  const bars = busyTimes(run, part);
  let rows = [...bars.keys()];
  if (part === null) {
    const busy = new Map(rows.map((link) => [link, Math.round(bars.get(link).reduce((sum, bar) => sum + bar.end - bar.start, 0) / 10)]));
    rows.sort((a, b) => busy.get(b) - busy.get(a) || a - b);
  } else {
    rows.sort((a, b) => bars.get(a)[0].start - bars.get(b)[0].start || a - b);
  }
  const all = rows.length, grain = run.done / run.unit / 400, alike = new Map();
  for (const link of rows) {
    const times = bars.get(link).map((bar) => [bar.step, bar.start / grain, bar.end / grain].map(Math.round)).join();
    if (!alike.has(times)) alike.set(times, []);
    alike.get(times).push(link);
  }
  const members = new Map([...alike.values()].map((list) => [list[0], list]));
  rows = [...members.keys()].slice(0, MOST);
  let drawn = 0;
  rows = rows.filter((link, at) => { drawn += bars.get(link).length; return at === 0 || drawn <= MOST_BARS; });
  const short = (node) => SceneText.short(nodes.name[node], narrow ? 9 : 16), labels = rows.map((link) => {
    const own = members.get(link), kinds = new Set(own.map((each) => links.kind[each]));
    return own.length === 1 ? short(links.tail[link]) + " → " + short(links.head[link]) : own.length + (kinds.size > 1 ? "" : " " + SceneText.short(scene.kinds[links.kind[link]], narrow ? 14 : 24)) + " links";
  });
  const left = 14 + 6.1 * labels.reduce((most, label) => Math.max(most, label.length), 0);
  const height = top + rows.length * HIGH + bottom, ticks = run.done / run.unit;
  const x = (tick) => left + ((width - left - right) * tick) / (ticks * 1.02);
  const svg = svgElement("svg", { viewBox: "0 0 " + width + " " + height, height, role: "img", "aria-label": host.dataset.label }, host);
  const [scale, unit] = run.done >= 1e4 ? [1e3, "ms"] : [1, "µs"];
  for (const mark of roundMarks(0, run.done / scale, narrow ? 3 : 8)) {
    const place = x((mark * scale) / run.unit);
    svgElement("line", { class: "grid", x1: place, x2: place, y1: top, y2: height - bottom }, svg);
    svgElement("text", { class: "mark", x: place, y: height - bottom + 15, "text-anchor": "middle" }, svg, SceneText.digits(mark));
  }
  svgElement("text", { class: "mark", x: (left + width - right) / 2, y: height - 3, "text-anchor": "middle" }, svg, "time in " + unit);
  const groups = new Map();
  rows.forEach((link, at) => {
    const y = top + at * HIGH, group = svgElement("g", { class: "row", "data-link": link }, svg);
    for (const each of members.get(link)) groups.set(each, group);
    svgElement("rect", { class: "row-back", x: 0, y, width, height: HIGH }, group);
    svgElement("text", { class: "mark", x: left - 6, y: y + HIGH / 2, dy: ".35em", "text-anchor": "end" }, group, labels[at]);
    for (const bar of bars.get(link)) {
      const made = svgElement("rect", { class: "busy", style: view.stepStyle(bar.step), x: x(bar.start).toFixed(2), y: y + 2, width: Math.max(x(bar.end) - x(bar.start), 0.4).toFixed(2), height: HIGH - 4 }, group);
      svgElement("title", {}, made, scene.parts.rankWord + " " + bar.step + ": " + SceneText.time(bar.start * run.unit) + " to " + SceneText.time(bar.end * run.unit));
    }
  });
  svgElement("line", { class: "end", x1: x(ticks), x2: x(ticks), y1: top, y2: height - bottom }, svg);
  const head = svgElement("line", { class: "head", y1: top, y2: height - bottom, visibility: "hidden" }, svg);
  const seek = (event) => host.dispatchEvent(new CustomEvent("scene-seek", { bubbles: true, detail: { time: ((event.clientX - svg.getBoundingClientRect().left - left) / (width - left - right)) * 1.02 * run.done } }));
  svg.addEventListener("pointerdown", (event) => { if (event.clientX - svg.getBoundingClientRect().left > left) { svg.setPointerCapture(event.pointerId); seek(event); } });
  svg.addEventListener("pointermove", (event) => {
    if (svg.hasPointerCapture(event.pointerId)) seek(event);
    const row = event.target.closest("[data-link]");
    host.dispatchEvent(new CustomEvent("scene-row", { bubbles: true, detail: row ? members.get(Number(row.dataset.link)) : null }));
  });
  svg.addEventListener("pointerleave", () => host.dispatchEvent(new CustomEvent("scene-row", { bubbles: true, detail: null })));
  return {
    note: groups.size < all ? "Shown are " + groups.size + " of " + all + " links" + (part === null ? ", the busiest first." : ".") : "",
    at: (time) => {
      head.setAttribute("visibility", time === null ? "hidden" : "visible");
      if (time !== null) for (const end of ["x1", "x2"]) head.setAttribute(end, x(time / run.unit));
    },
    mark: (link) => { for (const group of new Set(groups.values())) group.classList.toggle("marked", group === groups.get(link)); },
  };
}

// Busy times by link, without pauses between pieces of one step; rounded times may be apart by a tick.
function busyTimes(run, part) {
  const found = new Map();
  run.link.forEach((link, at) => {
    if (part !== null && run.part[at] !== part) return;
    if (!found.has(link)) found.set(link, []);
    const bars = found.get(link), last = bars[bars.length - 1], start = run.start[at], end = start + run.length[at] * run.count[at];
    if (last && last.step === run.step[at] && start - last.end <= 2 + run.count[at]) last.end = Math.max(last.end, end);
    else bars.push({ step: run.step[at], start, end });
  });
  return found;
}
