// Reads the data, and puts views, tabs and the search together.

const VIEWS = [
  ["overview", "Overview", overview, () => true],
  ["graph", "Graph", graphView, () => true],
  ["source", "Source", source, () => true],
  ["passes", "Passes", passes, () => true],
  ["kernels", "Kernels", kernels, (p) => p.kernels.length > 0],
  ["memory", "Memory", memoryMap, (p) => p.steps.length > 0],
  ["timeline", "Timeline", timeline, (p) => p.steps.length > 0],
];
let programs = [];
let made = new Map();
let shown = "";

async function read() {
  const packed = Uint8Array.from(atob(document.getElementById("data").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

const tabNames = () => [
  ...(programs.length > 1 ? [["compare", "Compare"]] : []),
  ...VIEWS.filter(([, , , fits]) => programs.some(fits)).map(([id, name]) => [id, name]),
];

function build(id) {
  if (id === "compare") return compare(...programs);
  const [, , view, fits] = VIEWS.find(([name]) => name === id);
  const views = programs.map((p) => (fits(p) ? view(p) : h("p", { class: "panel muted" }, "This program has no plan.")));
  if (programs.length === 1) return views[0];
  return h("div", { class: "sides" }, views.map((v, i) => h("div", {}, h("p", { class: "which" }, programs[i].title), v)));
}

function show(id, focus = false) {
  if (!tabNames().some(([name]) => name === id)) [[id]] = tabNames();
  shown = id;
  hideTip();
  for (const tab of document.querySelectorAll("#tabs button")) {
    const mine = tab.dataset.view === id;
    tab.setAttribute("aria-selected", String(mine));
    tab.tabIndex = mine ? 0 : -1;
    if (mine && focus) tab.focus();
  }
  if (!made.has(id)) made.set(id, build(id));
  document.getElementById("view").replaceChildren(made.get(id));
  document.getElementById("view").setAttribute("aria-labelledby", `tab-${id}`);
  history.replaceState(null, "", `#${id}`);
}

/** The graph view of `p` after its pass number `stage`. */
function openGraph(p, stage) {
  show("graph");
  requestAnimationFrame(() => graphViews.get(p).stageTo(stage));
}

function reveal(p, node) {
  show("graph");
  requestAnimationFrame(() => requestAnimationFrame(() => graphViews.get(p).show(node)));
}

function tabs() {
  const bar = document.getElementById("tabs");
  bar.replaceChildren(...tabNames().map(([id, name]) => h("button", {
    role: "tab", id: `tab-${id}`, "data-view": id, "aria-controls": "view", onclick: () => show(id),
  }, name)));
  bar.addEventListener("keydown", (event) => {
    const names = tabNames().map(([id]) => id);
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (move) show(names[(names.indexOf(shown) + move + names.length) % names.length], true);
    if (event.key === "Home") show(names[0], true);
    if (event.key === "End") show(names[names.length - 1], true);
  });
}

/** Everything that can be searched for, what is looked for most often first. */
function index() {
  const entries = [];
  for (const p of programs) {
    const where = programs.length > 1 ? `${p.title}: ` : "";
    for (const k of p.kernels) entries.push({ text: k.name, kind: `${where}kernel`, choose: () => choose(p, "kernel", k.name, k.node), also: `${k.module} ${k.lines.join(" ")}` });
    for (const l of p.lineOf.values()) entries.push({ text: l.line, kind: `${where}line`, choose: () => choose(p, "line", l.line), also: p.code(l.line) });
    for (const b of p.buffers) entries.push({ text: b.value, kind: `${where}buffer`, choose: () => choose(p, "buffer", b.number), also: b.type });
    for (const [name, type] of p.state) entries.push({ text: name, kind: `${where}state`, choose: () => choose(p, "value", name), also: type });
    for (const i of p.flat(p.stages[0].nodes)) {
      const node = p.nodes[i];
      entries.push({ text: node.outputs[0] || node.op, kind: `${where}${node.op}`, choose: () => choose(p, "node", i, i), also: `${node.op} ${node.module}` });
    }
  }
  for (const entry of entries) entry.low = `${entry.text} ${entry.kind} ${entry.also}`.toLowerCase();
  return entries;
}

function choose(p, kind, key, node) {
  select(p, kind, key);
  if (shown === "graph" && node !== undefined && node >= 0) graphViews.get(p).show(node);
}

function search() {
  const input = document.getElementById("search");
  const box = document.getElementById("found");
  let entries = null, hits = [], at = 0;
  const close = () => { box.hidden = true; input.setAttribute("aria-expanded", "false"); };
  const mark = () => [...box.children].forEach((li, i) => {
    li.setAttribute("aria-selected", String(i === at));
    if (i === at) { input.setAttribute("aria-activedescendant", li.id); li.scrollIntoView({ block: "nearest" }); }
  });
  const take = (i) => { if (hits[i]) { close(); hits[i].choose(); } };
  function look() {
    entries = entries || index();
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    hits = words.length ? entries.filter((e) => words.every((w) => e.low.includes(w))) : [];
    const rank = (e) => (e.text.toLowerCase().startsWith(words[0]) ? 0 : e.text.toLowerCase().includes(words[0]) ? 1 : 2);
    hits = hits.map((e, i) => [rank(e), i, e]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).slice(0, 60).map(([, , e]) => e);
    at = 0;
    box.replaceChildren(...hits.map((e, i) => h("li", { id: `hit${i}`, role: "option", onpointerdown: (ev) => { ev.preventDefault(); take(i); } },
      h("span", {}, e.text), h("span", { class: "muted small" }, e.kind))));
    if (words.length && !hits.length) box.replaceChildren(h("li", { class: "muted" }, "nothing found"));
    box.hidden = !words.length;
    input.setAttribute("aria-expanded", String(Boolean(words.length)));
    mark();
  }
  input.addEventListener("input", look);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") { event.preventDefault(); at = Math.min(hits.length - 1, at + 1); mark(); }
    if (event.key === "ArrowUp") { event.preventDefault(); at = Math.max(0, at - 1); mark(); }
    if (event.key === "Enter") take(at);
    if (event.key === "Escape") { event.stopPropagation(); close(); input.blur(); }
  });
  document.addEventListener("keydown", (event) => {
    const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement.tagName);
    if (event.key === "/" && !typing) { event.preventDefault(); input.focus(); input.select(); }
    if (event.key === "Escape" && !typing) closeInspector();
  });
}

/** On paper: what can be read there, one view below the other. */
function printing() {
  addEventListener("beforeprint", () => {
    const parts = tabNames().filter(([id]) => ["compare", "overview", "kernels", "memory", "timeline"].includes(id));
    document.getElementById("view").replaceChildren(...parts.map(([id, name]) => h("div", { class: "printed" }, h("h1", {}, name), build(id))));
  });
  addEventListener("afterprint", () => show(shown));
}

read().then((data) => {
  programs = data.programs.map((program, i) => new Program(program, i));
  const alike = programs.length > 1 && programs[0].summary.name === programs[1].summary.name;
  programs.forEach((p, i) => { p.title = alike ? `${p.summary.name} ${"AB"[i]}` : p.summary.name; });
  tabs();
  search();
  printing();
  show(location.hash.slice(1) || tabNames()[0][0]);
  document.documentElement.dataset.ready = "true";
}).catch((error) => {
  document.getElementById("view").replaceChildren(h("p", { class: "panel" }, `The report could not be read: ${error}`));
  throw error;
});
