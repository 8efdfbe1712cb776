"use strict";
/* The page of collopt explore.  A state is what is behind # in the address, as report/pages/answers.py reads it, and
   `against`, the state that it is compared with; each answer of the server is kept by the state that it is about. */
const $ = (id) => document.getElementById(id);
const element = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text }, more);
const PATIENCE = 300; // ms that an outdated question may still take before it is stopped
const SINGLE = ["network", "collective", "root", "size", "planner"];
const SILENT = "the server does not answer: it has ended, or this machine has slept; start collopt explore again";
const results = new Map(); // by state
const MOST_RESULTS = 40;
let facts, state, picked = null, running = null, stopped = null, step = 0, last = 0;

/* States */
function parse(text) {
  const given = new URLSearchParams(text), made = { scale: new Map(), without: given.getAll("without"), against: given.get("against") };
  for (const name of SINGLE) made[name] = given.get(name) || "";
  for (const scaling of given.getAll("scale")) {
    const at = scaling.lastIndexOf(" x ");
    made.scale.set(scaling.slice(0, at), scaling.slice(at + 3));
  }
  return made;
}
function query(of, changes = true) {
  const parts = SINGLE.filter((name) => of[name] && !(name === "planner" && of[name] === "auto")).map((name) => [name, of[name]]);
  if (changes) parts.push(...[...of.scale].map(([target, factor]) => ["scale", target + " x " + factor]), ...of.without.map((name) => ["without", name]));
  return new URLSearchParams(parts).toString();
}
const address = (of) => "#" + query(of) + (of.against === null ? "" : "&" + new URLSearchParams({ against: of.against }));
const copyOf = (of) => ({ ...of, scale: new Map(of.scale), without: [...of.without] });

// Undo and redo are the browser's back and forward.
function commit(change, keep = true) {
  const next = copyOf(state);
  change(next);
  if (address(next) === location.hash && query(next) === query(state)) return;
  state = next;
  if (keep) {
    step = last = step + 1;
    history.pushState({ step }, "", address(state));
  } else history.replaceState({ step }, "", address(state));
  sessionStorage.setItem("last", last);
  refresh();
}
function arrive(event) {
  const { against } = (event && state) || {};
  state = parse(location.hash.slice(1));
  if (against !== undefined) state.against = against;
  if (history.state) {
    step = history.state.step;
    history.replaceState({ step }, "", address(state));
  } else {
    step = last = step + 1;
    history.replaceState({ step }, "", location.hash);
  }
  refresh();
}

/* Questions: what is shown, and what it is compared with, one at a time */
function refresh() {
  fill();
  render();
  if (running && !wanted().includes(running.query)) {
    const outdated = running;
    setTimeout(() => { if (running === outdated && !wanted().includes(outdated.query)) outdated.control.abort(); }, PATIENCE);
  }
  pump();
}
const wanted = () => [query(state), ...(state.against === null ? [] : [state.against])];
async function pump() {
  const next = wanted().find((each) => !(results.has(each) && results.get(each).done));
  if (running || next === undefined) return;
  const result = {}, control = new AbortController(), began = performance.now();
  running = { query: next, control, began };
  keepResult(next, result);
  const late = setTimeout(working, 400);
  try {
    const response = await fetch("answers?" + next, { signal: control.signal });
    for await (const answer of linesOf(response)) {
      Object.assign(result, answer);
      if (answer.progress !== undefined) result.share = answer.share;
      if (wanted().includes(next)) render();
    }
    result.done = true;
    result.seconds = (performance.now() - began) / 1000;
  } catch (error) {
    if (error.name !== "AbortError") Object.assign(result, { done: true, error: SILENT });
    else if (next === stopped) Object.assign(result, { done: true, stopped: true });
    else results.delete(next);
  }
  clearTimeout(late);
  running = null;
  working();
  render();
  pump();
}
function keepResult(about, result) {
  results.delete(about);
  results.set(about, result);
  for (const old of results.keys()) if (results.size > MOST_RESULTS && !wanted().includes(old)) results.delete(old);
}
async function* linesOf(response) {
  if (!response.ok) { yield await response.json(); return; }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + part.value).split("\n");
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
}
function working() {
  $("working").hidden = !running || performance.now() - running.began < 390;
  if (!running) return;
  const { progress, share } = results.get(running.query) || {};
  $("doing").textContent = progress || "planning";
  if (share === undefined) $("share").removeAttribute("value");
  else $("share").value = share;
}

