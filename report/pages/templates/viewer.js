"use strict";
/* Draws a network as SVG.  No dependency, no request; needs viewer.css.

sceneView(host, scene, options) fills the element `host`.  What a scene is, `report/html/scene.py` says.  Options:
`label`, what screen readers call it; `describe(kind, index)`, lines of text for a link or node instead of its own.

Events of `host`, with detail null or { kind: "link" | "node" | "switch", index, name }:
  scene-hover   the pointer or the keyboard is at it
  scene-pick    it was clicked, or Enter was pressed

The view that it returns:
  setScene(scene)       draw another scene; zoom and marks stay where the nodes are as many
  mark(links, nodes)    mark links and nodes by number, and fade others; without arguments none
  metric(values, low, high, words)   color links by -1 to 1 instead of their use; without arguments by use again
  part(number)          show one tree, step or sender; null shows all
  run(number)           choose among scene.runs
  at(time)              show what moves at this time in µs; null shows no moves
  zoom(factor), fit()
  describe(kind, index) the lines of text about a link or node
*/
const SceneText = {
  digits: (value) => Number(value.toPrecision(4)).toLocaleString("en"),
  percent: (share) => Number((100 * share).toPrecision(4)) + " %",
  time: (value) => {
    const [scale, unit] = value >= 1e6 ? [1e6, " s"] : value >= 1e3 ? [1e3, " ms"] : [1, " µs"];
    return SceneText.digits(value / scale) + unit;
  },
  bytes: (value) => {
    let unit = 0;
    while (value >= 1024 && unit < 4) { value /= 1024; unit += 1; }
    return SceneText.digits(value) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][unit];
  },
  nodeKind: (nodes, at) => (!nodes.switch[at] ? "rank" : /^(nic|hca)/i.test(nodes.label[at]) ? "NIC" : "switch"),
  short: (text, most) => (text.length <= most ? text : text.slice(0, Math.ceil(most / 2) - 1) + "…" + text.slice(-Math.floor(most / 2))),
};

// Steps have colors of their own; very many go from the first color to the last.
const STEP_COLORS = 6;
function stepStyle(step, top) {
  return top <= STEP_COLORS ? "--step: var(--series-" + (step - 1) + ")"
    : "--step: color-mix(in oklch, var(--series-0), var(--series-2) " + Math.round((100 * (step - 1)) / (top - 1)) + "%)";
}

