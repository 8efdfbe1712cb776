"use strict";
(function () {
  if (typeof Plotly === "undefined") {
    document.getElementById("no-plots").hidden = false;
    document.documentElement.dataset.drawn = "0";
    return;
  }
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const network = data.network;
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const state = { plan: 0, part: 0, size: byId("size").selectedIndex };
  // The buttons by name: others would open pages elsewhere.
  const CONFIG = { responsive: true, displaylogo: false, displayModeBar: "hover",
    modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]] };

  // Plotly reads a little HTML in texts; names are to be shown as they are.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const short = (text, most) => (text.length <= most ? text : text.slice(0, Math.ceil(most / 2) - 1) + "…" + text.slice(-Math.floor(most / 2)));
  const color = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  const COLORS = 6, MOST_TURNS = 24;
  const series = (number) => color("series-" + (number % COLORS));
  // Colors of hops and steps take turns; very many go from the first of three colors to the last.
  function shade(number) {
    const top = highest(state.plan);
    if (top <= MOST_TURNS) return series(number - 1);
    const place = (2 * (number - 1)) / (top - 1), stop = Math.min(Math.floor(place), 1);
    const ends = [stop, stop + 1].map((at) => [1, 3, 5].map((from) => parseInt(series(2 * at).slice(from, from + 2), 16)));
    return "rgb(" + ends[0].map((part, at) => Math.round(part + (place - stop) * (ends[1][at] - part))).join(",") + ")";
  }
  // Of hops or steps that have one color the legend has one entry, and of very many it has some.
  function entries(numbers, word) {
    const many = highest(state.plan) > MOST_TURNS, before = narrow() && numbers.length > COLORS ? "" : word + " ";
    return new Map(numbers.map((number, at) => {
      const alike = many ? [number] : numbers.filter((other) => (other - number) % COLORS === 0);
      const shown = many ? at % Math.ceil(numbers.length / 8) === 0 : alike[0] === number;
      return [number, { name: before + alike.join(", "), legendgroup: String(alike[0]), showlegend: shown }];
    }));
  }
  const tops = new Map();
  function highest(plan) {
    if (!tops.has(plan)) {
      const all = [data.plans[plan].parts.ranks, data.plans[plan].timelines.map((line) => line.step || [])].flat();
      tops.set(plan, all.reduce((most, numbers) => numbers.reduce((top, number) => Math.max(top, number), most), 1));
    }
    return tops.get(plan);
  }
  const digits = (value) => Number(value.toPrecision(4)).toLocaleString("en");
  const percent = (share) => Number((100 * share).toPrecision(4)) + " %";
  function microseconds(value) {
    if (value >= 1e6) return digits(value / 1e6) + " s";
    return value >= 1e3 ? digits(value / 1e3) + " ms" : digits(value) + " µs";
  }
  function bytes(value) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (value >= 1024 && unit < 4) { value /= 1024; unit += 1; }
    return digits(value) + " " + units[unit];
  }
  const narrow = () => window.innerWidth < 520;

  function layout(more) {
    const axis = { gridcolor: color("grid"), zerolinecolor: color("grid"), linecolor: color("rule"), automargin: true };
    const base = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 12, r: 12, t: 12, b: 12 },
      font: { family: "system-ui, sans-serif", size: 13, color: color("ink") }, hovermode: "closest",
      hoverlabel: { bgcolor: color("panel"), bordercolor: color("rule"), font: { color: color("ink") }, align: "left" },
      legend: { orientation: "h", y: -0.02, yanchor: "top", x: 0, tracegroupgap: 0 }, modebar: { bgcolor: "rgba(0,0,0,0)", color: color("muted"), activecolor: color("accent") },
    };
    const result = Object.assign(base, more);
    result.xaxis = Object.assign({}, axis, more.xaxis);
    result.yaxis = Object.assign({}, axis, more.yaxis);
    return result;
  }

  function map() {
    const empty = { visible: false, fixedrange: false };
    return layout({ xaxis: empty, yaxis: Object.assign({}, empty, { scaleanchor: flat() ? undefined : "x" }), dragmode: "pan", showlegend: true });
  }
  const extent = (values) => values.reduce((most, value) => Math.max(most, value)) - values.reduce((least, value) => Math.min(least, value));
  // Rows of a wide network may be drawn higher than they are; circles and grids may not.
  function flat() {
    const wide = extent(network.x), high = extent(network.y);
    return wide > 1.5 * high || high > 1.5 * wide;
  }

  // A link as points from tail to head, beside the one that goes back.
  const curves = new Map();
  network.tails.forEach((tail, place) => curves.set(tail * network.nodes.length + network.heads[place], place));
  function curveOf(tail, head, scale) {
    const x = network.x, y = network.y, place = curves.get(tail * network.nodes.length + head);
    const straight = place === undefined;
    const bendX = straight ? (x[tail] + x[head]) / 2 : network.bendX[place];
    const bendY = straight ? (y[tail] + y[head]) / 2 : network.bendY[place];
    const across = (x[head] - x[tail]) * scale[0], up = (y[head] - y[tail]) * scale[1];
    const length = Math.hypot(across, up) || 1;
    const aside = Math.min(narrow() ? 1.5 : 2.5, length / 12);
    const dx = (-up / length) * aside / scale[0], dy = (across / length) * aside / scale[1];
    const stops = straight ? [0, 0.6, 1] : [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1];
    return {
      x: stops.map((t) => (1 - t) * (1 - t) * x[tail] + 2 * t * (1 - t) * bendX + t * t * x[head] + dx),
      y: stops.map((t) => (1 - t) * (1 - t) * y[tail] + 2 * t * (1 - t) * bendY + t * t * y[head] + dy),
      mark: stops.indexOf(0.6),
    };
  }
  // About how many pixels a unit of the map has, across and up.
  function pixels(target) {
    const box = byId(target).getBoundingClientRect();
    const across = box.width / (extent(network.x) || 1), up = box.height / (extent(network.y) || 1);
    return flat() ? [across, up] : [Math.min(across, up), Math.min(across, up)];
  }

  // Links in one trace, with an arrow and what is said of each at one of its points.
  function lines(list, style, scale) {
    const trace = { type: "scatter", mode: "lines+markers", x: [], y: [], text: [], hoverinfo: [], name: style.name,
      line: { color: style.color, width: style.width }, connectgaps: false,
      marker: { color: style.color, symbol: "arrow", angleref: "previous", size: [], opacity: 1, line: { width: 0 } } };
    for (const link of list) {
      const points = curveOf(link.tail, link.head, scale);
      points.x.forEach((value, at) => {
        const marked = at === points.mark;
        trace.x.push(value);
        trace.y.push(points.y[at]);
        trace.text.push(marked ? link.text : "");
        trace.hoverinfo.push(marked ? "text" : "skip");
        trace.marker.size.push(marked ? style.arrow : 0);
      });
      trace.x.push(null);
      trace.y.push(null);
      trace.text.push("");
      trace.hoverinfo.push("skip");
      trace.marker.size.push(0);
    }
    return trace;
  }

  // Whether names beside nodes leave each other room.
  function roomy(places, scale) {
    const ends = places.map((place) => ({ x: network.x[place] * scale[0], y: network.y[place] * scale[1], wide: 6 * label(place).length + 8 }));
    ends.sort((a, b) => Math.round(a.y / 10) - Math.round(b.y / 10) || a.x - b.x);
    return ends.every((end, at) => at === 0 || Math.abs(end.y - ends[at - 1].y) > 10 || end.x - ends[at - 1].x > ends[at - 1].wide);
  }
  function nodes(more, scale) {
    return [false, true].filter((kind) => network.switch.includes(kind)).map((kind) => {
      const places = network.nodes.map((_, place) => place).filter((place) => network.switch[place] === kind);
      const many = network.nodes.length > (narrow() ? 24 : 72) || !roomy(places, scale);
      return {
        type: "scatter", mode: many ? "markers" : "markers+text", name: kind ? "switch" : "rank",
        x: places.map((place) => network.x[place]), y: places.map((place) => network.y[place]),
        text: places.map((place) => plain(label(place))), textposition: "bottom right",
        textfont: { size: 10, color: color("muted") },
        hovertext: places.map((place) => plain(network.nodes[place]) + "<br>" + (kind ? "switch" : "rank " + place)
          + (network.box[place] ? "<br>in " + plain(network.box[place]) : "")),
        hoverinfo: "text", cliponaxis: false, showlegend: more,
        marker: { size: network.nodes.length > 300 ? 5 : 12, symbol: kind ? "square" : "circle",
          color: color(kind ? "switch" : "node"), line: { width: 1.5, color: color("panel") } },
      };
    });
  }
  function label(place) {
    const name = network.nodes[place], box = network.box[place];
    return short(box && name.startsWith(box + "/") ? name.slice(box.length + 1) : name, 12);
  }

  function drawNetwork() {
    const links = data.plans[state.plan].links;
    const list = links.tails.map((tail, at) => ({
      tail: tail, head: links.heads[at], use: links.use[at], cut: links.cut[at],
      text: plain(network.nodes[tail]) + " → " + plain(network.nodes[links.heads[at]])
        + "<br>" + digits(links.bandwidth[at]) + " GB/s, " + digits(links.latency[at]) + " µs"
        + "<br>carries " + percent(links.load[at]) + " of all data<br>utilization " + percent(links.use[at])
        + (links.cut[at] ? "<br>in the bound" : ""),
    }));
    const bins = [["not used", (use) => use === 0], ["up to 50 %", (use) => use > 0 && use <= 0.5], ["up to 90 %", (use) => use > 0.5 && use <= 0.9],
      ["below 100 %", (use) => use > 0.9 && use < 0.999999], ["100 %", (use) => use >= 0.999999]];
    const dense = list.length > 400, scale = pixels("plot-network");
    const traces = [];
    const cut = list.filter((link) => link.cut);
    if (cut.length) {
      const halo = lines(cut, { name: plain(links.word), color: color("cut"), width: cut.length > 200 ? 2 : dense ? 4 : 8, arrow: 0 }, scale);
      halo.mode = "lines";
      halo.hoverinfo = "skip";
      halo.opacity = dense ? 1 : 0.55;
      traces.push(halo);
    }
    bins.forEach(([name, test], number) => {
      const some = list.filter((link) => test(link.use));
      if (!some.length) return;
      const trace = lines(some, { name: name, color: color("heat-" + number), width: dense ? 1 : 2, arrow: dense ? 4 : 8 }, scale);
      if (list.length > 2000) trace.opacity = 0.35;
      traces.push(trace);
    });
    // Among so many, the links of the bound are only seen on top.
    if (dense && cut.length) traces.push(traces.shift());
    note("network", links.leftOut);
    return Plotly.react("plot-network", traces.concat(nodes(true, scale)), map(), CONFIG);
  }

  function drawPart() {
    const parts = data.plans[state.plan].parts;
    const ends = parts.ends[state.part], ranks = parts.ranks[state.part];
    const groups = new Map();
    ranks.forEach((rank, at) => {
      const tail = ends[2 * at], head = ends[2 * at + 1];
      if (!groups.has(rank)) groups.set(rank, []);
      groups.get(rank).push({ tail: tail, head: head, text: plain(network.nodes[tail]) + " → " + plain(network.nodes[head]) + "<br>" + parts.rankWord + " " + rank });
    });
    const dense = ranks.length > 400, scale = pixels("plot-frame");
    const numbers = [...groups.keys()].sort((a, b) => a - b), legends = entries(numbers, parts.rankWord);
    const traces = numbers.map((rank) => Object.assign(
      lines(groups.get(rank), { color: shade(rank), width: dense ? 1.2 : 2.5, arrow: dense ? 5 : 11 }, scale), legends.get(rank)));
    const slider = byId("frame");
    slider.max = parts.labels.length - 1;
    slider.value = state.part;
    slider.disabled = parts.labels.length < 2;
    const words = (state.part + 1) + " of " + parts.labels.length + ": " + parts.labels[state.part] + ".";
    slider.setAttribute("aria-valuetext", words);
    byId("frame-label").textContent = words;
    byId("frame-back").disabled = state.part === 0;
    byId("frame-next").disabled = state.part + 1 >= parts.labels.length;
    note("frames", [parts.explained, parts.leftOut].filter(Boolean).join(" "));
    return Plotly.react("plot-frame", traces.concat(nodes(false, scale)), map(), CONFIG);
  }

  function drawTimeline() {
    const line = data.plans[state.plan].timelines[state.size];
    const parts = data.plans[state.plan].parts;
    const last = line.done ? "Dashed line: last byte received, after " + microseconds(line.done) + "." : "";
    note("timeline", [last, line.done ? parts.explained : "", line.note].filter(Boolean).join(" "));
    const target = byId("plot-timeline");
    if (!line.start || !line.start.length) {
      Plotly.purge(target);
      target.hidden = true;
      return Promise.resolve();
    }
    target.hidden = false;
    const names = [], rowOf = new Map();
    const named = (ends) => ends.map((node) => network.nodes[node]);
    const tails = named(line.tails), heads = named(line.heads);
    const rows = tails.map((tail, at) => {
      const key = line.tails[at] * network.nodes.length + line.heads[at];
      if (!rowOf.has(key)) {
        rowOf.set(key, names.length);
        names.push(short(tail, narrow() ? 9 : 16) + " → " + short(heads[at], narrow() ? 9 : 16));
      }
      return rowOf.get(key);
    });
    const scale = line.done >= 1e4 ? [1e3, "ms"] : [1, "µs"];
    const steps = [...new Set(line.step)].sort((a, b) => a - b);
    const word = parts.rankWord + " ", legends = entries(steps, parts.rankWord);
    const traces = steps.map((step) => {
      const mine = rows.map((_, at) => at).filter((at) => line.step[at] === step);
      return Object.assign({
        type: "bar", orientation: "h", y: mine.map((at) => rows[at]), base: mine.map((at) => line.start[at] / scale[0]),
        x: mine.map((at) => (line.end[at] - line.start[at]) / scale[0]), width: 0.74, textposition: "none",
        hoverinfo: "text", marker: { color: shade(step), line: { width: 0 } },
        hovertext: mine.map((at) => plain(tails[at]) + " → " + plain(heads[at]) + "<br>" + word + step + "<br>"
          + microseconds(line.start[at]) + " to " + microseconds(line.end[at]) + "<br>" + bytes(line.bytes[at])),
      }, legends.get(step));
    });
    const every = Math.max(1, Math.ceil(names.length / (narrow() ? 14 : 20)));
    const ticks = names.map((_, at) => at).filter((at) => at % every === 0);
    return Plotly.react(target, traces, layout({
      barmode: "overlay", xaxis: { title: { text: "time in " + scale[1] }, range: [0, 1.02 * line.done / scale[0]] }, margin: { l: 12, r: 12, t: 36, b: 46 },
      yaxis: { autorange: "reversed", tickvals: ticks, ticktext: ticks.map((at) => plain(names[at])), tickfont: { size: 11 }, showgrid: false },
      shapes: [{ type: "line", xref: "x", yref: "paper", x0: line.done / scale[0], x1: line.done / scale[0], y0: 0, y1: 1,
        line: { color: color("ink"), width: 1.2, dash: "dash" } }],
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, tracegroupgap: 0 },
    }), CONFIG);
  }

  function sizeAxis() {
    const sizes = data.curves.sizes;
    const shown = sizes.filter((_, at) => at % (narrow() ? 4 : 2) === 0);
    return { type: "log", title: { text: "total size in bytes" }, tickvals: shown, ticktext: shown.map((size) => bytes(size).replace("iB", "").replace(" ", "")) };
  }
  function drawSizes(target, key, limitKey, title, words, log) {
    const curvesShown = data.curves, limit = curvesShown.plans[state.plan][limitKey];
    note("sizes", curvesShown.leftOut);
    const traces = curvesShown.plans.map((plan, number) => ({
      type: "scatter", mode: "lines+markers", name: plain(plan.name), x: curvesShown.sizes, y: plan[key], hoverinfo: "text",
      line: { color: series(number), width: number === state.plan ? 3 : 1.8 }, marker: { size: 6, symbol: number },
      text: plan[key].map((value, at) => plain(plan.name) + "<br>" + bytes(curvesShown.sizes[at]) + ": " + words(value)),
    }));
    traces.push({ type: "scatter", mode: "lines", name: "bound", x: curvesShown.sizes, y: limit, hoverinfo: "text",
      text: limit.map((value) => "bound: " + words(value)), line: { color: color("cut"), width: 1.8, dash: "dash" } });
    const range = log ? {} : { rangemode: "tozero" };
    return Plotly.react(target, traces, layout({
      xaxis: sizeAxis(), yaxis: Object.assign({ title: { text: title } }, log ? { type: "log", exponentformat: "none", dtick: 1 } : range),
      showlegend: true, margin: { l: 12, r: 12, t: 36, b: 46 }, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    }), CONFIG);
  }
  const drawTime = () => drawSizes("plot-time", "time", "boundTime", "µs", microseconds, true);
  const drawAlgbw = () => drawSizes("plot-algbw", "algbw", "boundAlgbw", "GB/s", (value) => digits(value) + " GB/s", false);

  function note(name, text) {
    document.querySelector('[data-note="' + name + '"]').textContent = text || "";
  }
  function draw(which) {
    root.dataset.drawn = "";
    return Promise.all(which.map((step) => step())).then(() => {
      root.dataset.drawn = String([...document.querySelectorAll(".plot")].filter((plot) => plot.hidden || plot.querySelector(".main-svg")).length);
    });
  }
  const EVERYTHING = [drawNetwork, drawPart, drawTimeline, drawTime, drawAlgbw];

  function showPart(part) {
    const last = data.plans[state.plan].parts.labels.length - 1;
    state.part = Math.min(Math.max(part, 0), last);
    draw([drawPart]);
  }
  byId("frame").addEventListener("input", (event) => showPart(Number(event.target.value)));
  byId("frame-back").addEventListener("click", () => showPart(state.part - 1));
  byId("frame-next").addEventListener("click", () => showPart(state.part + 1));
  byId("size").addEventListener("change", (event) => { state.size = event.target.selectedIndex; draw([drawTimeline]); });
  const choice = byId("plan-choice");
  if (choice) {
    choice.addEventListener("change", () => {
      state.plan = choice.selectedIndex;
      state.part = 0;
      for (const block of document.querySelectorAll(".of-plan")) block.hidden = Number(block.dataset.plan) !== state.plan;
      filterRows();
      draw(EVERYTHING);
    });
  }

  // Colors: the system's, or what was chosen.
  const THEMES = ["system", "light", "dark"];
  byId("theme").addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme || "system") + 1) % THEMES.length];
    if (next === "system") delete root.dataset.theme;
    else root.dataset.theme = next;
    byId("theme").textContent = "Colors: " + next;
    byId("theme").setAttribute("aria-label", "Colors: " + (next === "system" ? "system default" : next) + ". Change.");
    draw(EVERYTHING);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(EVERYTHING));

  // Tables of links.
  function filterRows() {
    const wanted = byId("filter").value.toLowerCase(), onlyCut = byId("only-cut").checked;
    for (const block of document.querySelectorAll("#links .of-plan")) {
      if (block.hidden) continue;
      const rows = block.querySelectorAll("tbody tr");
      let shown = 0;
      for (const row of rows) {
        const names = (row.cells[0].textContent + "\n" + row.cells[1].textContent).toLowerCase();
        row.hidden = !names.includes(wanted) || (onlyCut && !row.classList.contains("in-cut"));
        shown += row.hidden ? 0 : 1;
      }
      block.querySelector(".shown-rows").textContent = shown === rows.length ? shown + " links." : shown + " of " + rows.length + " links.";
    }
  }
  byId("filter").addEventListener("input", filterRows);
  byId("only-cut").addEventListener("change", filterRows);
  const text = new Intl.Collator("en", { numeric: true });
  for (const table of document.querySelectorAll("table.links")) {
    table.querySelectorAll("thead th").forEach((heading, column) => {
      heading.firstElementChild.addEventListener("click", () => {
        const numbers = heading.classList.contains("number");
        const was = heading.getAttribute("aria-sort");
        const order = was ? (was === "ascending" ? "descending" : "ascending") : numbers ? "descending" : "ascending";
        for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const value = (row) => (numbers ? Number(row.cells[column].dataset.value) : row.cells[column].textContent);
        const keyed = [...table.tBodies[0].rows].map((row) => [value(row), row]);
        keyed.sort((a, b) => sign * (numbers ? a[0] - b[0] : text.compare(a[0], b[0])));
        table.tBodies[0].append(...keyed.map((pair) => pair[1]));
      });
    });
  }

  draw(EVERYTHING);
})();