/* Pictures.  Nodes stay where they are in the intact network, and what is gone is drawn as gone. */
const latest = (result) => (result.play || result.plan || result.bound || result.changed || result.network).scene;
function compose(result) {
  const base = result.network.scene, now = latest(result);
  const left = (result.changed || result.network).scene, number = new Map(base.nodes.name.map((name, at) => [name, at]));
  const key = (scene, at) => scene.nodes.name[scene.links.tail[at]] + " " + scene.nodes.name[scene.links.head[at]];
  const placeOf = new Map(base.links.tail.map((_, at) => [key(base, at), at])), alive = new Set(left.links.tail.map((_, at) => key(left, at)));
  const gone = base.links.tail.map((_, at) => at).filter((at) => !alive.has(key(base, at)));
  const places = [...now.links.tail.map((_, at) => placeOf.get(key(now, at))), ...gone], from = now.links, count = from.tail.length;
  const own = (name) => places.map((_, at) => (at < count ? from[name][at] : 0)), given = (name) => places.map((place) => base.links[name][place]);
  const inside = new Map(now.nodes.name.map((name, at) => [name, now.nodes.inside[at]]));
  const chosen = picked && targets(base, picked.target);
  return {
    ...now, title: result.network.name, kinds: base.kinds,
    nodes: {
      ...base.nodes, inside: base.nodes.name.map((name) => inside.get(name) || 0),
      note: base.nodes.name.map((name, at) => (inside.has(name) ? "" : "gone ") + (picked && picked.target === name ? "picked" : "")),
    },
    links: {
      tail: given("tail"), head: given("head"), bendX: given("bendX"), bendY: given("bendY"), kind: given("kind"), latency: given("latency"),
      bandwidth: places.map((place, at) => (at < count ? from : base.links).bandwidth[at < count ? at : place]), share: own("share"), load: from.load.length ? own("load") : [], use: from.use.length ? own("use") : [],
      before: given("bandwidth"),
      note: places.map((place, at) => (at < count ? "" : "gone ") + (chosen && chosen.has(place) && !number.has(picked.target) ? "picked" : "")),
    },
  };
}
// Links of the intact network that a target means: a class, a node, or A--B.
function targets(base, target) {
  const { tail, head, kind } = base.links, name = base.nodes.name, klass = base.kinds.indexOf(target);
  const means = (at) => kind[at] === klass || name[tail[at]] === target || name[head[at]] === target
    || name[tail[at]] + "--" + name[head[at]] === target || name[head[at]] + "--" + name[tail[at]] === target;
  return new Set(tail.map((_, at) => at).filter(means));
}
function Pane(id) {
  const pane = $(id), host = pane.querySelector(".view");
  let view = null, shown = null, drawn = null;
  host.addEventListener("scene-pick", ({ detail }) => {
    if (!detail) return;
    const { nodes, links } = shown, ends = [links.tail[detail.index], links.head[detail.index]];
    pick(detail.kind !== "link" ? detail.name : ends.sort((a, b) => a - b).map((end) => nodes.name[end]).join("--"));
  });
  function describe(kind, at) {
    const { nodes, links, kinds } = shown;
    if (kind !== "link") return [nodes.name[at], nodes.note[at].includes("gone") ? "gone" : SceneText.nodeKind(nodes, at), "click to change it"];
    const lines = [nodes.name[links.tail[at]] + " → " + nodes.name[links.head[at]]];
    if (links.note[at].includes("gone")) return [...lines, "gone", "click to change it"];
    lines.push(SceneText.digits(links.bandwidth[at]) + " GB/s, " + kinds[links.kind[at]]);
    if (links.use.length) lines.push("utilization " + SceneText.percent(links.use[at]));
    if (links.share[at]) lines.push(SceneText.percent(links.share[at]) + " of the bound's sum");
    return [...lines, "click to change it"];
  }
  return {
    get view() { return view; },
    show(result, label) {
      if (!result || !result.network) return;
      pane.querySelector("figcaption span").textContent = label;
      // Progress changes no picture.
      const now = [latest(result), result.changed, picked && picked.target];
      if (drawn && now.every((each, at) => each === drawn[at])) return;
      drawn = now;
      shown = compose(result);
      if (view) view.setScene(shown);
      else view = sceneView(host, shown, { label: "Network", describe });
    },
    get shown() { return shown; },
  };
}
const paneA = Pane("pane-a"), paneB = Pane("pane-b");