function svgElement(name, attributes, parent, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

function sceneView(host, scene, options = {}) {
  const HEAT = 10, FONT = 11, MOST_TURNED = 0.62;
  const state = { zoom: 1, x: 0, y: 0, marked: null, part: null, run: 0, time: null, metric: null, cursor: null };
  let nodes, links, place, drawn, widths, moves;

  host.classList.add("scene");
  host.replaceChildren();
  const svg = svgElement("svg", { tabindex: 0, role: "application", "aria-roledescription": "network diagram" }, host);
  const layers = {};
  for (const name of ["boxes", "links", "part", "moves", "nodes", "labels"]) layers[name] = svgElement("g", { class: "layer-" + name }, svg);
  const html = (tag, name, parent) => parent.appendChild(Object.assign(document.createElement(tag), { className: name }));
  const buttons = html("div", "scene-buttons", host), tip = html("div", "scene-tip", host), spoken = html("p", "scene-spoken", host);
  const legend = html("div", "scene-legend", host);
  tip.hidden = true;
  spoken.setAttribute("role", "status");
  for (const [text, label, act] of [["+", "Zoom in", () => zoom(1.5)], ["−", "Zoom out", () => zoom(1 / 1.5)], ["⤢", "Show all", fit]]) {
    const button = html("button", "scene-button", buttons);
    Object.assign(button, { type: "button", textContent: text, title: label });
    button.setAttribute("aria-label", label);
    button.addEventListener("click", act);
  }

  // Places in pixels: rows may be stretched, other arrangements may not.
  function layOut() {
    const width = Math.max(host.clientWidth, 240), narrow = width < 600;
    // A curve is as far out in its middle as half of its control point.
    const span = (list, bends) => {
      const reached = list.concat(bends.map((bend, at) => (bend === null ? list[0] : (list[links.tail[at]] + list[links.head[at]] + 2 * bend) / 4)));
      return [reached.reduce((a, b) => Math.min(a, b)), reached.reduce((a, b) => Math.max(a, b))];
    };
    const [left, right] = span(nodes.x, links.bendX), [low, high] = span(nodes.y, links.bendY);
    const wide = right - left || 1, tall = high - low || 1, rows = scene.arrangement === "rows";
    const around = scene.arrangement === "rings" || scene.arrangement === "circle";
    const side = around ? (narrow ? 44 : 78) : 30, top = around ? side : 30, bottom = around ? side : rows ? 74 : 34;
    let across = (width - 2 * side) / wide, up;
    if (rows) {
      across = Math.min(across, 150);
      up = Math.min(Math.max(0.3 * width, 250), 420) / tall;
    } else {
      across = up = Math.min(across, (scene.arrangement === "rings" ? 660 : 460) / tall, 190);
    }
    const height = Math.round(up * (high - low)) + top + bottom;
    const shift = (width - across * (right - left)) / 2;
    const base = { x: nodes.x.map((x) => shift + (x - left) * across), y: nodes.y.map((y) => top + (high - y) * up) };
    state.x = Math.min(Math.max(state.x, 0), width - width / state.zoom);
    state.y = Math.min(Math.max(state.y, 0), height - height / state.zoom);
    const toX = (x) => (x - state.x) * state.zoom, toY = (y) => (y - state.y) * state.zoom;
    const bend = (at, list, pixels) => (list === links.bendX ? toX(shift + (list[at] - left) * across) : toY(top + (high - list[at]) * up));
    place = { width, height, narrow, x: base.x.map(toX), y: base.y.map(toY), bend, middle: [toX(width / 2), toY((top + height - bottom) / 2)] };
    place.radius = radii();
  }
  // Half the distance of the nearest two nodes of a row, within limits.
  function radii() {
    const nearest = new Map();
    const order = nodes.name.map((_, at) => at).sort((a, b) => nodes.row[a] - nodes.row[b]);
    order.forEach((one, at) => {
      for (let next = at + 1; next < order.length && nodes.row[order[next]] === nodes.row[one]; next += 1) {
        const apart = Math.hypot(place.x[one] - place.x[order[next]], place.y[one] - place.y[order[next]]);
        if (!(nearest.get(nodes.row[one]) <= apart)) nearest.set(nodes.row[one], apart);
      }
    });
    return nodes.row.map((row) => Math.min(Math.max(0.36 * (nearest.get(row) || 40), 2.5), 10));
  }

  // A link as a curve in pixels, beside the one that goes back.
  function curve(at) {
    const tail = links.tail[at], head = links.head[at];
    const x0 = place.x[tail], y0 = place.y[tail], x1 = place.x[head], y1 = place.y[head];
    const straight = links.bendX[at] === null;
    const bx = straight ? (x0 + x1) / 2 : place.bend(at, links.bendX), by = straight ? (y0 + y1) / 2 : place.bend(at, links.bendY);
    const length = Math.hypot(x1 - x0, y1 - y0) || 1, aside = Math.min(widths[at] / 2 + 0.9, length / 10);
    const dx = (-(y1 - y0) / length) * aside, dy = ((x1 - x0) / length) * aside;
    return [x0 + dx, y0 + dy, bx + dx, by + dy, x1 + dx, y1 + dy];
  }
  const pathOf = ([x0, y0, bx, by, x1, y1]) => "M" + [x0, y0].map(tenth) + "Q" + [bx, by, x1, y1].map(tenth).join(" ");
  const tenth = (value) => Math.round(10 * value) / 10;
  const pointOf = ([x0, y0, bx, by, x1, y1], t) => [(1 - t) * (1 - t) * x0 + 2 * t * (1 - t) * bx + t * t * x1, (1 - t) * (1 - t) * y0 + 2 * t * (1 - t) * by + t * t * y1];

  const valueOf = (at) => (state.metric ? state.metric.values[at] : links.use.length ? 2 * links.use[at] - 1 : null);
  function heat(at) {
    const value = valueOf(at);
    return value === null ? "heat-none" : !state.metric && links.use[at] === 0 ? "heat-unused" : "heat-" + Math.round(((value + 1) / 2) * HEAT);
  }

  function drawLinks() {
    const count = links.tail.length, most = Math.max(...links.bandwidth, 0);
    const scale = (count > 2000 ? 0.35 : count > 400 ? 0.6 : 1) * (place.narrow ? 0.75 : 1) * Math.min(state.zoom, 1.6);
    widths = links.bandwidth.map((bandwidth) => scale * (1.1 + 3 * Math.sqrt(bandwidth / most)));
    // Where the bound counts nearly every link, wide borders would hide what is below.
    const border = 2 * links.share.filter(Boolean).length > count ? 2.5 : 7 * Math.max(scale, 0.6);
    layers.links.replaceChildren();
    drawn = links.tail.map((_, at) => {
      const group = svgElement("g", { class: "link " + heat(at) + (links.share[at] ? " counted" : "") + (links.note ? " " + links.note[at] : ""), "data-link": at }, null);
      const shape = curve(at), d = pathOf(shape);
      if (links.share[at]) svgElement("path", { class: "halo", d, "stroke-width": tenth(widths[at] + border) }, group);
      if (count <= 2000) svgElement("path", { class: "reach", d, "stroke-width": tenth(Math.max(widths[at], place.narrow ? 12 : 7)) }, group);
      svgElement("path", { class: "line", d, "stroke-width": tenth(widths[at]) }, group);
      if (count <= 400 && Math.hypot(shape[4] - shape[0], shape[5] - shape[1]) > 36) {
        const [x, y] = pointOf(shape, 0.64), [nx, ny] = pointOf(shape, 0.66), size = 2.6 + 0.9 * widths[at];
        const turn = (Math.atan2(ny - y, nx - x) * 180) / Math.PI;
        svgElement("path", { class: "arrow", d: "M" + size + " 0L" + -0.6 * size + " " + 0.75 * size + "L" + -0.6 * size + " " + -0.75 * size + "Z", transform: "translate(" + tenth(x) + " " + tenth(y) + ") rotate(" + Math.round(turn) + ")" }, group);
      }
      return { group, shape, d };
    });
    // Those of the bound are seen on top.
    const order = drawn.map((_, at) => at).sort((a, b) => Boolean(links.share[a]) - Boolean(links.share[b]));
    layers.links.append(...order.map((at) => drawn[at].group));
  }

  function drawNodes() {
    layers.nodes.replaceChildren();
    layers.nodes.append(...nodes.name.map((_, at) => {
      const group = svgElement("g", { class: "node " + kindOf(at) + (nodes.inside[at] === side ? " inside" : "") + (nodes.note ? " " + nodes.note[at] : ""), "data-node": at }, null);
      const x = tenth(place.x[at]), y = tenth(place.y[at]), size = place.radius[at];
      if (nodes.switch[at]) svgElement("rect", { x: x - size, y: y - size, width: 2 * size, height: 2 * size, rx: size / 4 }, group);
      else svgElement("circle", { cx: x, cy: y, r: size }, group);
      return group;
    }));
  }
  // The smaller side of the cut is the one to look at.
  let side = 1;
  const kindOf = (at) => (nodes.switch[at] ? "switch" : "rank");

  function drawBoxes() {
    layers.boxes.replaceChildren();
    const boxes = new Map();
    nodes.box.forEach((box, at) => { if (box) boxes.set(box, [...(boxes.get(box) || []), at]); });
    const found = [...boxes].filter(([, members]) => members.length > 1);
    if (scene.arrangement !== "rows") return found;
    for (const [, members] of found) {
      const ends = [place.x, place.y].map((list) => [Math.min(...members.map((at) => list[at])), Math.max(...members.map((at) => list[at]))]);
      const pad = Math.min(14, 1.7 * Math.max(...members.map((at) => place.radius[at])));
      svgElement("rect", { class: "box", x: ends[0][0] - pad, y: ends[1][0] - pad, width: ends[0][1] - ends[0][0] + 2 * pad, height: ends[1][1] - ends[1][0] + 2 * pad, rx: 7 }, layers.boxes);
    }
    return found;
  }

  // Labels: for each row of nodes the first way of writing them that lets all of them stand without overlaps, or else the
  // one that most fit into.  What is left out is on the tip of the pointer.
  const measure = document.createElement("canvas").getContext("2d");
  function widthOf(text, size) {
    measure.font = size + "px " + getComputedStyle(host).fontFamily;
    return measure.measureText(text).width;
  }
  function rectangle(x, y, anchor, turn, wide, high) {
    const from = anchor === "middle" ? -wide / 2 : anchor === "end" ? -wide : 0, cos = Math.cos(turn), sin = Math.sin(turn);
    return [[from, -high / 2], [from + wide, -high / 2], [from + wide, high / 2], [from, high / 2]].map(([a, b]) => [x + a * cos - b * sin, y + a * sin + b * cos]);
  }
  function overlap(one, other) {
    for (const shape of [one, other]) {
      for (const [start, end] of [[0, 1], [1, 2]]) {
        const nx = shape[end][1] - shape[start][1], ny = shape[start][0] - shape[end][0];
        const [a, b] = [one, other].map((each) => each.map(([x, y]) => x * nx + y * ny));
        if (Math.max(...a) <= Math.min(...b) || Math.max(...b) <= Math.min(...a)) return false;
      }
    }
    return true;
  }
  function Room() {
    const cells = new Map(), SIZE = 48;
    const around = (shape, visit) => {
      const bounds = [0, 1].map((axis) => shape.map((corner) => Math.floor(corner[axis] / SIZE)));
      for (let x = Math.min(...bounds[0]); x <= Math.max(...bounds[0]); x += 1) {
        for (let y = Math.min(...bounds[1]); y <= Math.max(...bounds[1]); y += 1) if (visit(x + ":" + y)) return true;
      }
      return false;
    };
    return {
      taken: (shape, but) => around(shape, (cell) => (cells.get(cell) || []).some((other) => (but === undefined || other.owner !== but) && overlap(shape, other.shape))),
      take: (shape, owner) => around(shape, (cell) => { cells.set(cell, [...(cells.get(cell) || []), { shape, owner }]); return false; }),
    };
  }
  function ways(at) {
    const x = place.x[at], y = place.y[at], size = place.radius[at], label = SceneText.short(nodes.label[at], 14);
    const number = (label.match(/\d[\d.]*$/) || [label])[0];
    const [cx, cy] = place.middle, angle = Math.atan2(y - cy, x - cx), left = Math.cos(angle) < 0;
    const radial = (text) => ({ text, x: x + (size + 4) * Math.cos(angle), y: y + (size + 4) * Math.sin(angle), anchor: left ? "end" : "start", turn: left ? angle + Math.PI : angle });
    const beside = { text: label, x: x + size + 3, y, anchor: "start", turn: 0 };
    const inner = { text: number, x, y, anchor: "middle", turn: 0, inside: true, size: Math.min(FONT, (2.3 * size) / Math.max(number.length, 1.6)) };
    const around = scene.arrangement === "rings" || scene.arrangement === "circle";
    if (around && nodes.row[at] === 0) return [...(size >= 8 && scene.arrangement === "circle" ? [inner] : []), radial(label), radial(number), inner];
    if (around) return [inner, beside];
    if (scene.arrangement === "grid") return [{ ...beside, x: x + 0.7 * size + 2, y: y + 0.7 * size + 6 }, beside, { ...beside, y: y + size + 7, x, anchor: "middle" }, inner];
    const below = nodes.row[at] <= 0, away = size + 9;
    const plain = { text: label, x, y: below ? y + away : y - away, anchor: "middle", turn: 0 };
    const turned = (text) => ({ text, x, y: y + size + 4, anchor: "end", turn: -Math.PI / 2 });
    const aside = [plain, beside, { ...beside, anchor: "end", x: x - size - 3 }, { ...beside, x: x + 0.7 * size + 2, y: y + 0.7 * size + 5 }];
    return below ? [...aside, { ...plain, text: number }, { ...beside, text: number }, turned(label), turned(number), inner] : [plain, beside, { ...plain, text: number }, { ...beside, text: number }, inner];
  }
  // Where wide links are, of a network that is not too large.
  function crowdOfLinks() {
    const crowd = Room();
    if (links.tail.length <= 400) {
      drawn.forEach(({ shape }, at) => {
        for (let part = 0; part < 10 && widths[at] >= 2.5; part += 1) {
          const [x, y] = pointOf(shape, part / 10), [nextX, nextY] = pointOf(shape, (part + 1) / 10), turn = Math.atan2(nextY - y, nextX - x);
          crowd.take(rectangle(x, y, "start", turn, Math.hypot(nextX - x, nextY - y), widths[at]));
        }
      });
    }
    return crowd;
  }
  function drawLabels(boxes) {
    const crowd = crowdOfLinks();
    layers.labels.replaceChildren();
    const room = Room(), box = (label, at) => rectangle(label.x, label.y, label.anchor, label.turn, widthOf(label.text, label.size || FONT) + 3, (label.size || FONT) + 1);
    nodes.name.forEach((_, at) => {
      const size = place.radius[at] + 1;
      room.take(rectangle(place.x[at], place.y[at], "middle", 0, 2 * size, 2 * size), at);
    });
    const groups = new Map();
    nodes.row.forEach((row, at) => groups.set(row, [...(groups.get(row) || []), at]));
    const visible = (at) => place.x[at] > -5 && place.x[at] < place.width + 5 && place.y[at] > -5 && place.y[at] < place.height + 5;
    for (const members of groups.values()) {
      const shown = members.filter(visible), candidates = shown.map(ways);
      let best = [], least = Infinity;
      // Ways, one for all of the row; then, where these lie on links, a way of its own for each full name.
      const waysOfRow = candidates.length ? candidates[0].map((_, way) => (number) => [candidates[number][way]]) : [];
      for (const labels of [...waysOfRow, (number) => candidates[number].filter((label) => !label.inside && !label.turn && label.text === candidates[number][0].text)]) {
        const own = Room(), fits = [];
        let crowded = 0;
        shown.forEach((at, number) => {
          const free = labels(number).filter((label) => label && label.text && !(label.size < 7.5)).map((label) => [label, box(label), at])
            .filter(([label, shape]) => shape.every(([x, y]) => x >= 1 && x <= place.width - 1 && y >= 1 && y <= place.height - 1) && !room.taken(shape, label.inside ? at : undefined) && !own.taken(shape));
          const clear = free.find(([label, shape]) => label.inside || !crowd.taken(shape)), chosen = clear || free[0];
          if (!chosen) return;
          crowded += clear ? 0 : 1;
          own.take(chosen[1]);
          fits.push(chosen);
        });
        // With room for as many labels, fewest on links, and rather full names.
        const better = fits.length > best.length || (fits.length === best.length && (crowded < least || (crowded === least && best.length && best[0][0].inside && !fits[0][0].inside)));
        if (better) [best, least] = [fits, crowded];
        if (best.length === shown.length && !least && !best[0]?.[0].inside) break;
      }
      // A few of many names would look like a choice.
      if (shown.length > 8 && nodes.row[shown[0]] !== 0 && best.length < shown.length / 2) best = [];
      for (const [label, shape, at] of best) {
        room.take(shape);
        write(label, (label.inside ? "in-node " : "") + kindOf(at));
      }
    }
    for (const [name, members] of boxes) {
      const mean = (list) => members.reduce((sum, at) => sum + list[at], 0) / members.length;
      const [cx, cy] = place.middle, x = mean(place.x), y = mean(place.y), text = SceneText.short(name, place.narrow ? 8 : 16);
      const angle = Math.atan2(y - cy, x - cx), far = Math.max(...members.map((at) => Math.hypot(place.x[at] - cx, place.y[at] - cy)));
      const tries = scene.arrangement === "rows"
        ? [18, 30, 40, 52].map((below) => ({ text, x, y: Math.max(...members.map((at) => place.y[at])) + below, anchor: "middle", turn: 0 }))
        : [20, 32, 44, 56].map((out) => ({ text, x: cx + (far + out) * Math.cos(angle), y: cy + (far + out) * Math.sin(angle), anchor: Math.abs(Math.cos(angle)) < 0.3 ? "middle" : Math.cos(angle) > 0 ? "start" : "end", turn: 0 }));
      const label = tries.find((each) => { const shape = box(each); return !room.taken(shape) && shape.every(([a, b]) => a > 0 && a < place.width && b > 0 && b < place.height); });
      if (!label) continue;
      room.take(box(label));
      write(label, "of-box");
    }
  }
  function write(label, name) {
    const turn = label.turn ? " rotate(" + tenth((label.turn * 180) / Math.PI) + ")" : "";
    svgElement("text", { class: "label " + name, "text-anchor": label.anchor, "font-size": tenth(label.size || FONT), dy: ".35em", transform: "translate(" + tenth(label.x) + " " + tenth(label.y) + ")" + turn }, layers.labels, label.text);
  }

  function drawLegend() {
    legend.replaceChildren();
    const entry = (name, text) => { const item = html("span", "scene-entry", legend); html("i", "swatch " + name, item); item.append(text); };
    if (state.metric || links.use.length) {
      const bar = html("span", "scene-bar", legend), metric = state.metric || { words: "utilization", low: "0 %", high: "100 %" };
      bar.append(metric.words + " ", metric.low);
      const colors = html("span", "bar", bar);
      for (let step = 0; step <= HEAT; step += 1) html("i", "heat-" + step, colors);
      bar.append(metric.high);
      if (!state.metric && links.use.includes(0)) entry("line heat-unused", "not used");
    }
    if (links.share.some(Boolean)) entry("counted", scene.counted);
    if (side < 2) entry("rank inside", side ? "inside the cut" : "outside the cut");
    entry("rank", "rank");
    if (nodes.switch.includes(1)) entry("switch", "switch");
    const bandwidths = [...new Set(links.bandwidth)].sort((a, b) => a - b);
    if (bandwidths.length > 1) entry("wide", "wider: more GB/s (" + [bandwidths[0], bandwidths[bandwidths.length - 1]].map(SceneText.digits).join(" to ") + ")");
  }

  // One tree, step or sender: its links, and how much of its data each has carried so far.
  const topOf = () => (scene.parts ? scene.parts.ranks.reduce((most, ranks) => ranks.reduce((top, rank) => Math.max(top, rank), most), 1) : 1);
  let top = 1, progress = [];
  function drawPart() {
    layers.part.replaceChildren();
    progress = [];
    svg.classList.toggle("with-part", state.part !== null);
    if (state.part === null || !scene.parts) return;
    scene.parts.links[state.part].forEach((link, at) => {
      const rank = scene.parts.ranks[state.part][at], d = drawn[link].d, style = stepStyle(rank, top);
      const width = tenth(Math.max(widths[link] + 1, 2.4));
      svgElement("path", { class: "way", d, style, "stroke-width": width }, layers.part);
      const done = svgElement("path", { class: "passed", d, style, pathLength: 1, "stroke-width": width }, layers.part);
      const [x, y] = pointOf(drawn[link].shape, 0.7), [nx, ny] = pointOf(drawn[link].shape, 0.72);
      svgElement("path", { class: "tip", style, d: "M7 0L-4 4.6L-4 -4.6Z", transform: "translate(" + tenth(x) + " " + tenth(y) + ") rotate(" + Math.round((Math.atan2(ny - y, nx - x) * 180) / Math.PI) + ")" }, layers.part);
      progress.push({ link, rank, done });
    });
  }

  // What moves at a time: a dot for each piece that takes long enough to be followed, or a stream on a busy link.
  const pool = [];
  const runOf = () => (scene.runs || [])[state.run];
  function drawMoves() {
    const run = runOf();
    let used = 0;
    // Of some runs it is not known whose data moves; a part is shown as a whole then.
    if (state.time !== null && run && run.link && (state.part === null || totals().parts.has(state.part))) {
      const now = state.time / run.unit, pace = state.pace || Infinity, passed = new Map();
      for (let at = 0; at < run.link.length; at += 1) {
        const past = now - run.start[at];
        if (past < 0) break;
        const mine = state.part === null || run.part[at] === state.part;
        if (!mine) continue;
        const total = run.length[at] * run.count[at];
        if (state.part !== null) {
          const key = run.link[at] + ":" + run.step[at], sum = passed.get(key) || 0;
          passed.set(key, sum + Math.min(past, total));
        }
        if (past >= total) continue;
        const seconds = (run.length[at] * run.unit) / pace;
        move(used, run.link[at], run.step[at], seconds >= 0.12 ? (past % run.length[at]) / run.length[at] : null);
        used += 1;
      }
      for (const each of progress) {
        const key = each.link + ":" + each.rank, all = totals().sums.get(state.part + ":" + key);
        each.done.setAttribute("stroke-dasharray", (all ? Math.min((passed.get(key) || 0) / all, 1) : 0).toFixed(3) + " 2");
      }
    } else {
      for (const each of progress) each.done.setAttribute("stroke-dasharray", "1 0");
    }
    for (let at = used; at < pool.length; at += 1) pool[at].mark.setAttribute("display", "none");
    svg.classList.toggle("playing", state.time !== null);
  }
  function move(number, link, step, share) {
    if (!drawn[link]) return;
    if (!pool[number]) {
      const mark = svgElement("g", { class: "move" }, layers.moves);
      pool[number] = { mark, dot: svgElement("circle", {}, mark), stream: svgElement("path", { class: "stream" }, mark), link: -1, step: -1 };
    }
    const { mark, dot, stream } = pool[number];
    mark.removeAttribute("display");
    if (pool[number].step !== step) mark.setAttribute("style", stepStyle(step, top));
    pool[number].step = step;
    dot.setAttribute("display", share === null ? "none" : "inline");
    stream.setAttribute("display", share === null ? "inline" : "none");
    if (share === null) {
      stream.setAttribute("d", drawn[link].d);
      stream.setAttribute("stroke-width", tenth(Math.max(widths[link], 2)));
      stream.setAttribute("stroke-dashoffset", tenth(-state.phase || 0));
    } else {
      const [x, y] = pointOf(drawn[link].shape, share);
      dot.setAttribute("cx", tenth(x));
      dot.setAttribute("cy", tenth(y));
      dot.setAttribute("r", tenth(Math.max(widths[link] * 0.9, 3.2)));
    }
  }
  // How long each link of each part is busy with each step in all, and which parts are known.
  function totals() {
    const run = runOf();
    if (!moves || moves.run !== run) {
      moves = { run, sums: new Map(), parts: new Set(run.part) };
      run.link.forEach((link, at) => {
        const key = run.part[at] + ":" + link + ":" + run.step[at];
        moves.sums.set(key, (moves.sums.get(key) || 0) + run.length[at] * run.count[at]);
      });
    }
    return moves;
  }

  function describe(kind, index) {
    if (options.describe) return options.describe(kind, index);
    if (kind !== "link") return [nodes.name[index], nodes.switch[index] ? SceneText.nodeKind(nodes, index) : "rank " + index, ...(nodes.box[index] ? ["in " + nodes.box[index]] : []), ...(nodes.inside[index] ? ["inside the cut"] : [])];
    const lines = [nodes.name[links.tail[index]] + " → " + nodes.name[links.head[index]], SceneText.digits(links.bandwidth[index]) + " GB/s, " + SceneText.digits(links.latency[index]) + " µs, " + scene.kinds[links.kind[index]]];
    if (links.use.length) lines.push("carries " + SceneText.percent(links.load[index]) + " of all data", "utilization " + SceneText.percent(links.use[index]));
    if (links.share[index]) lines.push(SceneText.percent(links.share[index]) + " of the bound's sum");
    if (scene.parts) {
      const count = scene.parts.links.filter((list) => list.includes(index)).length;
      lines.push("used by " + count + " of " + scene.parts.label.length + " " + scene.parts.word.toLowerCase() + "s");
    }
    return lines;
  }

  // Marks, the tip and events.
  function mark(someLinks, someNodes) {
    for (const marked of svg.querySelectorAll(".marked")) marked.classList.remove("marked");
    const any = Boolean((someLinks && someLinks.length) || (someNodes && someNodes.length));
    svg.classList.toggle("some-marked", any);
    for (const at of someLinks || []) if (drawn[at]) drawn[at].group.classList.add("marked");
    for (const at of someNodes || []) layers.nodes.children[at].classList.add("marked");
    state.marked = any ? [someLinks || [], someNodes || []] : null;
  }
  function detailOf(target) {
    const link = target && target.closest && target.closest("[data-link]"), node = target && target.closest && target.closest("[data-node]");
    if (node) return { kind: kindOf(+node.dataset.node) === "switch" ? "switch" : "node", index: +node.dataset.node, name: nodes.name[+node.dataset.node] };
    if (link) return { kind: "link", index: +link.dataset.link, name: nodes.name[links.tail[+link.dataset.link]] + " → " + nodes.name[links.head[+link.dataset.link]] };
    return null;
  }
  const tell = (name, detail) => host.dispatchEvent(new CustomEvent(name, { detail, bubbles: true }));
  const linksAt = (node) => links.tail.map((_, at) => at).filter((at) => links.tail[at] === node || links.head[at] === node);
  function point(detail, x, y) {
    if (!detail) {
      tip.hidden = true;
      mark();
      return;
    }
    const isLink = detail.kind === "link", ends = isLink ? [links.tail[detail.index], links.head[detail.index]] : [detail.index];
    mark(isLink ? [detail.index] : linksAt(detail.index), ends);
    tip.replaceChildren(...describe(detail.kind, detail.index).map((line, at) => Object.assign(document.createElement(at ? "div" : "strong"), { textContent: line })));
    tip.hidden = false;
    const wide = tip.offsetWidth, high = tip.offsetHeight;
    tip.style.left = Math.max(4, Math.min(x + 14, place.width - wide - 4)) + "px";
    tip.style.top = (y + 18 + high > place.height ? Math.max(4, y - high - 12) : y + 18) + "px";
  }
  let last = null, dragged = null, pointer = null;
  function hover(detail, x, y) {
    const changed = JSON.stringify(detail) !== JSON.stringify(last);
    last = detail;
    point(detail, x, y);
    if (changed) tell("scene-hover", detail);
  }
  svg.addEventListener("pointermove", (event) => {
    const bounds = svg.getBoundingClientRect();
    if (dragged) {
      const by = [event.clientX - dragged.fromX, event.clientY - dragged.fromY];
      dragged.moved = dragged.moved || Math.hypot(...by) > 4;
      // What lies outside is drawn when the drag ends.
      if (dragged.moved) svg.setAttribute("viewBox", [-by[0], -by[1], place.width, place.height].join(" "));
    } else {
      pointer = [event.clientX, event.clientY];
      hover(detailOf(event.target), event.clientX - bounds.left, event.clientY - bounds.top);
    }
  });
  svg.addEventListener("pointerleave", () => {
    pointer = null;
    if (!dragged) hover(null);
  });
  // What is below the pointer after the picture has changed.
  function hoverAgain() {
    const bounds = svg.getBoundingClientRect(), target = document.elementFromPoint(...pointer);
    hover(svg.contains(target) ? detailOf(target) : null, pointer[0] - bounds.left, pointer[1] - bounds.top);
  }
  svg.addEventListener("pointerdown", (event) => {
    if (state.zoom > 1) {
      dragged = { fromX: event.clientX, fromY: event.clientY };
      svg.setPointerCapture(event.pointerId);
    }
  });
  svg.addEventListener("pointerup", (event) => {
    state.justDragged = dragged !== null && Boolean(dragged.moved);
    if (state.justDragged) {
      state.x -= (event.clientX - dragged.fromX) / state.zoom;
      state.y -= (event.clientY - dragged.fromY) / state.zoom;
      redraw();
    }
    dragged = null;
  });
  svg.addEventListener("click", (event) => {
    const detail = detailOf(document.elementFromPoint(event.clientX, event.clientY));
    if (!state.justDragged) tell("scene-pick", detail);
  });
  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const bounds = svg.getBoundingClientRect();
    zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, event.clientX - bounds.left, event.clientY - bounds.top);
  }, { passive: false });

  // Keys: left and right go from node to node, up and down through the links that leave it.
  svg.addEventListener("keydown", (event) => {
    const act = { "+": () => zoom(1.5), "-": () => zoom(1 / 1.5), 0: fit, Escape: () => { state.cursor = null; hover(null); } }[event.key];
    const cursor = state.cursor || { node: -1, link: -1 };
    if (act) act();
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") go({ node: turnOf(cursor.node, event.key === "ArrowRight" ? 1 : -1, nodes.name.length), link: -1 });
    else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && cursor.node >= 0) {
      const out = links.tail.map((_, at) => at).filter((at) => links.tail[at] === cursor.node);
      if (out.length) go({ node: cursor.node, link: out[turnOf(out.indexOf(cursor.link), event.key === "ArrowDown" ? 1 : -1, out.length)] });
    } else if ((event.key === "Enter" || event.key === " ") && cursor.node >= 0) tell("scene-pick", last);
    else return;
    event.preventDefault();
  });
  const turnOf = (at, by, count) => (at < 0 ? (by > 0 ? 0 : count - 1) : (at + by + count) % count);
  function go(cursor) {
    state.cursor = cursor;
    const target = cursor.link >= 0 ? drawn[cursor.link].group : layers.nodes.children[cursor.node];
    const [x, y] = cursor.link >= 0 ? pointOf(drawn[cursor.link].shape, 0.5) : [place.x[cursor.node], place.y[cursor.node]];
    hover(detailOf(target), x, y);
    spoken.textContent = describe(last.kind, last.index).join("; ");
  }
  svg.addEventListener("blur", () => { state.cursor = null; hover(null); });

  function zoom(factor, x = place.width / 2, y = place.height / 2) {
    const next = Math.min(Math.max(state.zoom * factor, 1), 12);
    state.x += x / state.zoom - x / next;
    state.y += y / state.zoom - y / next;
    state.zoom = next;
    redraw();
  }
  function fit() {
    Object.assign(state, { zoom: 1, x: 0, y: 0 });
    redraw();
  }
  function redraw() {
    layOut();
    for (const [name, value] of [["viewBox", "0 0 " + place.width + " " + place.height], ["height", place.height]]) svg.setAttribute(name, value);
    svg.style.cursor = state.zoom > 1 ? "grab" : "";
    const boxes = drawBoxes();
    drawLinks();
    drawNodes();
    drawLabels(boxes);
    drawPart();
    drawMoves();
    if (state.marked) mark(...state.marked);
  }
  function setScene(next) {
    const same = nodes && next.nodes.name.length === nodes.name.length;
    scene = next;
    ({ nodes, links } = scene);
    moves = null;
    top = topOf();
    side = nodes.inside.includes(1) ? Number(2 * nodes.inside.filter(Boolean).length <= nodes.name.length) : 2;
    if (!same) Object.assign(state, { zoom: 1, x: 0, y: 0, marked: null, cursor: null });
    if (!same || (state.part !== null && !(scene.parts && scene.parts.links[state.part]))) state.part = null;
    state.run = Math.min(state.run, Math.max((scene.runs || []).length - 1, 0));
    const ranks = nodes.switch.filter((is) => !is).length;
    svg.setAttribute("aria-label", (options.label || "Network " + scene.title) + ": " + ranks + " ranks, " + (nodes.name.length - ranks) + " switches, " + links.tail.length
      + " links. Arrow keys left and right go through nodes, up and down through the links of a node, Enter picks, plus and minus zoom.");
    redraw();
    drawLegend();
    if (pointer) hoverAgain();
  }
  let width = 0;
  new ResizeObserver(() => {
    if (host.clientWidth && host.clientWidth !== width) { width = host.clientWidth; redraw(); }
  }).observe(host);
  setScene(scene);
  return {
    setScene, mark, zoom, fit, describe,
    metric: (values, low, high, words) => { state.metric = values ? { values, low, high, words } : null; redraw(); drawLegend(); },
    part: (number) => { state.part = number; drawPart(); drawMoves(); },
    run: (number) => { state.run = number; moves = null; drawMoves(); },
    at: (time, pace, phase) => { Object.assign(state, { time, pace, phase }); drawMoves(); },
    stepStyle: (step) => stepStyle(step, top),
  };
}

