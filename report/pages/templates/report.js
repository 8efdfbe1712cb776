"use strict";
(async function () {
  if (typeof DecompressionStream === "undefined") {
    document.getElementById("too-old").hidden = false;
    return;
  }
  // What the page shows is compressed, so that it stays small.
  const unpacked = (id) => new Response(new Blob([Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0))]).stream().pipeThrough(new DecompressionStream("gzip")));
  const data = await unpacked("report-data").json();
  const root = document.documentElement, byId = (id) => document.getElementById(id);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const state = { plan: 0, part: null, size: byId("size").selectedIndex, pinned: null };
  const sceneOf = () => data.plans[state.plan];
  const runOf = () => sceneOf().runs[state.size];

  const host = byId("network-view"), view = sceneView(host, sceneOf());
  const player = scenePlayer(byId("player"), view);
  let line = null;

  function note(name, ...texts) {
    document.querySelector('[data-note="' + name + '"]').textContent = texts.filter(Boolean).join(" ");
  }

  // The schedule: all of it, or one part.
  function showPart(part) {
    const { parts } = sceneOf(), last = parts.label.length - 1, slider = byId("frame");
    state.part = part === null || part < 0 ? null : Math.min(part, last);
    const words = state.part === null ? (last ? "all " + (last + 1) + " " + parts.word.toLowerCase() + "s at once" : parts.label[0]) : parts.word + " " + (state.part + 1) + " of " + (last + 1) + ": " + parts.label[state.part];
    slider.max = last + 1;
    slider.value = state.part === null ? 0 : state.part + 1;
    slider.setAttribute("aria-valuetext", words);
    byId("frame-label").textContent = words;
    byId("frame-back").disabled = state.part === null;
    byId("frame-next").disabled = state.part === last;
    view.part(state.part);
    drawTimeLine();
    drawSteps();
  }
  function drawSteps() {
    const { parts } = sceneOf(), top = parts.ranks.reduce((most, ranks) => ranks.reduce((a, b) => Math.max(a, b), most), 1);
    const shown = top <= 12 ? Array.from({ length: top }, (_, at) => at + 1) : [1, 0.25, 0.5, 0.75, 1].map((share, at) => (at ? Math.round(share * top) : 1));
    byId("steps").replaceChildren(parts.rankWord + " ", ...shown.map((step) => {
      const item = Object.assign(document.createElement("span"), { className: "step-entry", textContent: step });
      item.style.cssText = view.stepStyle(step);
      return item;
    }));
  }
  function drawTimeLine() {
    const run = runOf(), target = byId("timeline-view"), { parts } = sceneOf();
    target.hidden = !run.link;
    line = null;
    if (run.link) {
      line = timeLine(target, sceneOf(), run, run.part.includes(state.part) ? state.part : null, view);
      line.at(state.time ?? null);
    }
    const whole = run.link && state.part !== null && !run.part.includes(state.part) ? "The plan is too large to follow single parts over time." : "";
    note("timeline", run.done ? "The last byte arrives after " + SceneText.time(run.done) + ", at the dashed line." : "", whole, line && line.note, run.note, parts.explained, parts.leftOut);
  }
  function showRun() {
    state.time = null;
    player.setRun(runOf(), state.size);
    drawTimeLine();
  }
  byId("player").addEventListener("scene-time", (event) => {
    state.time = event.detail.time;
    if (line) line.at(state.time);
  });
  byId("timeline-view").addEventListener("scene-seek", (event) => player.seek(event.detail.time));
  byId("frame").addEventListener("input", (event) => showPart(Number(event.target.value) - 1));
  byId("frame-back").addEventListener("click", () => showPart(state.part - 1));
  byId("frame-next").addEventListener("click", () => showPart(state.part === null ? 0 : state.part + 1));
  byId("size").addEventListener("change", (event) => { state.size = event.target.selectedIndex; showRun(); });

  // Colors of links: their use, or how much more they carry than by another plan.
  const metrics = byId("metric");
  function fillMetrics() {
    const own = sceneOf().links.load, others = data.others.filter((other) => other.number !== state.plan && other.load.length === own.length);
    metrics.replaceChildren(new Option("utilization", ""), ...others.map((other) => new Option("load, against " + SceneText.short(other.name, 30), other.name)));
    byId("metric-choice").hidden = !others.length;
    showMetric();
  }
  function showMetric() {
    const other = data.others.find((each) => each.name === metrics.value && metrics.value);
    if (!other) {
      view.metric();
      return;
    }
    const differences = sceneOf().links.load.map((load, at) => load - other.load[at]);
    const most = differences.reduce((top, value) => Math.max(top, Math.abs(value)), 0) || 1;
    view.metric(differences.map((value) => value / most), "−" + SceneText.percent(most), "+" + SceneText.percent(most) + " of all data", "carries less or more than " + SceneText.short(other.name, 24) + ":");
  }
  metrics.addEventListener("change", showMetric);

  // What is hovered in one place is marked in all; a click keeps it in the box below the network.
  const rowsOf = new Map();
  function findRows() {
    rowsOf.clear();
    const { links, nodes } = sceneOf(), numbers = new Map(links.tail.map((tail, at) => [tail * nodes.name.length + links.head[at], at]));
    for (const row of all(".of-plan:not([hidden]) [data-ends]")) {
      const [tail, head] = row.dataset.ends.split(" ").map(Number), link = numbers.get(tail * nodes.name.length + head);
      row.link = link;
      if (row.tagName === "TR") rowsOf.set(link, row);
    }
  }
  let hot = null;
  function markRow(link) {
    if (hot) hot.classList.remove("hot");
    hot = rowsOf.get(link) || null;
    if (hot) hot.classList.add("hot");
    if (line) line.mark(link);
  }
  function inspect(kind, index) {
    const box = byId("inspector"), { links, parts } = sceneOf();
    const [name, ...lines] = view.describe(kind, index);
    const text = Object.assign(document.createElement("p"), {});
    text.append(Object.assign(document.createElement("strong"), { textContent: name }), lines.length ? ": " + lines.join("; ") + "." : "");
    const chips = document.createElement("p");
    if (kind === "link") {
      const users = parts.label.map((_, at) => at).filter((at) => parts.links[at].includes(index)), MOST = 24;
      chips.append(...users.slice(0, MOST).map((part) => {
        const chip = Object.assign(document.createElement("button"), { type: "button", className: "chip", textContent: parts.word + " " + (part + 1), title: parts.label[part] });
        chip.addEventListener("click", () => showPart(part));
        chip.addEventListener("pointerenter", () => view.mark(parts.links[part], []));
        chip.addEventListener("pointerleave", () => view.mark());
        return chip;
      }), users.length > MOST ? " and " + (users.length - MOST) + " more" : "");
      const row = rowsOf.get(index);
      if (row) {
        const jump = Object.assign(document.createElement("button"), { type: "button", className: "chip", textContent: "its row in the table" });
        jump.addEventListener("click", () => { row.hidden = false; row.scrollIntoView({ block: "center" }); markRow(index); });
        chips.prepend(jump);
      }
    }
    box.replaceChildren(text, chips);
    state.pinned = { kind, index };
  }
  host.addEventListener("scene-hover", ({ detail }) => {
    markRow(detail && detail.kind === "link" ? detail.index : null);
    // The table scrolls to the row; the page stays where it is.
    const box = hot && hot.closest(".scroll");
    if (box) box.scrollTop = hot.offsetTop - box.clientHeight / 2;
  });
  host.addEventListener("scene-pick", ({ detail }) => { if (detail) inspect(detail.kind, detail.index); });
  function markLink(link) {
    const { links } = sceneOf();
    if (link === undefined || link === null) view.mark();
    else view.mark([link], [links.tail[link], links.head[link]]);
    markRow(link);
  }
  byId("timeline-view").addEventListener("scene-row", ({ detail }) => {
    const { links } = sceneOf();
    markLink(detail && detail[0]);
    if (detail) view.mark(detail, detail.flatMap((link) => [links.tail[link], links.head[link]]));
  });
  byId("timeline-view").addEventListener("click", (event) => { const row = event.target.closest("[data-link]"); if (row) inspect("link", Number(row.dataset.link)); });
  for (const row of all("[data-ends]")) {
    row.addEventListener("pointerenter", () => markLink(row.link));
    row.addEventListener("pointerleave", () => markLink(null));
    row.addEventListener("click", () => { if (row.link !== undefined) inspect("link", row.link); });
  }

  for (const row of all("[data-kind]")) {
    row.addEventListener("pointerenter", () => {
      const { links, kinds } = sceneOf(), kind = kinds.indexOf(row.dataset.kind);
      view.mark(links.kind.map((_, at) => at).filter((at) => links.kind[at] === kind), []);
    });
    row.addEventListener("pointerleave", () => view.mark());
  }

  function drawSizes() {
    const { sizes, plans, leftOut } = data.curves, chosen = plans[state.plan];
    note("sizes", leftOut);
    for (const [id, key, bound, log, text] of [["chart-time", "time", (size) => size / chosen.bound / 1e3, true, SceneText.time], ["chart-algbw", "algbw", () => chosen.bound, false, (value) => SceneText.digits(value) + " GB/s"]]) {
      const lines = plans.map((plan, number) => ({ name: plan.name, y: plan[key], number }));
      lineChart(byId(id), { x: sizes, lines: [...lines, { name: "bound", y: sizes.map(bound), dashed: true }], log, text, unit: log ? "" : "GB/s", chosen: state.plan });
    }
  }

  function showPlan() {
    for (const block of all(".of-plan")) block.hidden = Number(block.dataset.plan) !== state.plan;
    view.setScene(sceneOf());
    note("network", sceneOf().leftOut);
    byId("inspector").replaceChildren(Object.assign(document.createElement("p"), { className: "muted", textContent: "Point at a link or a node to see its values; click it to keep them here." }));
    byId("frame-word").textContent = sceneOf().parts.word;
    findRows();
    filterRows();
    fillMetrics();
    player.setRun(runOf(), state.size);
    showPart(null);
    drawSizes();
    resetProof();
  }
  const choice = byId("plan-choice");
  if (choice) choice.addEventListener("change", () => { state.plan = choice.selectedIndex; showPlan(); });

  // The proof: the checker reads the plan's file in this page, or one that is chosen; steps appear as they are made.
  const proof = { run: 0, view: null }, calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  const pause = (time) => new Promise((go) => setTimeout(go, calm.matches ? 0 : time));
  const make = (tag, textContent, more = {}) => Object.assign(document.createElement(tag), { textContent, ...more });
  function drawProof({ links = [], nodes = [] }) {
    const picture = byId("proof-view"), drawn = sceneOf().links, count = sceneOf().nodes.name.length;
    const numbers = new Map(drawn.tail.map((tail, at) => [tail * count + drawn.head[at], at]));
    picture.hidden = false;
    proof.view = proof.view || sceneView(picture, sceneOf(), { label: "What a step of the proof counts, on the network " + sceneOf().title });
    // Of a cut, the smaller side.
    const inside = new Set(nodes), marked = 2 * nodes.length > count ? sceneOf().nodes.name.map((_, at) => at).filter((at) => !inside.has(at)) : nodes;
    proof.view.mark(links.map(([tail, head]) => numbers.get(tail * count + head)).filter((at) => at !== undefined), nodes.length ? marked : links.flat());
  }
  async function showSums(item, sums) {
    const MOST = 24, weighted = sums.some((row) => row.weight !== "1"), columns = [["links", "links"], ["bandwidth", "GB/s each"], ...(weighted ? [["weight", "weight"]] : []), ["total", "together"], ["sum", "sum so far"]];
    const table = item.appendChild(make("div", "", { className: "scroll" })).appendChild(document.createElement("table"));
    table.createTHead().insertRow().append(...columns.map(([, word]) => make("th", word, { className: "number", scope: "col" })));
    for (const row of sums.slice(0, MOST)) {
      await pause(1500 / sums.length);
      (table.tBodies[0] || table.createTBody()).insertRow().append(...columns.map(([name]) => make("td", row[name], { className: "number" })));
    }
    if (sums.length > MOST) item.append(make("p", sums.length - MOST + " more kinds of links are not listed; all sum to " + sums[sums.length - 1].sum + ".", { className: "muted" }));
  }
  async function checkProof(bytes) {
    const run = (proof.run += 1), steps = byId("proof-steps"), verdict = byId("proof-verdict");
    let here = false;
    steps.replaceChildren();
    byId("proof-view").hidden = true;
    Object.assign(verdict, { textContent: "Checking…", className: "" });
    const result = await PlanCheck.check(bytes, async (step) => {
      if (run !== proof.run) throw new Error("another check has begun");
      const item = steps.appendChild(make("li", "", { className: step.ok ? "tick" : "failed" }));
      item.append(make("strong", step.name), ": " + step.text + ". ");
      here = here || step.network === data.network;
      if (step.links && here) {
        item.append(make("button", "Show", { type: "button", className: "chip", ariaLabel: "Show what the step " + step.name + " counts", onclick: () => drawProof(step) }));
        if (step.sums) drawProof(step);
      }
      if (step.sums) await showSums(item, step.sums);
      await pause(80);
    });
    if (run !== proof.run) return;
    verdict.className = result.ok ? "proved" : "refuted";
    verdict.textContent = (result.ok ? "✓ Proved: every step holds." : "✗ Not proved: in the step " + result.failed + ", " + result.reason + ".") + " This file has " + bytes.length.toLocaleString("en") + " bytes and the SHA-256 " + result.digest + ".";
  }
  function resetProof() {
    const file = byId("plan-" + state.plan), size = data.files[state.plan].toLocaleString("en");
    proof.run += 1;
    if (proof.view) proof.view.setScene(sceneOf());
    byId("proof-view").hidden = true;
    byId("proof-steps").replaceChildren();
    Object.assign(byId("proof-verdict"), { className: "muted", textContent: file ? "" : "The plan's file of " + size + " bytes is left out, as this page would exceed 1 MB with it; choose the file itself." });
    byId("check-proof").disabled = !file;
  }
  byId("check-proof").addEventListener("click", async () => checkProof(new Uint8Array(await unpacked("plan-" + state.plan).arrayBuffer())));
  byId("plan-file").addEventListener("change", async ({ target }) => { if (target.files.length) await checkProof(new Uint8Array(await target.files[0].arrayBuffer())); });

  // Colors: the system's, or what was chosen.
  const THEMES = ["system", "light", "dark"];
  byId("theme").addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(root.dataset.theme || "system") + 1) % THEMES.length];
    if (next === "system") delete root.dataset.theme;
    else root.dataset.theme = next;
    byId("theme").textContent = "Colors: " + next;
    byId("theme").setAttribute("aria-label", "Colors: " + (next === "system" ? "system default" : next) + ". Change.");
  });

  // Tables of links.
  function filterRows() {
    const wanted = byId("filter").value.toLowerCase(), onlyCut = byId("only-cut").checked;
    for (const block of all("#links .of-plan:not([hidden])")) {
      const rows = [...block.querySelectorAll("tbody tr")];
      for (const row of rows) {
        const names = (row.cells[0].textContent + "\n" + row.cells[1].textContent).toLowerCase();
        row.hidden = !names.includes(wanted) || (onlyCut && !row.classList.contains("in-cut"));
      }
      const shown = rows.filter((row) => !row.hidden).length;
      block.querySelector(".shown-rows").textContent = shown === rows.length ? shown + " links." : shown + " of " + rows.length + " links.";
    }
  }
  byId("filter").addEventListener("input", filterRows);
  byId("only-cut").addEventListener("change", filterRows);
  const text = new Intl.Collator("en", { numeric: true });
  for (const table of all("table.links")) {
    table.querySelectorAll("thead th").forEach((heading, column) => {
      heading.firstElementChild.addEventListener("click", () => {
        const numbers = heading.classList.contains("number"), was = heading.getAttribute("aria-sort");
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

  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    drawTimeLine();
    drawSizes();
  });
  showPlan();
  root.dataset.drawn = "1";
})();