/* The form */
function fill() {
  const rooted = facts.collectives[state.collective];
  $("network").value = state.network;
  $("collective").value = state.collective;
  $("root-label").hidden = !rooted;
  $("root").value = state.root;
  $("size").value = state.size;
  $("planner").replaceChildren(...facts.planners.filter((each) => each.collectives.includes(state.collective))
    .map((each) => element("option", each.name, { value: each.name, title: each.summary })));
  $("planner").value = state.planner || "auto";
  if (!$("planner").value) $("planner").append(element("option", state.planner, { value: state.planner, selected: true }));
  $("undo").disabled = step <= 0;
  $("redo").disabled = step >= last;
  $("compare").setAttribute("aria-pressed", String(state.against !== null));
  $("compare").textContent = state.against === null ? "Compare" : "Stop comparing";
  document.title = state.network + " – collopt explore";
}
function request(name, value) {
  commit((next) => {
    next[name] = value.trim();
    if (name !== "collective") return;
    if (!facts.collectives[next.collective]) next.root = "";
    else if (!next.root) next.root = "0";
    const planner = facts.planners.find((each) => each.name === next.planner);
    if (planner && !planner.collectives.includes(next.collective)) next.planner = "";
  });
}
for (const name of ["collective", "root", "size", "planner"]) $(name).addEventListener("change", (event) => request(name, event.target.value));
$("request").addEventListener("submit", (event) => event.preventDefault());
$("network-form").addEventListener("submit", (event) => { event.preventDefault(); openNetwork($("network").value.trim()); });
function openNetwork(words, changed = words !== state.network) {
  results.clear();
  listed = null;
  picked = null;
  if (changed) commit((next) => Object.assign(next, { network: words, scale: new Map(), without: [], root: facts.collectives[next.collective] ? "0" : "", against: null }));
  refresh();
}
$("undo").addEventListener("click", () => history.back());
$("redo").addEventListener("click", () => history.forward());
$("stop").addEventListener("click", () => { stopped = running && running.query; if (running) running.control.abort(); });
// What is compared is no change of the network, so it is no step to undo.
$("compare").addEventListener("click", () => commit((next) => { next.against = next.against === null ? query(next) : null; }, false));
addEventListener("popstate", arrive);
$("keys-button").addEventListener("click", () => $("keys").showModal());
$("keys-close").addEventListener("click", () => $("keys").close());
addEventListener("keydown", (event) => {
  if (event.key === "?" && !event.target.matches("input, select, textarea")) { $("keys").showModal(); return; }
  if (!(event.ctrlKey || event.metaKey) || event.altKey || event.target.matches("input:not([type=range])")) return;
  const key = event.key.toLowerCase(), forward = key === "y" || (key === "z" && event.shiftKey);
  if (!forward && key !== "z") return;
  event.preventDefault();
  $(forward ? "redo" : "undo").click();
});