/* Plays a run of a scene in a view: scenePlayer(host, view) fills `host` with a button, a slider, the time and a speed.

Event of `host`: scene-time, detail { time }, which is null at the start, where nothing moves yet.  The player returns:
  setRun(run, number)   a row of scene.runs, played from its start
  seek(time)            go to a time in µs
*/
function scenePlayer(host, view) {
  const SECONDS = 12, STEPS = 1000, still = window.matchMedia("(prefers-reduced-motion: reduce)");
  const state = { time: 0, playing: false, run: null, last: 0, phase: 0 };
  const make = (tag, properties) => host.appendChild(Object.assign(document.createElement(tag), properties));
  host.classList.add("player");
  host.setAttribute("role", "group");
  host.setAttribute("aria-label", "Play the schedule over time");
  const button = make("button", { type: "button", className: "plain-button play" });
  const slider = make("input", { type: "range", min: 0, max: STEPS, value: 0, className: "seek" });
  const clock = make("output", { className: "clock" });
  const speed = make("select", { className: "speed" });
  slider.setAttribute("aria-label", "Time");
  speed.setAttribute("aria-label", "Speed");
  for (const [value, text] of [[4, "4 ×"], [1, "1 ×"], [1 / 4, "¼ ×"], [1 / 16, "1/16 ×"], [1 / 64, "1/64 ×"]]) speed.add(new Option(text, value, value === 1, value === 1));

  const pace = () => (state.run.done / SECONDS) * Number(speed.value);  // µs a second
  function show() {
    const done = state.run.done, ended = state.time >= done;
    button.textContent = state.playing ? "❚❚ Pause" : ended ? "↻ Replay" : "▶ Play";
    slider.value = Math.round((STEPS * state.time) / done);
    clock.textContent = SceneText.time(state.time) + " of " + SceneText.time(done);
    slider.setAttribute("aria-valuetext", clock.textContent);
    const time = state.time === 0 && !state.playing ? null : state.time;
    view.at(time, pace(), state.phase);
    host.dispatchEvent(new CustomEvent("scene-time", { detail: { time }, bubbles: true }));
  }
  function frame(now) {
    if (!state.playing) return;
    const passed = Math.min((now - state.last) / 1000, 0.1);
    // Who wants no motion sees one picture after the other.
    if (!still.matches || now - state.last >= 500) {
      state.time = Math.min(state.time + pace() * (still.matches ? 0.5 : passed), state.run.done);
      state.phase = still.matches ? 0 : state.phase + 60 * passed;
      state.last = now;
      if (state.time >= state.run.done) state.playing = false;
      show();
    }
    if (state.playing) requestAnimationFrame(frame);
  }
  function play(start) {
    state.playing = start;
    if (start && state.time >= state.run.done) state.time = 0;
    state.last = performance.now();
    show();
    if (start) requestAnimationFrame(frame);
  }
  function seek(time) {
    state.time = Math.min(Math.max(time, 0), state.run.done);
    show();
  }
  button.addEventListener("click", () => play(!state.playing));
  slider.addEventListener("input", () => seek((slider.value / STEPS) * state.run.done));
  slider.addEventListener("keydown", (event) => {
    if (event.key === " ") play(!state.playing);
    else if (event.key === "PageUp" || event.key === "PageDown") seek(state.time + ((event.key === "PageUp" ? 1 : -1) * state.run.done) / 20);
    else return;
    event.preventDefault();
  });
  speed.addEventListener("change", show);
  return {
    seek,
    setRun: (run, number) => {
      Object.assign(state, { run, time: 0, playing: false });
      host.hidden = !run || !run.link;
      view.run(number);
      if (!host.hidden) show();
    },
  };
}
