"use strict";
/* Checks plan files of versions 9 and 10 by what docs/reference/plan-json.md says, in exact fractions and without any library.

PlanCheck.check(bytes, tell) reads a Uint8Array and resolves to { ok, digest, failed, reason }.  It calls `await tell(step)` for each
step, a failed one last: { name, text, ok }; perhaps `sums`, rows { links, bandwidth, weight, total, sum } with the sum so far, `links`
as pairs of node numbers and `nodes` to show, and the digest of the `network`.  It also runs under Node.js 20: require("./proof.js"). */
const PlanCheck = (() => {
  class Wrong extends Error {}
  const wrong = (text) => { throw new Wrong(text); };
  const gcd = (a, b) => { while (b) [a, b] = [b, a % b]; return a < 0n ? -a : a; };
  const lcm = (list) => list.reduce((a, b) => (a / gcd(a, b)) * b, 1n), sum = (list) => list.reduce((a, b) => a + b, 0n);
  // Fractions in lowest terms, n / d with d > 0.
  const frac = (n, d = 1n) => { const g = gcd(n, d) || 1n; return { n: n / g, d: d / g }; };
  const add = (a, b) => frac(a.n * b.d + b.n * a.d, a.d * b.d);
  const times = (a, b) => frac(a.n * b.n, a.d * b.d), over = (a, b) => frac(a.n * b.d, a.d * b.n);
  const same = (a, b) => a.n === b.n && a.d === b.d, above = (a, b) => a.n * b.d > b.n * a.d;
  const show = ({ n, d }) => (d === 1n ? String(n) : n + "/" + d);
  const near = (value) => show(value) + (value.d === 1n ? "" : " (" + Number((Number((value.n * 10n ** 9n) / value.d) / 1e9).toPrecision(5)) + ")");
  // JSON with unique keys and exact numbers: those that a float may not hold are { "": text }.
  function parse(text) {
    let keys = 0;
    const count = (value) => (value && typeof value === "object" ? Object.values(value).reduce((sum, entry) => sum + count(entry), Array.isArray(value) ? 0 : Object.keys(value).length) : 0);
    const exact = text.replace(/"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/g, (token, colon) => {
      const odd = token[0] !== '"' && !(/^-?\d{1,15}$/.test(token));
      keys += colon || odd ? 1 : 0;
      return odd ? '{"":"' + token + '"}' : token;
    });
    const value = JSON.parse(exact);
    return count(value) === keys ? value : wrong("a key occurs twice in one object");
  }
  async function sha256(bytes) {
    if (!globalThis.crypto || !crypto.subtle) wrong("no digest can be computed at this insecure address; save the page, and open the file");
    return [...new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }
  // Readers of fields.
  function fields(value, required, optional, what) {
    if (value === null || typeof value !== "object" || Array.isArray(value)) wrong(what + " is no object");
    for (const name of required) if (!Object.hasOwn(value, name)) wrong(what + " has no field " + name);
    const unknown = Object.keys(value).find((name) => !required.includes(name) && !optional.includes(name));
    return unknown === undefined ? value : wrong(what + " has the unknown field " + unknown);
  }
  function whole(value, what, low = 0) {
    const number = typeof value === "number" ? BigInt(value) : value && /^-?\d{1,100}$/.test(value[""]) ? BigInt(value[""]) : null;
    return number !== null && number >= low && number < 2n ** 63n ? number : wrong(what + " is not a whole number of 64 bits from " + low);
  }
  const list = (value, what, count = null) => (Array.isArray(value) && (count === null || value.length === count) ? value : wrong(what + " is no list" + (count === null ? "" : " of " + count + " entries")));
  const wholes = (value, what, count = null, low = 0) => list(value, what, count).map((entry) => whole(entry, what, low));
  const places = (value, what, high, count = null, low = 0) => (list(value, what, count).every((entry) => typeof entry === "number" && entry >= low && entry < high) ? value : wrong(what + " has an entry that is not from " + low + " to " + (high - 1)));
  function fraction(value, what, zero = false) {
    const hit = typeof value === "string" && /^([1-9]\d{0,99})(?:\/([1-9]\d{0,99}))?$/.exec(value);
    return hit ? frac(BigInt(hit[1]), BigInt(hit[2] || 1)) : zero && value === "0" ? frac(0n) : wrong(what + " is no positive fraction as text");
  }
  function quantity(value, what) {
    const hit = /^(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d{1,3}))?(?:\/0*([1-9]\d*))?$/.exec(value && typeof value === "object" ? value[""] : value) || wrong(what + " is no number");
    const decimals = (hit[2] || "").length - Number(hit[3] || 0), number = BigInt(hit[1] + (hit[2] || "")), below = BigInt(hit[4] || 1);
    return decimals > 0 ? frac(number, below * 10n ** BigInt(decimals)) : frac(number * 10n ** BigInt(-decimals), below);
  }
  const SIZES = { uint8: [1, "getUint8"], int8: [1, "getInt8"], uint16: [2, "getUint16"], int16: [2, "getInt16"], uint32: [4, "getUint32"], int32: [4, "getInt32"], int64: [8, "getBigInt64"] };
  async function decoded(value, count, what) {
    const { type, lag, zlib } = fields(value, ["type", "lag", "zlib"], [], what), size = Object.hasOwn(SIZES, type) ? SIZES[type] : wrong(what + " has an unknown type");
    if (!Number.isInteger(lag) || lag < 0 || lag > 512) wrong(what + " has a lag that is not from 0 to 512");
    let data = new Uint8Array(count * size[0]), filled = 0;
    try {
      const packed = Uint8Array.from(atob(zlib), (letter) => letter.charCodeAt(0)), reader = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate")).getReader();
      for (let part = await reader.read(); !part.done; part = await reader.read()) { data.set(part.value, filled); filled += part.value.length; }
    } catch { filled = -1; }
    if (filled !== data.length) wrong(what + " does not hold " + count + " numbers");
    const view = new DataView(data.buffer), numbers = Array.from({ length: count }, (_, at) => Number(view[size[1]](at * size[0], true)));
    if (lag) for (let at = lag; at < count; at += 1) numbers[at] += numbers[at - lag];
    return numbers.every(Number.isSafeInteger) ? numbers : wrong(what + " has a number beyond 2^53");
  }
  // The network: nodes by number, ranks first; links with whole capacities in units of 1 / scale GB/s.
  const codes = (name) => Array.from(name, (letter) => letter.codePointAt(0).toString(16).padStart(6, "0")).join("");
  const byCode = (a, b) => (codes(a) < codes(b) ? -1 : 1);
  const nameOf = (value) => (typeof value === "number" ? String(value) : typeof value === "string" && value && value.trim() === value ? value : wrong("the topology has a node without a name"));
  async function readNetwork(data, stated) {
    const file = fields(data, ["format", "version", "name", "compute", "switches", "links"], ["costs", "devices"], "the topology");
    if (file.format !== "collopt-topology" || (file.version !== 1 && file.version !== 2)) wrong("the topology is not of version 1 or 2");
    const compute = list(file.compute, "topology.compute").map(nameOf), switches = list(file.switches, "topology.switches").map((entry) => (file.version === 2 && typeof entry !== "object" ? { name: nameOf(entry) }
      : { ...fields(entry, ["name"], ["multicast", "aggregation", "loopback", "group", "operators", "types", "relay"], "a switch"), name: nameOf(entry.name) }));
    const names = switches.map((entry) => entry.name), nodes = [...compute, ...names], index = new Map(nodes.map((name, at) => [name, at]));
    if (index.size < nodes.length || compute.length < 2) wrong("the topology has a node twice, or fewer than two ranks");
    const size = nodes.length, ranks = compute.length, tails = [], heads = [], bandwidth = [], latency = [], placeOf = new Map();
    function link(tail, head, rate, delay, what) {
      const key = tail * size + head, known = placeOf.get(key);
      if (tail === undefined || head === undefined || tail === head || rate.n <= 0n) wrong(what + " has no two ends, or no bandwidth");
      if (known === undefined) { placeOf.set(key, tails.length); tails.push(tail); heads.push(head); bandwidth.push(rate); latency.push(delay); return; }
      if (file.version === 2) wrong(what + " has the ends of another");
      [bandwidth[known], latency[known]] = [add(bandwidth[known], rate), above(delay, latency[known]) ? delay : latency[known]];
    }
    for (const row of file.version === 1 ? list(file.links, "topology.links") : []) {
      const [tail, head, rate, delay] = list(row, "a link", 4), what = "the link from " + tail + " to " + head;
      link(index.get(nameOf(tail)), index.get(nameOf(head)), quantity(rate, what), quantity(delay, what), what);
    }
    if (file.version === 2) {
      const { count, tails: from, heads: to, kinds, rates } = fields(file.links, ["count", "tails", "heads", "kinds", "rates"], [], "topology.links");
      if (!Number.isInteger(count) || count < 0 || count > 8388608) wrong("topology.links.count is no number of links");
      const pairs = list(rates, "topology.links.rates").map((row) => list(row, "a rate", 2).map((entry) => quantity(entry, "a rate")));
      const [tail, head, kind] = await Promise.all([[from, size], [to, size], [kinds, pairs.length]].map(async ([column, high]) => places(await decoded(column, count, "topology.links"), "topology.links", high)));
      for (let at = 0; at < count; at += 1) link(tail[at], head[at], ...pairs[kind[at]], "link " + at);
    }
    const able = (ability) => new Set(switches.flatMap(({ [ability]: is = false }, at) => (typeof is !== "boolean" ? wrong("the ability " + ability + " of a switch is neither true nor false") : is ? [ranks + at] : [])));
    const [multicast, aggregation, loopback, relay] = ["multicast", "aggregation", "loopback", "relay"].map(able);
    const group = new Map(switches.flatMap((entry, at) => (entry.group === undefined || entry.group === null ? [] : [[ranks + at, Number(whole(entry.group, "a switch's group", 2))]])));
    const near = nodes.map(() => new Set()); tails.forEach((tail, at) => { near[tail].add(heads[at]); near[heads[at]].add(tail); });
    for (const node of [...multicast, ...aggregation]) if (near[node].size < 2) wrong("switch " + nodes[node] + " copies or adds, but has fewer than two neighbors");
    // The digest is that of JSON text: nodes, links by names, and abilities.
    const ascii = (value) => JSON.stringify(value).replace(/[\u007f-\uffff]/g, (letter) => (letter === "\u007f" ? letter : "\\u" + letter.charCodeAt(0).toString(16).padStart(4, "0")));
    const named = (set) => [...set].map((node) => nodes[node]).sort(byCode), words = (value) => [...new Set(list(value || [], "a switch's list"))].sort(byCode);
    const limits = switches.map((entry) => [entry.name, Boolean(entry.loopback), entry.group === undefined ? null : entry.group, words(entry.operators), words(entry.types), Boolean(entry.relay)])
      .filter((row) => row[1] || row[2] !== null || row[3].length || row[4].length || row[5]).sort((a, b) => byCode(a[0], b[0]));
    const order = new Map([...nodes].sort(byCode).map((name, at) => [index.get(name), at]));
    const rows = tails.map((_, at) => at).sort((a, b) => order.get(tails[a]) - order.get(tails[b]) || order.get(heads[a]) - order.get(heads[b]))
      .map((at) => [nodes[tails[at]], nodes[heads[at]], show(bandwidth[at]), show(latency[at])]);
    const digest = await sha256(new TextEncoder().encode(ascii([compute, names, rows, named(multicast), named(aggregation), ...(limits.length ? [limits] : [])])));
    if (digest !== stated) wrong("the digest of the topology is " + digest.slice(0, 12) + "…; the plan states " + String(stated).slice(0, 12) + "…");
    const scale = lcm([...new Set(bandwidth.map((rate) => rate.d))]), capacity = bandwidth.map((rate) => (rate.n * scale) / rate.d), place = (tail, head) => placeOf.get(tail * size + head);
    return { nodes, ranks, index, tails, heads, multicast, aggregation, loopback, relay, group, scale, bandwidth, latency: latency.map(show), capacity, place };
  }
  // Collectives: the phases of their trees, and whether one rank is the root.
  const COLLECTIVES = { allgather: { phases: ["broadcast"] }, reduce_scatter: { phases: ["reduce"] }, allreduce: { phases: ["reduce", "broadcast"] },
    broadcast: { phases: ["broadcast"], root: true }, reduce: { phases: ["reduce"], root: true }, all_to_all: { phases: [] }, all_to_allv: { phases: [] }, demands: { phases: ["items"] } };
  const WITNESSES = ["cut", "rank_cuts", "partition", "loopback_partition", "tree_partition", "prices", "lengths", "tree_dual", "item_cuts"];
  function components(size, pairs) {
    const label = Array.from({ length: size }, (_, at) => at), find = (at) => { while (label[at] !== at) at = label[at] = label[label[at]]; return at; };
    pairs.forEach(([one, other]) => { label[find(one)] = find(other); });
    return label.map((_, at) => find(at));
  }
  // Links grouped by weight and bandwidth, the widest first, and the sum so far.
  function addUp(net, weights) {
    let groups = new Map(), total = frac(0n);
    for (const [place, weight] of weights) {
      const bandwidth = net.bandwidth[place], key = show(weight) + " " + show(bandwidth);
      groups.set(key, { links: (groups.get(key)?.links || 0) + 1, weight, bandwidth });
    }
    const rows = [...groups.values()].sort((a, b) => (same(a.weight, b.weight) ? above(b.bandwidth, a.bandwidth) : above(b.weight, a.weight)) ? 1 : -1).map((row) => {
      const part = times(times(frac(BigInt(row.links)), row.weight), row.bandwidth);
      total = add(total, part);
      return { links: row.links, weight: show(row.weight), bandwidth: show(row.bandwidth), total: show(part), sum: show(total) };
    });
    return { bandwidth: total, sums: rows, links: [...weights.keys()] };
  }
  const ofLinks = (net, counts) => addUp(net, new Map(net.tails.map((tail, at) => [at, frac(BigInt(counts(tail, net.heads[at])))]).filter(([, weight]) => weight.n)));
  const nodeSet = (net, value) => new Set(list(value, "a set of nodes").map((name) => net.index.get(name) ?? wrong("the witness names " + name + ", which is no node")));
  const ranksIn = (net, set) => [...set].filter((node) => node < net.ranks);
  function cutOf(net, value) {
    const inside = nodeSet(net, value), within = ranksIn(net, inside).length;
    return within > 0 && within < net.ranks ? inside : wrong("the cut has " + within + " of " + net.ranks + " ranks inside; it needs some on both sides");
  }
  const crossing = (net, inside, entering) => ofLinks(net, (tail, head) => inside.has(entering ? head : tail) && !inside.has(entering ? tail : head));
  // Every node in one part; `of` numbers the parts with ranks, others are -1.
  function partition(net, value) {
    let of = net.nodes.map(() => null), count = 0;
    for (const nodes of list(value, "the partition").map((part) => nodeSet(net, part))) {
      const number = ranksIn(net, nodes).length ? count++ : -1;
      for (const node of nodes) of[node] = of[node] === null ? number : wrong(net.nodes[node] + " is in two parts");
    }
    const missing = of.indexOf(null);
    return missing < 0 && count > 1 ? { of, count } : wrong(missing >= 0 ? net.nodes[missing] + " is in no part" : "one part holds all ranks");
  }
  // Connected components of the nodes outside of parts with ranks, and what each of them can save in a tree.
  const pairsOf = (net) => net.tails.map((tail, at) => [tail, net.heads[at]]);
  const idle = (net, of) => components(net.nodes.length, pairsOf(net).filter(([tail, head]) => of[tail] < 0 && of[head] < 0));
  function saved(net, of, label, branching) {
    const near = new Map(), holders = new Set([...branching].map((node) => of[node]).filter((part) => part >= 0));
    net.tails.forEach((tail, at) => {
      for (const [here, there] of [[tail, net.heads[at]], [net.heads[at], tail]]) if (of[here] < 0 && of[there] >= 0) near.set(label[here], (near.get(label[here]) || new Set()).add(of[there]));
    });
    const idleOnes = [...branching].filter((node) => of[node] < 0);
    return [...new Set(idleOnes.map((node) => label[node]))].reduce((count, component) => {
      const parts = near.get(component) || new Set(), loops = idleOnes.every((node) => label[node] !== component || net.loopback.has(node));
      return count + Math.max(0, parts.size - 2 - (loops && ![...parts].some((part) => holders.has(part)) ? 1 : 0));
    }, 0);
  }
  function treePartition(net, value, collective, loops) {
    const { of, count } = partition(net, value), label = idle(net, of);
    if (loops) {
      const able = [...new Set([...net.multicast, ...net.aggregation])].filter((node) => of[node] < 0), components = new Set(able.map((node) => label[node]));
      if (able.some((node) => !net.loopback.has(node))) wrong("a switch outside of parts with ranks does not loop back");
      const foreign = (node) => (of[node] >= 0 && node >= net.ranks) || net.relay.has(node);
      if (components.size < able.length || net.tails.some((tail, at) => [[tail, net.heads[at]], [net.heads[at], tail]].some(([here, there]) => of[here] < 0 && components.has(label[here]) && foreign(there)))) wrong("a switch that copies or adds is next to a switch or relay");
    }
    const less = saved(net, of, label, net.multicast) + saved(net, of, label, net.aggregation);
    const added = ofLinks(net, (tail, head) => (of[tail] === of[head] ? 0 : (of[tail] >= 0 ? 1 : 0) + (of[head] >= 0 ? 1 : 0)));
    return { ...added, amount: frac(BigInt((4 * (count - 1) - less) * net.ranks)), why: "The data leaves and enters the " + count + " parts with ranks 4 (p - 1) times, less " + less + " that switches outside save" };
  }
  // Dual values of links or hops: rows [tail, head, value], each pair once.
  function duals(net, rows, exists, what) {
    const values = new Map();
    for (const row of list(rows, what)) {
      const [tail, head, value] = list(row, "a row of " + what, 3), key = net.index.get(tail) * net.nodes.length + net.index.get(head);
      if (!exists(net.index.get(tail), net.index.get(head)) || values.has(key)) wrong(what + " has a value for " + tail + " → " + head + ", which is not there, or two");
      values.set(key, fraction(value, "a value of " + what, true));
    }
    return values;
  }
  const linkDuals = (net, rows, what) => duals(net, rows, (tail, head) => net.place(tail, head) !== undefined, what);
  const worth = (net, values) => addUp(net, new Map([...values].filter(([, value]) => value.n).map(([key, value]) => [net.place(Math.floor(key / net.nodes.length), key % net.nodes.length), value])));
  // Whole lengths in units of 1 / unit, and shortest paths by label correction; none goes on past `stops`.
  const scaled = (values) => { const unit = lcm([...values.values()].map((value) => value.d)); return { unit, length: (key) => { const value = values.get(key); return value ? (value.n * unit) / value.d : 0n; } }; };
  function distances(out, start, length, stops) {
    const far = new Map([[start, 0n]]), queue = [start];
    for (let at = 0; at < queue.length; at += 1) {
      const node = queue[at], so = far.get(node), ends = stops && node !== start && stops.has(node);
      for (const head of ends ? [] : out[node]) {
        const next = so + length(node, head); if (!far.has(head) || next < far.get(head)) queue.push(far.set(head, next) && head);
      }
    }
    return far;
  }
  const outOf = (net, pairs) => { const out = net.nodes.map(() => []); for (const [tail, head] of pairs) out[tail].push(head); return out; };
  // The least sum of dual values over the ways of every hop between ends.
  function hopLimits(net, links, ends) {
    const { unit, length } = scaled(links), out = outOf(net, pairsOf(net)), size = net.nodes.length;
    return new Map([...ends].flatMap((start) => [...distances(out, start, (tail, head) => length(tail * size + head), ends)].filter(([end]) => end !== start && ends.has(end)).map(([end, far]) => [start * size + end, frac(far, unit)])));
  }
  function itemCuts(net, groups, value) {
    const file = fields(value, ["links", "cuts"], [], "item_cuts"), links = linkDuals(net, file.links, "item_cuts.links"), size = net.nodes.length, ends = new Set([...Array(net.ranks).keys(), ...net.multicast]), limits = hopLimits(net, links, ends);
    const amounts = list(file.cuts, "item_cuts.cuts", groups.length).map((rows, at) => {
      const cuts = list(rows, "the cuts of a group").map((row) => ({ weight: fraction(list(row, "a cut", 2)[0], "the weight of a cut"), inside: nodeSet(net, row[1]) }));
      const fits = ({ inside }) => [...inside].every((node) => ends.has(node) && !groups[at].sources.includes(node)) && groups[at].destinations.some((rank) => inside.has(rank));
      if (!cuts.every(fits)) wrong("a cut of group " + at + " has a source or a plain switch inside, or no destination");
      const weigh = (some) => some.reduce((total, { weight }) => add(total, weight), frac(0n));
      for (const [key, limit] of limits) if (above(weigh(cuts.filter(({ inside }) => inside.has(key % size) && !inside.has(Math.floor(key / size)))), limit)) wrong("the cuts of group " + at + " that a hop enters weigh more than its links");
      return times(frac(groups[at].weight), weigh(cuts));
    });
    return { ...worth(net, links), amount: amounts.reduce(add), why: "Cuts around ranks that need items, weighted" };
  }
  // What shards use at dual values: by root, or null where it does not reach all.
  function priceUses(net, prices) {
    const size = net.nodes.length, relays = nodeSet(net, prices.relays), ends = new Set([...relays, ...net.nodes.keys()].filter((node) => node < net.ranks || relays.has(node)));
    if (ranksIn(net, relays).length || [...net.multicast, ...net.aggregation].some((node) => !relays.has(node))) wrong("the relays are not switches, or leave out one that copies or adds");
    const links = linkDuals(net, prices.links, "prices.links"), limits = hopLimits(net, links, ends);
    const hops = [...limits.keys()].map((key) => [Math.floor(key / size), key % size]);
    const uses = (rows, backward) => {
      const direct = outOf(net, hops.map(([tail, head]) => (backward ? [head, tail] : [tail, head])));
      const sums = Array(net.ranks).fill(null).map(() => frac(0n)), spent = new Map();
      list(rows, "dual values of ranks", net.ranks).forEach((row, rank) => {
        const values = duals(net, row, (tail, head) => limits.has(tail * size + head), "the hops of a rank"), own = scaled(values);
        for (const [key, value] of values) spent.set(key, add(spent.get(key) || frac(0n), value));
        const far = distances(direct, rank, (tail, head) => own.length(backward ? head * size + tail : tail * size + head));
        for (let other = 0; other < net.ranks; other += 1) sums[other] = sums[other] && far.has(other) ? add(sums[other], frac(far.get(other), own.unit)) : null;
      });
      for (const [key, total] of spent) if (above(total, limits.get(key))) wrong("the dual values of a hop sum to " + show(total) + ", more than its links' " + show(limits.get(key)));
      return sums;
    };
    // Both lists are checked, also that of a phase that the collective does not have.
    const [into, from] = [[prices.into, true], [prices.out_of, false]].map(([rows, backward]) => (list(rows, "dual values of ranks").length ? uses(rows, backward) : null));
    return { links, uses: (direction) => (direction === "broadcast" ? into : from) || wrong("the prices have no dual values for what ranks " + (direction === "broadcast" ? "receive" : "send")) };
  }
  // The cheapest trees over ranks and switches that branch, by the algorithm of Dreyfus and Wagner.
  function treeUses(net, rows) {
    const links = linkDuals(net, rows, "tree_dual"), size = net.nodes.length, { unit, length } = scaled(links);
    if (net.ranks > 12) wrong("the cheapest trees of " + net.ranks + " ranks are not computed; the limit is 12");
    const less = (a, b) => (b === null || (a !== null && a <= b) ? a : b), plus = (a, b) => (a === null || b === null ? null : a + b);
    const relax = (far, middle) => { for (const row of far) far[middle].forEach((rest, head) => { row[head] = less(row[head], plus(row[middle], rest)); }); };
    function past(direct) {
      const far = net.nodes.map(() => Array(size).fill(null));
      for (const [tail, head, cost] of direct) far[tail][head] = cost;
      for (let middle = net.ranks; middle < size; middle += 1) relax(far, middle);
      return far;
    }
    return { links, uses: (direction) => {
      const reduces = direction === "reduce", branching = [...(reduces ? net.aggregation : net.multicast)], vertices = [...Array(net.ranks).keys(), ...branching];
      const cost = (tail, head) => length(reduces ? head * size + tail : tail * size + head);
      const pairs = net.tails.map((tail, at) => (reduces ? [net.heads[at], tail] : [tail, net.heads[at]]));
      const there = past(pairs.map(([tail, head]) => [tail, head, cost(tail, head)]));
      const both = past(pairs.filter(([tail, head]) => net.place(head, tail) !== undefined && net.place(tail, head) !== undefined).map(([tail, head]) => [tail, head, cost(tail, head) + cost(head, tail)]));
      const costs = vertices.map((tail) => vertices.map((head) => (tail === head ? 0n : (tail < net.ranks && net.loopback.has(head) ? both : there)[tail][head])));
      const best = [vertices.map(() => 0n)]; vertices.forEach((_, middle) => relax(costs, middle));
      for (let covered = 1; covered < 2 ** net.ranks; covered += 1) {
        const first = covered & -covered, here = vertices.map(() => null);
        for (let part = (covered - 1) & covered; part; part = (part - 1) & covered) if (part & first) vertices.forEach((_, at) => { here[at] = less(here[at], plus(best[part][at], best[covered - part][at])); });
        for (let rank = 0; rank < net.ranks; rank += 1) if ((covered >> rank) & 1) here[rank] = best[covered - 2 ** rank][rank];
        best.push(costs.map((row) => row.reduce((least, way, at) => less(least, plus(way, here[at])), null)));
      }
      return best[best.length - 1].slice(0, net.ranks).map((use) => (use === null ? null : frac(use, unit)));
    } };
  }
  function rooted(net, collective, weights, { links, uses }, why) {
    if (!collective.phases.length) wrong("dual values of trees do not bound an all-to-all");
    const phases = collective.phases.map(uses), sizes = weights.length ? weights : Array(net.ranks).fill(1n);
    const both = phases.length === 2 ? phases[0].flatMap((use, at) => (use && phases[1][at] ? [add(use, phases[1][at])] : [])) : [];
    const part = (use, rank) => times(frac(sizes[rank]), use || (sizes[rank] ? wrong(net.nodes[rank] + " does not reach all ranks") : frac(0n)));
    const amount = both.length ? times(frac(BigInt(net.ranks)), both.reduce((least, use) => (above(least, use) ? use : least))) : phases.length === 2 ? frac(0n) : phases[0].map(part).reduce(add);
    return { ...worth(net, links), amount, why };
  }
  // Witnesses: the amount of data that must cross, the bandwidth for it, and whether that holds for every schedule.
  function crossed(net, name, value, collective, weights) {
    const two = collective.phases.length === 2, total = BigInt(net.ranks), pairs = !collective.phases.length;
    if (["rank_cuts", "partition", "loopback_partition", "tree_partition"].includes(name) && !two) wrong("the witness " + name + " bounds an allreduce only");
    if (collective.groups ? name !== "cut" && name !== "item_cuts" : name === "item_cuts") wrong("the witness " + name + " does not bound this collective");
    if (name === "cut") {
      const inside = cutOf(net, value), reduces = collective.phases[0] === "reduce" && !two, within = ranksIn(net, inside);
      const traffic = (from, to) => (weights.length ? weights[from * net.ranks + to] : 1n), others = [...Array(net.ranks).keys()].filter((rank) => !inside.has(rank));
      const moved = collective.groups && sum(collective.groups.filter(({ sources, destinations }) => sources.every((rank) => inside.has(rank)) && destinations.some((rank) => !inside.has(rank))).map((group) => group.weight));
      const amount = moved ?? (two ? total : pairs ? sum(within.flatMap((from) => others.map((to) => traffic(from, to)))) : sum(within.map((rank) => (weights.length ? weights[rank] : 1n))));
      const side = reduces ? "enter" : "leave", what = collective.groups ? "items from inside for ranks outside" : two ? "as much as all data" : pairs ? "the traffic from inside to outside" : reduces ? "contributions to the shards inside" : "the shards inside";
      return { ...crossing(net, inside, reduces), amount: frac(amount), nodes: [...inside], why: "A cut around " + within.length + " of " + net.ranks + " ranks: " + what + " must " + side + " it" };
    }
    if (name === "rank_cuts") {
      if (net.aggregation.size) wrong("cuts around single ranks bound nothing where switches add");
      const alone = (inside, rank) => (inside.has(rank) && ranksIn(net, inside).length === 1 ? inside : wrong("the cut of rank " + rank + " does not hold this rank alone"));
      const cuts = list(value, "rank_cuts", net.ranks).map((nodes, rank) => alone(cutOf(net, nodes), rank)).map((inside) => ({ ...crossing(net, inside, net.multicast.size > 0), nodes: [...inside] }));
      return { ...cuts.reduce((widest, cut) => (above(cut.bandwidth, widest.bandwidth) ? cut : widest)), amount: frac(2n * (total - 1n)), why: "The widest of the cuts around each rank alone: some rank " + (net.multicast.size ? "receives" : "sends") + " 2 (N - 1) / N of all data" };
    }
    if (name === "partition") {
      const { of, count } = partition(net, value);
      if ([...net.aggregation].some((node) => of[node] < 0)) wrong("a switch that adds is in a part without ranks");
      return { ...ofLinks(net, (tail, head) => of[head] >= 0 && of[tail] !== of[head]), amount: frac(2n * BigInt(count - 1) * total), why: count + " parts with ranks receive 2 (p - 1) times all data between them" };
    }
    if (name === "loopback_partition" || name === "tree_partition") return treePartition(net, value, collective, name === "loopback_partition");
    if (name === "prices") return rooted(net, collective, weights, priceUses(net, fields(value, ["links", "into", "out_of", "relays"], [], "prices")), "At dual values of the links, data uses bandwidth worth");
    if (name === "tree_dual") return rooted(net, collective, weights, treeUses(net, value), "At dual values of the links, the cheapest trees cost");
    if (name === "item_cuts") return itemCuts(net, collective.groups, value);
    if (!pairs) wrong("lengths bound an all-to-all only");
    const lengths = linkDuals(net, value, "lengths"), { unit, length } = scaled(lengths), out = outOf(net, pairsOf(net));
    const ranks = [...Array(net.ranks).keys()], uses = ranks.flatMap((from) => {
      const far = distances(out, from, (tail, head) => length(tail * net.nodes.length + head)), traffic = (to) => (to === from ? 0n : weights.length ? weights[from * net.ranks + to] : 1n);
      return ranks.filter(traffic).map((to) => traffic(to) * (far.get(to) ?? wrong("rank " + from + " does not reach rank " + to)));
    });
    return { ...worth(net, lengths), amount: frac(sum(uses), unit), why: "Over all pairs, traffic times distance" };
  }
  function readBound(net, data, collective, what) {
    const entry = fields(data, ["inverse_rate"], ["weights", ...WITNESSES], what), rate = fraction(entry.inverse_rate, what + ".inverse_rate");
    const weights = wholes(entry.weights === undefined ? [] : entry.weights, what + ".weights"), stated = WITNESSES.filter((name) => entry[name] !== undefined && entry[name] !== null);
    if (stated.length !== 1) wrong(what + " has " + stated.length + " witnesses; expected one");
    const expected = collective.name === "all_to_allv" ? [net.ranks ** 2] : ["allreduce", "all_to_all", "demands"].includes(collective.name) ? [0] : collective.root ? [net.ranks] : [0, net.ranks];
    if (!expected.includes(weights.length) || (collective.root && weights.filter(Boolean).length !== 1)) wrong(what + " has weights that do not fit the collective");
    const proof = crossed(net, stated[0], entry[stated[0]], collective, weights), narrow = stated[0].startsWith("tree_") || (stated[0] === "prices" && collective.phases.length === 2);
    const proves = proof.amount.n > 0n && proof.bandwidth.n > 0n && same(over(proof.amount, proof.bandwidth), rate);
    if (!proves) wrong(what + " claims " + show(rate) + " ns per byte; its witness shows " + show(proof.amount) + " over " + show(proof.bandwidth) + " GB/s");
    const total = collective.groups ? frac(sum(collective.groups.map((group) => group.weight))) : weights.length ? frac(sum(weights), collective.phases.length ? 1n : BigInt(net.ranks)) : frac(BigInt(net.ranks)), words = (value) => (value.d === 1n ? show(value) : "(" + show(value) + ")");
    return { ...proof, rate, weights, narrow, algbw: over(total, rate), text: proof.why + ": " + show(proof.amount) + ". The links offer " + near(proof.bandwidth) + " GB/s, so each byte of a " + (collective.phases.length ? "shard" : "part") + " takes at least " + show(proof.amount) + " / " + words(proof.bandwidth) + " = " + near(rate) + " ns" };
  }
  // Paths as lists of links; ends may also be the switches in `branching`, and all nodes inside may be ranks if `through`.
  function readPaths(net, value, backward, branching = new Set(), through = false) {
    if (!list(value, "schedule.paths").length) wrong("the schedule has no paths");
    return value.map((path, number) => {
      const nodes = places(path, "path " + number, net.nodes.length);
      if (nodes.length < 2 || new Set(nodes).size < nodes.length) wrong("path " + number + " has fewer than two nodes, or one twice");
      const misplaced = (node, at) => (at === 0 || at === nodes.length - 1 ? node >= net.ranks && !branching.has(node) : node < net.ranks && !through);
      if (nodes.some(misplaced)) wrong("path " + number + " does not run from rank to rank through switches only");
      const links = nodes.slice(1).map((head, at) => {
        const [from, to] = backward ? [head, nodes[at]] : [nodes[at], head];
        return net.place(from, to) ?? wrong("path " + number + " uses a link from " + net.nodes[from] + " to " + net.nodes[to] + ", which does not exist");
      });
      return { nodes, links, from: nodes[0], to: nodes[nodes.length - 1] };
    });
  }
  const equalShards = (net) => ({ total: frac(BigInt(net.ranks)), fits: (weights) => weights.every((weight) => weight === 1n) });
  const directed = (value) => (value === "broadcast" || value === "reduce" ? value : wrong("the direction of the schedule is neither broadcast nor reduce"));
  // Who has and who needs data of a weight: shards of ranks, or items with equal sources, destinations and layers.
  const shardsOf = (net, weights) => weights.map((weight, rank) => ({ weight, sources: [rank], destinations: [...weights.keys()].filter((other) => other !== rank) }));
  function readGroups(net, schedule) {
    const ranksOf = (names) => places(list(names, "the ranks of an item").map((name) => net.index.get(name) ?? -1), "the ranks of an item", net.ranks).sort((a, b) => a - b);
    const items = list(schedule?.items, "items").map((item) => ({ ...fields(item, ["name", "size", "sources", "destinations"], ["layer"], "an item"), layer: Number(whole(item.layer ?? 0, "a layer")) }));
    const groups = new Set(items.map((item) => item.name)).size < items.length ? wrong("two items have one name") : new Map();
    for (const { size, layer, ...item } of items.sort((a, b) => a.layer - b.layer)) {
      const sources = ranksOf(item.sources), destinations = ranksOf(item.destinations).filter((rank) => !sources.includes(rank)), key = JSON.stringify([layer, sources, destinations]);
      if (!sources.length || new Set(sources).size < sources.length || new Set(destinations).size < destinations.length) wrong("an item has no source, or a rank twice");
      if (destinations.length) groups.set(key, { sources, destinations, sizes: [...(groups.get(key)?.sizes || []), fraction(size, "the size of an item")] });
    }
    const all = [...groups.values()], sizes = all.flatMap((group) => group.sizes), scale = lcm(sizes.map((size) => size.d)), unit = sizes.reduce((unit, size) => gcd(unit, (size.n * scale) / size.d), 0n);
    return all.length ? all.map((group) => ({ ...group, weight: sum(group.sizes.map((size) => (size.n * scale) / size.d)) / unit })) : wrong("no item has a destination");
  }
  // Trees: all that need data of a group are reached from those that have it, by one path each; loads in units of 1 / k.
  function readForest(net, data) {
    const file = fields(data, ["kind", "direction", "trees_per_root", "root_weights", "paths", "trees"], ["switches"], "the schedule"), weights = wholes(file.root_weights, "root_weights", net.ranks);
    const trees = list(file.trees, "schedule.trees").map((tree) => list(tree, "a tree", 3)).map(([root, weight, routes]) => [weight, routes, root]);
    return forest(net, file.direction, whole(file.trees_per_root, "trees_per_root", 1), shardsOf(net, weights), file.paths, trees, file.switches || []);
  }
  function readDemands(net, data) {
    const file = fields(data, ["kind", "trees_per_root", "items", "paths", "switches", "trees"], [], "the schedule"), groups = readGroups(net, data);
    const trees = list(file.trees, "schedule.trees").map((tree) => list(tree, "a tree", 4)).map(([root, weight, routes, group]) => [weight, routes, groups[group]?.sources.includes(root) ? group : wrong("the root of a tree is no source of its group")]);
    return { ...forest(net, "broadcast", whole(file.trees_per_root, "trees_per_root", 1), groups, file.paths, trees, file.switches), phases: ["items"], fits: () => true };
  }
  function forest(net, direction, k, groups, rows, trees, numbers) {
    const way = directed(direction), able = way === "broadcast" ? net.multicast : net.aggregation, switches = places(numbers, "schedule.switches", net.nodes.length, null, net.ranks), vertices = [...Array(net.ranks).keys(), ...switches];
    for (const node of switches) if (!able.has(node)) wrong("trees branch at switch " + net.nodes[node] + ", which cannot " + (way === "broadcast" ? "multicast" : "aggregate"));
    const paths = new Set(vertices).size < vertices.length || !trees.length ? wrong("the forest has a switch twice, or no trees") : readPaths(net, rows, way === "reduce", new Set(switches)), users = paths.map(() => 0n), back = paths.map(() => 0n), totals = groups.map(() => 0n);
    trees.forEach(([weight, routes, group], number) => {
      places([group], "the root of tree " + number, groups.length); places(routes, "the routes of tree " + number, paths.length, vertices.length, -1);
      const amount = whole(weight, "the weight of tree " + number, 1), { sources, destinations } = groups[group], below = new Map(vertices.map((node) => [node, []])), reached = [...sources];
      vertices.forEach((node, at) => {
        if (routes[at] < 0) return;
        const path = paths[routes[at]].to === node && !sources.includes(node) ? paths[routes[at]] : wrong("in tree " + number + " the path to " + net.nodes[node] + " ends elsewhere, or at its source");
        users[routes[at]] += amount; below.get(path.from).push(node);
      });
      // Every vertex has at most one path, so those that the sources reach form trees.
      for (const node of reached) reached.push(...below.get(node));
      const known = new Set(reached), lost = [...destinations, ...vertices.filter((_, at) => routes[at] >= 0)].find((node) => !known.has(node));
      if (lost !== undefined) wrong("tree " + number + " does not reach " + net.nodes[lost] + " from its root");
      switches.forEach((node, place) => {
        const route = routes[net.ranks + place], heads = below.get(node);
        if (net.group.has(node) && heads.length >= 2 && heads.length + 1 > net.group.get(node)) wrong("tree " + number + " joins more than " + net.group.get(node) + " neighbors of switch " + net.nodes[node]);
        // The copy that a switch with loopback sends back to the rank above it.
        if (net.loopback.has(node) && route >= 0 && paths[route].from < net.ranks && (heads.length >= 2 || heads.some((head) => head >= net.ranks))) back[route] += amount;
      });
      totals[group] += amount;
    });
    totals.forEach((total, root) => total === k * groups[root].weight || wrong("the trees of root or group " + root + " weigh " + total + " together; expected " + k * groups[root].weight));
    const loads = net.tails.map(() => 0n), weights = groups.map((group) => group.weight);
    paths.forEach((path, number) => {
      for (const place of path.links) loads[place] += users[number];
      if (back[number]) for (const place of path.links) loads[net.place(net.heads[place], net.tails[place]) ?? wrong("a copy that is looped back has no link from " + net.nodes[net.heads[place]])] += back[number];
    });
    return { phases: [way], loads: [loads], units: [k], weights, total: frac(sum(weights)), fits: (sizes) => weights.every((weight, rank) => weight === (sizes.length ? sizes[rank] : 1n)), text: trees.length + " trees reach all ranks that need their data; those of each root weigh " + k + " per unit of it" };
  }
  // Trees of representatives, of which symmetries of the network make all.
  async function readSymmetric(net, data) {
    const counts = ["num_ranks", "num_nodes", "num_generators", "num_trees", "num_paths", "num_path_nodes", "trees_per_root"], arrays = ["generators", "roots", "weights", "routes", "path_lengths", "path_nodes"];
    const file = fields(data, ["kind", "direction", ...counts, ...arrays], [], "the schedule"), size = net.nodes.length, count = Object.fromEntries(counts.map((name) => [name, Number(whole(file[name], name, 1))]));
    if (count.num_ranks !== net.ranks || count.num_nodes !== size || count.num_paths > count.num_trees * net.ranks) wrong("the counts of the schedule do not fit the network");
    const lengths = { generators: count.num_generators * size, roots: count.num_trees, weights: count.num_trees, routes: count.num_trees * net.ranks, path_lengths: count.num_paths, path_nodes: count.num_path_nodes };
    if (Math.max(...Object.values(lengths)) > 2 ** 25) wrong("the counts of the schedule are out of proportion");
    const read = Object.fromEntries(await Promise.all(arrays.map(async (name) => [name, await decoded(file[name], lengths[name], "schedule." + name)])));
    const rows = (values, wide) => Array.from({ length: values.length / wide }, (_, at) => values.slice(at * wide, (at + 1) * wide));
    const generators = rows(places(read.generators, "a generator", size), size), starts = [0];
    for (const length of read.path_lengths) starts.push(starts[starts.length - 1] + length);
    if (starts[starts.length - 1] !== count.num_path_nodes || read.path_lengths.some((length) => length < 2)) wrong("the paths do not have the lengths that are stated");
    const shards = Array(net.ranks).fill(0n), routes = rows(read.routes, net.ranks);
    for (const root of places(read.roots, "the roots", net.ranks)) shards[root] = 1n;
    const paths = read.path_lengths.map((length, at) => read.path_nodes.slice(starts[at], starts[at + 1]));
    const base = forest(net, file.direction, BigInt(count.trees_per_root), shardsOf(net, shards), paths, read.roots.map((root, at) => [read.weights[at], routes[at], root]), []);
    if (generators.length >= net.ranks.toString(2).length) wrong("there are too many generators");
    const orbitsOf = (size, images) => components(size, images.flatMap((image) => image.slice(0, size).map((to, at) => [at, to])));
    let products = 1; const images = generators.map((generator, number) => {
      if (new Set(generator).size < size || generator.some((node, at) => at < net.ranks && node >= net.ranks) || generator[0] === 0) wrong("generator " + number + " is no permutation, takes a rank to a switch, or fixes rank 0");
      for (let other = 0; other < number; other += 1) if (generator.some((node, at) => generators[other][node] !== generator[generators[other][at]])) wrong("generators " + other + " and " + number + " do not commute");
      // Its order is the length of each cycle of ranks; those of switches divide it.
      const turns = (start) => { let node = generator[start], order = 1; for (; node !== start; node = generator[node]) order += 1; return order; }, order = turns(0);
      if (generator.some((_, at) => order % turns(at))) wrong("generator " + number + ", taken " + order + " times, fixes rank 0 but not all nodes");
      products *= order;
      return net.tails.map((tail, at) => {
        const place = net.place(generator[tail], generator[net.heads[at]]);
        return place !== undefined && same(net.bandwidth[place], net.bandwidth[at]) && net.latency[place] === net.latency[at] ? place : wrong("generator " + number + " takes a link to none, or to one of another bandwidth or latency");
      });
    });
    const members = new Map(), heads = new Map(); orbitsOf(net.ranks, generators).forEach((orbit, rank) => { members.set(orbit, (members.get(orbit) || 0) + 1); heads.set(orbit, (heads.get(orbit) || 0n) + shards[rank]); });
    for (const [orbit, number] of members) if (number !== products || heads.get(orbit) !== 1n) wrong("an orbit of ranks has " + number + " members and " + heads.get(orbit) + " representatives; expected " + products + " and 1");
    const orbits = orbitsOf(net.tails.length, images), sums = new Map(), sizes = new Map();
    orbits.forEach((orbit, at) => { sums.set(orbit, (sums.get(orbit) || 0n) + base.loads[0][at]); sizes.set(orbit, (sizes.get(orbit) || 0n) + 1n); });
    const text = base.text + "; " + products + " products of " + generators.length + " symmetries make the trees of all ranks", loads = [orbits.map((orbit) => (sums.get(orbit) * BigInt(products)) / sizes.get(orbit))];
    return { ...base, loads, text, ...equalShards(net) };
  }
  function emptyLoads(net, steps) {
    const used = new Set(steps), unused = [...used.keys()].findIndex((_, step) => !used.has(step));
    return unused < 0 ? [...used].map(() => net.tails.map(() => 0n)) : wrong("nothing is sent in step " + unused);
  }
  // Sends in steps.  `columns` of equal length; returns sends with their paths, and the loads of every step.
  function readSends(net, file, names, backward, chunks) {
    if (file.num_ranks !== net.ranks) wrong("the schedule is for " + file.num_ranks + " ranks, the network has " + net.ranks);
    const sends = list(file.steps, "schedule.steps").length, columns = Object.fromEntries(names.map((name) => [name, wholes(file[name], "schedule." + name, sends)]));
    const paths = readPaths(net, file.paths, backward), steps = places(file.steps, "schedule.steps", sends), loads = emptyLoads(net, steps);
    const made = steps.map((step, at) => {
      const [lower, upper, route, source, adds] = ["lower", "upper", "routes", "sources", "adds"].map((name) => columns[name]?.[at] ?? 0n), path = paths[Number(route)] || wrong("send " + at + " has a route that is not a path");
      if (lower >= upper || upper > chunks) wrong("send " + at + " carries chunks " + lower + " to " + upper + " of " + chunks);
      for (const place of path.links) loads[step][place] += upper - lower;
      return { at, step, lower, upper, from: path.from, to: path.to, source: Number(source), adds };
    });
    return [made, loads];
  }
  // The pieces that the ends of sends cut chunks into: for each, its first chunk and the sends that carry it.
  function pieces(sends, chunks) {
    const cuts = [...new Set([0n, ...sends.flatMap((send) => [send.lower, send.upper])])].filter((chunk) => chunk < chunks).sort((a, b) => (a < b ? -1 : 1)), number = new Map(cuts.map((chunk, at) => [chunk, at])), carriers = cuts.map(() => []);
    for (const send of sends) for (let at = number.get(send.lower); at < cuts.length && cuts[at] < send.upper; at += 1) carriers[at].push(send);
    return cuts.map((chunk, at) => ({ chunk, sends: carriers[at] }));
  }
  function readSteps(net, data) {
    const file = fields(data, ["kind", "direction", "num_ranks", "chunks_per_shard", "paths", "steps", "sources", "lower", "upper", "routes"], [], "the schedule");
    const way = directed(file.direction), chunks = whole(file.chunks_per_shard, "chunks_per_shard", 1);
    const [sends, loads] = readSends(net, file, ["sources", "lower", "upper", "routes"], way === "reduce", chunks), of = Array.from({ length: net.ranks }, () => []);
    for (const send of sends) (of[send.source] || wrong("send " + send.at + " has a source that is not a rank")).push(send);
    of.forEach((own, source) => {
      for (const piece of pieces(own, chunks)) {
        const arrival = Array.from({ length: net.ranks }, (_, rank) => (rank === source ? -1 : Infinity)), count = arrival.map((_, rank) => (rank === source ? 1 : 0));
        for (const send of piece.sends) { arrival[send.to] = Math.min(arrival[send.to], send.step); count[send.to] += 1; }
        for (const send of piece.sends) if (arrival[send.from] >= send.step) wrong("in step " + send.step + " rank " + send.from + " sends chunk " + piece.chunk + " of the shard of rank " + source + ", but does not have it by then");
        arrival.forEach((step, rank) => {
          if (step === Infinity) wrong("rank " + rank + " never gets chunk " + piece.chunk + " of the shard of rank " + source);
          if (way === "reduce" && count[rank] > 1) wrong("rank " + rank + " would send chunk " + piece.chunk + " of the shard of rank " + source + " " + count[rank] + " times");
        });
      }
    });
    return { phases: [way], loads, units: loads.map(() => chunks), inSteps: true, ...equalShards(net), text: sends.length + " sends in " + loads.length + " steps bring every rank all that it needs, and no rank sends what it does not have" };
  }
  function readExchange(net, data) {
    const file = fields(data, ["kind", "num_ranks", "chunks", "paths", "steps", "adds", "lower", "upper", "routes"], [], "the schedule"), chunks = places(file.adds, "schedule.adds", 2) && whole(file.chunks, "chunks", 1);
    const [sends, loads] = readSends(net, file, ["adds", "lower", "upper", "routes"], false, chunks), all = 2n ** BigInt(net.ranks) - 1n;
    for (const piece of pieces(sends, chunks)) {
      // Bits of a number are the ranks whose vectors are in the sum that a rank holds.
      let held = Array.from({ length: net.ranks }, (_, rank) => 1n << BigInt(rank));
      for (let step = 0; step < loads.length; step += 1) {
        const next = [...held], now = piece.sends.filter((send) => send.step === step);
        for (const rank of new Set(now.map((send) => send.to))) {
          const arrivals = now.filter((send) => send.to === rank);
          const keeps = arrivals.every((send) => send.adds);
          if (!keeps && arrivals.length > 1) wrong("in step " + step + " rank " + rank + " is sent two values of chunk " + piece.chunk + " to keep");
          next[rank] = arrivals.reduce((bits, send) => (bits & held[send.from] ? wrong("in step " + step + " rank " + rank + " adds a vector twice to its sum of chunk " + piece.chunk) : bits | held[send.from]), keeps ? held[rank] : 0n);
        }
        held = next;
      }
      held.forEach((bits, rank) => bits === all || wrong("rank " + rank + " never has the sum of all vectors of chunk " + piece.chunk));
    }
    return { phases: ["reduce", "broadcast"], loads, units: loads.map(() => chunks), inSteps: true, total: frac(1n), fits: () => true, text: sends.length + " sends in " + loads.length + " steps leave the sum of all vectors on every rank, and none adds one twice" };
  }
  // Flows: paths that carry the traffic of each pair once, and wait at ranks.
  function readFlow(net, data) {
    const staged = data.kind === "staged-flow";
    const file = fields(data, ["kind", "chunks_per_unit", "traffic", "paths", "weights", "steps", ...(staged ? ["servers"] : [])], [], "the schedule");
    const chunks = whole(file.chunks_per_unit, "chunks_per_unit", 1), traffic = list(file.traffic, "traffic", net.ranks).map((row) => wholes(row, "traffic", net.ranks)), paths = readPaths(net, file.paths, false, new Set(), true);
    const weights = wholes(file.weights, "weights", paths.length, 1), hops = paths.reduce((count, path) => count + path.links.length, 0), steps = places(file.steps, "steps", hops, hops);
    const loads = emptyLoads(net, steps).slice(0, staged ? undefined : 1), carried = traffic.map((row) => row.map(() => 0n)), partners = [new Map(), new Map()], servers = staged ? wholes(file.servers, "servers", net.ranks) : [];
    let at = 0;
    paths.forEach((path, number) => {
      carried[path.from][path.to] += weights[number];
      let sender = path.from;
      path.links.forEach((place, hop) => {
        const step = steps[at + hop], node = path.nodes[hop], head = path.nodes[hop + 1];
        if (hop && (node < net.ranks ? step <= steps[at + hop - 1] : step !== steps[at + hop - 1])) wrong("the steps of path " + number + (node < net.ranks ? " do not increase at a rank" : " do not stay the same at a switch"));
        loads[staged ? step : 0][place] += weights[number];
        if (head >= net.ranks) return;
        if (staged && servers[sender] !== servers[head]) {
          for (const [side, end, other] of [[0, sender, head], [1, head, sender]]) {
            const key = step * net.ranks + end;
            if (partners[side].has(key) && partners[side].get(key) !== other) wrong("in step " + step + " rank " + end + (side ? " receives from" : " sends to") + " several ranks of other servers");
            partners[side].set(key, other);
          }
        }
        sender = head;
      });
      at += path.links.length;
    });
    traffic.forEach((row, from) => row.forEach((amount, to) => { if (from !== to && carried[from][to] !== amount * chunks) wrong("the paths from rank " + from + " to rank " + to + " carry " + carried[from][to] + " chunks; expected " + amount * chunks); }));
    const flat = traffic.flat();
    return { phases: [], loads, units: loads.map(() => chunks), inSteps: staged, total: frac(sum(flat), BigInt(net.ranks)), fits: (sizes) => flat.every((amount, place) => amount === (sizes.length ? sizes[place] : 1n)), text: paths.length + " paths carry the traffic of every pair of ranks, whole and once" };
  }
  async function readSchedule(net, data) {
    const kind = data && data.kind;
    const readers = { forest: readForest, "symmetric-forest": readSymmetric, steps: readSteps, exchange: readExchange, flow: readFlow, "staged-flow": readFlow, "demand-forest": readDemands };
    if (Object.hasOwn(readers, kind)) return readers[kind](net, data);
    if (kind !== "allreduce") wrong("the schedule is of no known kind");
    const { reduce, broadcast } = fields(data, ["kind", "reduce", "broadcast"], [], "the schedule");
    if (!["forest", "symmetric-forest", "steps"].includes(reduce && reduce.kind) || reduce.kind !== (broadcast && broadcast.kind)) wrong("both parts of the allreduce are not of one kind");
    const [first, second] = [await readSchedule(net, reduce), await readSchedule(net, broadcast)];
    if (first.phases[0] !== "reduce" || second.phases[0] !== "broadcast") wrong("the allreduce does not reduce first and broadcast then");
    const both = { phases: ["reduce", "broadcast"], total: second.total, fits: () => true, text: "Reduction: " + first.text + ". Broadcast: " + second.text };
    if (reduce.kind === "steps") return { ...both, inSteps: true, loads: [...first.loads, ...second.loads], units: [...first.units, ...second.units] };
    if (first.weights.some((weight, rank) => weight !== second.weights[rank])) wrong("the allreduce broadcasts other shards than it reduces");
    const unit = lcm([first.units[0], second.units[0]]), [one, two] = [first, second].map((half) => unit / half.units[0]);
    return { ...both, loads: [first.loads[0].map((load, at) => load * one + second.loads[0][at] * two)], units: [unit] };
  }
  async function check(bytes, tell = () => {}) {
    let name = "File", digest = "", done = (text, more = {}) => tell({ name, text, ok: true, ...more });
    try {
      digest = await sha256(bytes);
      const file = fields(parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes)), ["format", "version", "made_by", "collective", "planner", "options", "inverse_rate", "bound", "topology_digest", "topology", "link_loads", "schedule"], ["scoped_bound"], "the plan");
      if (file.format !== "collopt-plan" || (file.version !== 9 && file.version !== 10)) wrong("the file is no plan of version 9 or 10");
      const collective = typeof file.collective === "string" && Object.hasOwn(COLLECTIVES, file.collective) ? { name: file.collective, ...COLLECTIVES[file.collective] } : wrong("the collective is none that this checker knows");
      await done("A plan for " + collective.name + " of " + bytes.length.toLocaleString("en") + " bytes");
      name = "Topology"; const net = await readNetwork(file.topology, file.topology_digest);
      await done(net.ranks + " ranks, " + (net.nodes.length - net.ranks) + " switches and " + net.tails.length + " links; their digest is the one that the plan states", { network: file.topology_digest });
      const ends = (links) => links.map((place) => [net.tails[place], net.heads[place]]);
      const bounds = [], groups = collective.name === "demands" ? readGroups(net, file.schedule) : null;
      for (const field of (file.scoped_bound ?? null) === null ? ["bound"] : ["bound", "scoped_bound"]) {
        const narrow = field !== "bound";
        name = narrow ? "Bound of some schedules" : "Bound of all schedules";
        const bound = readBound(net, file[field], { ...collective, groups }, field);
        if (bound.narrow !== narrow) wrong(narrow ? "the scoped bound is about all schedules" : "the bound is about some schedules only");
        bounds.push(bound);
        await done(bound.text, { sums: bound.sums, nodes: bound.nodes, links: ends(bound.links) });
      }
      name = "Schedule"; const schedule = await readSchedule(net, file.schedule);
      await done(schedule.text);
      name = "Loads"; list(schedule.inSteps ? file.link_loads : [file.link_loads], "link_loads", schedule.loads.length).forEach((row, step) => wholes(row, "link_loads", net.tails.length).forEach((load, at) => {
        if (load !== schedule.loads[step][at]) wrong("the schedule puts " + schedule.loads[step][at] + " on the link from " + net.nodes[net.tails[at]] + " to " + net.nodes[net.heads[at]] + (schedule.inSteps ? " in step " + step : "") + "; the plan states " + load);
      }));
      await done("What the schedule puts on each of the " + net.tails.length + " links, added up again, is what the plan states");
      // Of every row of loads the busiest link, load / (unit * bandwidth) in ns per byte; the rows of steps add up.
      name = "Rate"; const busiest = schedule.loads.map((row) => row.reduce((best, load, place) => (load * net.capacity[best] > row[best] * net.capacity[place] ? place : best), 0)), at = busiest[0], last = busiest.length;
      const rate = busiest.reduce((total, place, step) => add(total, frac(schedule.loads[step][place] * net.scale, schedule.units[step] * net.capacity[place])), frac(0n));
      if (!same(rate, fraction(file.inverse_rate, "inverse_rate"))) wrong("the busiest links give " + show(rate) + " ns per byte; the plan claims " + file.inverse_rate);
      await done((last > 1 ? "The busiest links of " + last + " steps need " + near(rate) + " ns per byte" : "The busiest link, from " + net.nodes[net.tails[at]] + " to " + net.nodes[net.heads[at]] + ", carries " + show(frac(schedule.loads[0][at], schedule.units[0])) + " units over " + show(net.bandwidth[at]) + " GB/s: " + near(rate) + " ns per byte"), { links: ends(busiest) });
      name = "Result"; if (schedule.phases.join() !== collective.phases.join()) wrong("the schedule is not of the kind that the collective needs");
      if (!bounds.every((bound) => schedule.fits(bound.weights))) wrong("the shards or the traffic of the schedule differ from those of its bound");
      const algbw = over(schedule.total, rate), gap = add(frac(1n), frac(-algbw.n * bounds[0].algbw.d, algbw.d * bounds[0].algbw.n));
      for (const bound of bounds) if (above(algbw, bound.algbw)) wrong("the plan's " + show(algbw) + " GB/s are more than the bound's " + show(bound.algbw));
      await done("The plan moves " + near(algbw) + " GB/s, and no schedule more than " + near(bounds[0].algbw) + ": the gap is " + near(gap) + (gap.n ? "" : ", so the plan is optimal"));
      return { ok: true, digest, bytes: bytes.length, algbw: show(algbw), bound: show(bounds[0].algbw), gap: show(gap) };
    } catch (error) {
      const reason = error instanceof Wrong ? error.message : error instanceof RangeError ? "it is nested too deeply, or a number is too large" : "it is damaged (" + error.message + ")";
      await tell({ name, text: reason, ok: false });
      return { ok: false, digest, failed: name, reason };
    }
  }
  return { check };
})();
if (typeof module === "object") module.exports = PlanCheck;