/* Files */
async function upload(file) {
  const response = await fetch("upload/" + encodeURIComponent(file.name), { method: "PUT", body: file }).catch(() => null);
  const answer = response && (await response.json().catch(() => null));
  if (!answer || answer.error) fail(answer ? answer.error : file.name + " cannot be taken: it is larger than 256 MiB, or the server has ended");
  else openNetwork(answer.network, true);
}
$("open").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => { if ($("file").files[0]) upload($("file").files[0]); $("file").value = ""; });
addEventListener("dragover", (event) => { event.preventDefault(); $("drop").hidden = !event.dataTransfer.types.includes("Files"); });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("drop").hidden = true; });
addEventListener("drop", (event) => {
  event.preventDefault();
  $("drop").hidden = true;
  if (event.dataTransfer.files[0]) upload(event.dataTransfer.files[0]);
});
async function save(form) {
  const response = await fetch("file/" + form + "?" + query(state)).catch(() => null);
  if (!response || !response.ok) { fail(response ? (await response.json()).error : SILENT); return; }
  const link = element("a", "", { href: URL.createObjectURL(await response.blob()), download: form });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  const note = decodeURIComponent(response.headers.get("Collopt-Note"));
  if (note) fail("Saved " + form + ": " + note);
  else say("Saved " + form);
}
function fail(message) {
  $("error").textContent = message;
  $("error").hidden = false;
}
const say = (text) => { $("spoken").textContent = text; };
for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", async () => {
    const text = button.dataset.copy === "address" ? location.href : $(button.dataset.copy).textContent.trim();
    await navigator.clipboard.writeText(text).catch(() => fail("the browser lets nothing be copied; select the text instead"));
    const before = button.textContent;
    button.textContent = "Copied";
    say("Copied");
    setTimeout(() => { button.textContent = before; }, 1500);
  });
}

/* Changes */
function pick(target) {
  picked = target ? { target } : null;
  $("pick").value = target || "";
  render();
}
$("pick").addEventListener("change", (event) => {
  const typed = event.target.value.trim(), base = current().network.scene;
  if (!typed || targets(base, typed).size || base.nodes.name.includes(typed)) pick(typed);
  else fail(typed + " is no node, link or class of links of this network; choose one of the list");
});
const gcd = (a, b) => (b ? gcd(b, a % b) : a);
const percentOf = (factor) => { const [above, below = "1"] = factor.split("/"); return (100 * Number(above)) / Number(below); };
function factorOf(percent) {
  const scaled = Math.round(percent * 100), common = gcd(scaled, 10000);
  return scaled / common + (common === 10000 ? "" : "/" + 10000 / common);
}
function scale(target, percent, keep) {
  if (!(percent > 0 && percent <= 10000)) { fail("a bandwidth of " + percent + " % is none; expected more than 0 and at most 10000, or break the link"); render(); return; }
  commit((next) => {
    next.without = next.without.filter((name) => name !== target);
    if (percent === 100) next.scale.delete(target);
    else next.scale.set(target, factorOf(percent));
  }, keep);
}
function restore(target) {
  commit((next) => {
    next.scale.delete(target);
    next.without = next.without.filter((name) => name !== target);
  });
}
let sliding = false;
$("factor").addEventListener("input", (event) => {
  // A drag is one step back, however many states it went through.
  scale(picked.target, Number(event.target.value), !sliding);
  sliding = true;
});
$("factor").addEventListener("change", () => { sliding = false; });
$("percent").addEventListener("change", (event) => scale(picked.target, Number(event.target.value), true));
const nowPercent = () => percentOf(state.scale.get(picked.target) || "1");
$("half").addEventListener("click", () => scale(picked.target, nowPercent() / 2, true));
$("double").addEventListener("click", () => scale(picked.target, nowPercent() * 2, true));
$("break").addEventListener("click", () => commit((next) => { next.scale.delete(picked.target); next.without.push(picked.target); }));
$("restore").addEventListener("click", () => restore(picked.target));
$("make-root").addEventListener("click", () => request("root", picked.target));
$("all-alike").addEventListener("click", (event) => pick(event.target.dataset.kind));
$("reset").addEventListener("click", () => commit((next) => { next.scale.clear(); next.without = []; }));

/* Showing */
function current() {
  const own = results.get(query(state));
  if (own && own.network) shownResult = own;
  return shownResult;
}
let shownResult = null;
function render() {
  const own = results.get(query(state)), result = current(), other = state.against === null ? null : results.get(state.against);
  $("error").hidden = !(own && own.error);
  if (own && own.error) fail(own.error);
  $("pane-a").hidden = state.against === null;
  $("pane-b").querySelector("b").hidden = state.against === null;
  if (result) {
    drawParts(result);
    paneB.show(result, label(state, result));
  }
  // What is taller than the window scrolls until its end is there.
  $("stage").style.top = Math.min(13, innerHeight - $("stage").offsetHeight - 13) + "px";
  if (other && other.network) paneA.show(other, (other.error ? "There is no plan: " + other.error + ": " : "") + label(parse(state.against), other));
  renderFigures(own || {}, result || {}, state.against === null ? null : other || {});
  renderPicked(result);
  renderChanges();
  if (own && own.commands) {
    // Words are kept together, so that options do not break at their dashes.
    for (const [id, text] of [["command", own.commands.plan], ["again", own.commands.explore]]) {
      $(id).replaceChildren(...text.split(" ").flatMap((word) => [element("span", word), " "]));
    }
  }
  working();
  if (own && own.done) document.documentElement.dataset.shown = query(state);
}
const changesOf = (of) => [...[...of.scale].map(([target, factor]) => [target, SceneText.digits(percentOf(factor)) + " % of its bandwidth"]), ...of.without.map((target) => [target, "broken"])];
function label(of, result) {
  const changes = changesOf(of).map((change) => change.join(": ")), most = 3;
  const listed = changes.slice(0, most).join(", ") + (changes.length > most ? " and " + (changes.length - most) + " more changes" : "");
  const asked = [of.collective, of.size && "of " + of.size, of.planner && of.planner !== "auto" && "by " + of.planner].filter(Boolean).join(" ");
  const counts = result.network.name + ", " + (result.changed || result.network).counts;
  return [counts, ...(state.against === null ? [] : [asked]), ...(listed ? [listed] : [])].join("; ");
}
let listed = null;
function drawParts(result) {
  if (listed === result.network.name + result.network.counts) return;
  listed = result.network.name + result.network.counts;
  $("assumed").hidden = !result.network.assumed.length;
  $("assumed").querySelector("ul").replaceChildren(...result.network.assumed.map((text) => element("li", text)));
  const { nodes, links, kinds } = result.network.scene;
  const pairs = links.tail.map((tail, at) => [Math.min(tail, links.head[at]), Math.max(tail, links.head[at])].map((end) => nodes.name[end]).join("--"));
  $("parts").replaceChildren(...[...kinds, ...nodes.name, ...new Set(pairs)].map((name) => element("option", "", { value: name })));
  $("ranks").replaceChildren(...nodes.name.filter((_, at) => !nodes.switch[at]).map((name) => element("option", "", { value: name })));
  $("classes").replaceChildren("or all of ", ...result.network.classes.map((each) => {
    const button = element("button", each.name + ", " + SceneText.digits(each.bandwidth) + " GB/s", { type: "button" });
    button.addEventListener("click", () => pick(each.name));
    return button;
  }));
}
function renderFigures(own, result, other) {
  // Where there is an error, the numbers of another network or request would mislead.
  const { bound, plan } = own.bound || own.error ? own : result, waiting = !own.done && !own.plan;
  $("results").classList.toggle("old", waiting && !own.bound);
  const verdict = $("verdict");
  verdict.className = own.plan && !own.plan.interim && !own.stopped ? (own.plan.optimal ? "" : "below") : "waiting";
  verdict.textContent = own.stopped ? "Stopped. Change something, or press Show to plan again." : own.plan ? verdictOf(own.plan)
    : own.error ? "There is no plan; the message above says why." : "Planning…";
  $("reason").textContent = own.bound ? "Why no schedule is faster: " + own.bound.reason + "." : "";
  const baseline = other || results.get(query(state, false)), delta = baseline && baseline !== own;
  const columns = [...(other ? [other] : []), { bound, plan }], size = plan && plan.time;
  const rows = [
    ["Bound", (each) => each.bound && each.bound.text, (each) => each.bound && each.bound.algbw, 1],
    ...(plan && plan.scope ? [["For " + plan.scope, (each) => each.plan && each.plan.scoped, () => null, 0]] : []),
    ["Plan", (each) => each.plan && each.plan.text, (each) => each.plan && each.plan.algbw, 1],
    ["Gap", (each) => each.plan && (each.plan.gap === "0" ? "0 %" : each.plan.gap), () => null, 0],
    ...(size ? [["Time for " + state.size, (each) => each.plan && each.plan.time, (each) => each.plan && each.plan.microseconds, -1]] : []),
    ...(bound && bound.time ? [["At least", (each) => each.bound && each.bound.time, (each) => each.bound && each.bound.microseconds, -1]] : []),
    ["Planner", (each) => each.plan && each.plan.planner, () => null, 0],
  ];
  const head = element("tr", "");
  head.append(element("th", "algbw"), ...(other ? [element("th", "A"), element("th", "B")] : [element("th", "")]), ...(delta ? [element("th", other ? "B to A" : "to intact")] : []));
  for (const cell of head.children) cell.scope = "col";
  const body = rows.map(([name, text, value, sign]) => {
    const row = element("tr", "");
    row.append(element("th", name, { scope: "row" }), ...columns.map((each) => numberCell(text(each) || "–")));
    if (delta) row.append(deltaCell(value({ bound, plan }), value(baseline), sign));
    return row;
  });
  const thead = element("thead", ""), tbody = element("tbody", "");
  thead.append(head);
  tbody.append(...body);
  $("figures").className = other ? "two" : "";
  $("figures").replaceChildren(thead, tbody);
  $("rows").replaceChildren(...((plan && plan.rows) || []).flatMap(([name, text]) => [element("dt", name), element("dd", text)]));
  $("details").hidden = !plan;
  for (const id of ["play", ...facts.files]) if ($(id)) $(id).disabled = !own.plan && id !== "topology.json";
}
function verdictOf(plan) {
  if (plan.interim) return "Looking for the fastest plan for " + state.size + "; so far, the one for endless data.";
  if (plan.optimal) return "Optimal: no schedule is faster.";
  const scoped = plan.scope ? (plan.scopedGap === "0" ? "it reaches" : plan.scopedGap + " below") + " the bound of " + plan.scope : "";
  return plan.gap + " below the bound; " + (scoped || "the optimum is between them") + ".";
}
function numberCell(text) {
  const cell = element("td", ""), [, rounded, exact] = text.match(/^(.*?)( \(.*\))?$/);
  cell.append(rounded);
  if (exact) cell.append(element("small", exact));
  return cell;
}
function deltaCell(now, before, sign) {
  const cell = element("td", "", { className: "delta" });
  if (now && before && sign) {
    const change = (now - before) / before;
    cell.textContent = Math.abs(change) < 5e-5 ? "=" : (change > 0 ? "+" : "−") + SceneText.percent(Math.abs(Number(change.toPrecision(3))));
    if (Math.abs(change) >= 5e-5) cell.classList.add(change * sign > 0 ? "better" : "worse");
  }
  return cell;
}
function renderPicked(result) {
  const base = result && result.network.scene;
  if (picked && base && !targets(base, picked.target).size) picked = null;
  $("picked").hidden = !picked || !base;
  if (!picked || !base) return;
  const { target } = picked, node = base.nodes.name.indexOf(target), klass = base.kinds.indexOf(target), gone = state.without.includes(target);
  const shown = paneB.shown, own = shown.links.tail.map((_, at) => at).filter((at) => {
    const [tail, head] = [shown.nodes.name[shown.links.tail[at]], shown.nodes.name[shown.links.head[at]]];
    return node >= 0 ? tail === target || head === target : klass >= 0 ? shown.links.kind[at] === klass : [tail + "--" + head, head + "--" + tail].includes(target);
  });
  const sums = (list) => [...new Set(own.map((at) => SceneText.digits(list[at])))].join(" or ") + " GB/s";
  const use = shown.links.use.length ? Math.max(...own.map((at) => shown.links.use[at])) : null, counted = own.filter((at) => shown.links.share[at]).length;
  $("picked-title").textContent = node < 0 && klass < 0 ? target.replace("--", " ↔ ") : target;
  const what = klass >= 0 ? "All " + own.length + " links of this class" : node >= 0 ? (base.nodes.switch[node] ? SceneText.nodeKind(base.nodes, node).replace("switch", "Switch") : "Rank " + node) + " with " + own.length + " links" : "Link, both ways";
  $("picked-facts").textContent = what + ": " + (gone ? "gone" : sums(shown.links.bandwidth)) + (sums(shown.links.before) === sums(shown.links.bandwidth) ? "" : ", " + sums(shown.links.before) + " when intact")
    + (use === null || gone ? "" : "\nbusy up to " + SceneText.percent(use) + " of the time") + (counted ? ", counted in the bound" : "");
  const percent = gone ? 0 : nowPercent();
  $("factor-label").textContent = node >= 0 ? "Bandwidth of its links" : "Bandwidth";
  if (document.activeElement !== $("factor") || !sliding) $("factor").value = percent;
  $("factor").setAttribute("aria-valuetext", SceneText.digits(percent) + " percent");
  $("percent").value = Number(percent.toFixed(2));
  $("break").disabled = gone || klass >= 0;
  $("break").hidden = klass >= 0;
  $("restore").disabled = percent === 100;
  $("make-root").hidden = !(facts.collectives[state.collective] && node >= 0 && !base.nodes.switch[node]);
  const kinds = [...new Set(own.map((at) => base.kinds[shown.links.kind[at]]))];
  $("all-alike").hidden = klass >= 0 || kinds.length !== 1;
  $("all-alike").textContent = "All " + kinds[0] + " links";
  $("all-alike").dataset.kind = kinds[0];
}
function renderChanges() {
  const entries = changesOf(state);
  $("changes").hidden = !entries.length;
  $("change-list").replaceChildren(...entries.map(([target, what]) => {
    const item = element("li", ""), open = element("button", target + ": " + what, { type: "button", title: "Change it" });
    const away = element("button", "✕", { type: "button", title: "Restore " + target });
    away.setAttribute("aria-label", "Restore " + target);
    open.addEventListener("click", () => pick(target));
    away.addEventListener("click", () => restore(target));
    item.append(open, away);
    return item;
  }));
}

/* The schedule over time */
const SECONDS = 8; // that a run takes
let playing = null;
async function play() {
  const about = query(state), result = results.get(about);
  if (playing) { pause(); return; }
  if (!result || !result.plan) return;
  if (!result.play) {
    $("play").disabled = true;
    const response = await fetch("play?" + about).catch(() => null), answer = {};
    if (response) for await (const line of linesOf(response)) Object.assign(answer, line);
    $("play").disabled = false;
    if (!answer.play) { fail(answer.error || SILENT); return; }
    result.play = answer.play;
    if (about !== query(state)) return;
    render();
  }
  const run = paneB.shown.runs[0];
  $("time").disabled = !run.link;
  if (!run.link) { $("clock").textContent = run.note; return; }
  const began = performance.now() - (SECONDS * 1000 * (Number($("time").value) % 1000)) / 1000;
  playing = { about };
  $("play").textContent = "Pause";
  const mine = playing, frame = (now) => {
    if (playing !== mine) return;
    if (about !== query(state)) { pause(); return; }
    const share = Math.min((now - began) / (SECONDS * 1000), 1);
    $("time").value = Math.round(1000 * share);
    seek(share, now);
    if (share < 1) requestAnimationFrame(frame);
    else pause();
  };
  requestAnimationFrame(frame);
}
function pause() {
  playing = null;
  $("play").textContent = "▶ Play";
}
function seek(share, phase = 0) {
  const run = paneB.shown && paneB.shown.runs && paneB.shown.runs[0];
  if (!run || !run.link) return;
  paneB.view.at(share >= 1 ? null : share * run.done, run.done / SECONDS, phase / 30);
  $("clock").textContent = SceneText.time(share * run.done) + " of " + SceneText.time(run.done) + " for " + run.size;
}
$("play").addEventListener("click", play);
$("time").addEventListener("input", (event) => { pause(); seek(Number(event.target.value) / 1000); });

(async function start() {
  facts = await (await fetch("facts")).json();
  $("networks").replaceChildren(...Object.entries(facts.networks).map(([name, summary]) => element("option", summary, { value: name })));
  $("collective").replaceChildren(...Object.keys(facts.collectives).map((name) => element("option", name, { value: name })));
  $("files").replaceChildren(...facts.files.map((form) => {
    const button = element("button", "Save " + form, { type: "button", id: form });
    button.addEventListener("click", () => save(form));
    return button;
  }));
  $("skip").addEventListener("click", (event) => { event.preventDefault(); $("results").focus(); });
  step = -1;
  last = Number(sessionStorage.getItem("last")); // of this page before it was loaded again
  arrive();
})();
