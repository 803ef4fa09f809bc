// The graph of a stage: modules as boxes that open and close, laid out by dagre.

const MOST_DRAWN = 420;
const MOST_NESTED = 900; // boxes times one more than an eighth of the open modules: what dagre lays out in a second or two
const OPENED_AT_FIRST = 46;

const drawable = (boxes, clusters) => boxes <= MOST_DRAWN && boxes * (1 + clusters / 8) <= MOST_NESTED;
const graphViews = new Map();

function graphView(p) {
  let tree = null, open = null, kept = [], keptShown = false, placed = null, transform = { x: 0, y: 0, k: 1 }, size = { width: 1, height: 1 };
  const memory = new Map();
  const drawing = s("g");
  const svg = s("svg", { role: "group", "aria-label": "Graph. Tab goes from box to box, Enter chooses, Space opens and closes, + and - zoom." }, 
    s("defs", {}, s("marker", { id: `head${p.place}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6.5, markerHeight: 6.5, orient: "auto" },
      s("path", { d: "M0,0 8,4 0,8z", class: "tipoff" }))), drawing);
  const full = h("div", { class: "full", hidden: true });
  const canvas = h("div", { class: "canvas" }, svg, full);
  const changing = p.stages.map((stage, i) => [stage.name, i]);
  const picker = h("select", { "aria-label": "Stage", onchange: () => stageTo(Number(picker.value)) },
    changing.map(([name, i]) => h("option", { value: i }, `${String(i).padStart(2, "0")} ${name}`)));
  const marks = [[0, "as written"]];
  const differentiated = p.stages.findIndex((x) => x.name === "differentiate");
  if (differentiated > 0) marks.push([differentiated, "differentiated"]);
  marks.push([p.stages.length - 1, "optimised"]);
  let quick = null;

  function stageTo(i) {
    picker.value = String(i);
    if (!memory.has(i)) {
      const made = new GraphTree(p, p.stages[i]);
      memory.set(i, [made, made.openLevels((shown) => shown <= OPENED_AT_FIRST)]);
    }
    [tree, open] = memory.get(i);
    const chosen = choice("Stage", marks, i, stageTo);
    if (quick) quick.replaceWith(chosen);
    quick = chosen;
    draw();
    fit();
  }

  function draw(focus) {
    const shown = [], clusters = [];
    (function visit(item) {
      for (const child of item.children) {
        if (open.has(child) && child.children.length) { clusters.push(child); visit(child); } else shown.push(child);
      }
    })(tree.root);
    full.hidden = drawable(shown.length, clusters.length);
    if (!full.hidden) {
      full.textContent = `${shown.length} boxes in ${clusters.length} open modules are too many to draw at once: close some first.`;
      return false;
    }
    const g = new dagre.graphlib.Graph({ compound: true });
    g.setGraph({ rankdir: "TB", nodesep: 16, ranksep: clusters.length ? 40 : 28, edgesep: 8, marginx: 12, marginy: 26, ranker: shown.length > 150 ? "longest-path" : "network-simplex" });
    g.setDefaultEdgeLabel(() => ({}));
    for (const item of clusters) g.setNode(item.id, {});
    for (const item of shown) {
      const label = boxLabel(item);
      item.text = label;
      g.setNode(item.id, { width: Math.max(70, 26 + 6.5 * Math.max(label[0].length, 0.92 * label[1].length)), height: label[1] ? 36 : 24 });
    }
    for (const item of [...clusters, ...shown]) if (item.parent !== tree.root) g.setParent(item.id, item.parent.id);
    const inCluster = new Set(clusters);
    const edges = new Map();
    kept = [];
    for (const [a, b] of tree.edges) {
      const from = tree.visible(a, open), to = tree.visible(b, open);
      if (from === to || inCluster.has(from) || inCluster.has(to) || !g.hasNode(from.id) || !g.hasNode(to.id)) continue;
      edges.set(`${from.id}\n${to.id}`, [from, to]);
    }
    // What the forward pass keeps for a later one pulls no box out of its place.
    const led = new Set([...edges.values()].filter(([from, to]) => from.phase !== "forward").map(([, to]) => to));
    for (const [key, [from, to]] of edges) {
      if (from.phase === "forward" && to.phase !== "forward" && led.has(to)) {
        kept.push([from, to]);
        edges.delete(key);
      }
    }
    for (const [from, to] of edges.values()) g.setEdge(from.id, to.id);
    dagre.layout(g);
    size = g.graph();
    drawing.replaceChildren(
      ...clusters.map((item) => cluster(item, g.node(item.id))),
      ...[...edges.values()].map(([from, to]) => edge(from, to, g.edge(from.id, to.id))),
      s("g", { class: "kept" }),
      ...shown.map((item) => box(item, g.node(item.id))),
    );
    placed = g;
    drawKept(null);
    mark();
    if (focus) {
      const again = [...drawing.querySelectorAll("[data-id]")].find((e) => e.dataset.id === focus);
      if (again) again.focus({ preventScroll: true });
    }
    return true;
  }

  function boxLabel(item) {
    if (item.kind === "module") return [`${item.label} ▸`, `${count(item.leaves)} ${item.leaves === 1 ? "node" : "nodes"}${item.time ? `, ${percent(item.time / p.total)}` : ""}`];
    const more = item.kind === "body" && item.children.length ? " ▸" : "";
    const module = item.node && item.parent === tree.root && item.node.module && !item.node.kernel ? `${item.node.module.split(".").pop()}.` : "";
    return [short(module + item.label, 34) + more, short(item.detail || "", 34)];
  }

  function cluster(item, at) {
    const title = `${item.label} ▾`;
    return s("g", { class: `cluster ${item.phase}`, transform: `translate(${at.x - at.width / 2},${at.y - at.height / 2 - 12})` },
      s("rect", { width: at.width, height: at.height + 14, rx: 7 }),
      s("g", {
        class: "title", tabindex: "0", role: "button", "aria-expanded": "true", "aria-label": `Close ${item.label}`, "data-id": item.id,
        onclick: () => toggle(item), onkeydown: (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); toggle(item); } },
      }, s("rect", { width: at.width, height: 18 }), s("text", { x: 8, y: 13 }, short(title, Math.max(6, Math.floor(at.width / 6.5))))));
  }

  function box(item, at) {
    const opens = item.children.length > 0;
    const share = item.time && p.total ? item.time / p.total : 0;
    const element = s("g", {
      class: `node ${item.kind === "io" ? "io" : item.phase} ${item.kind === "module" ? "group" : ""}`, tabindex: "0", role: "button", "data-id": item.id,
      "data-kernel": item.kernel ? item.kernel.name : null, "data-module": item.kind === "module" ? item.label : null,
      "aria-expanded": opens ? "false" : null, "aria-label": `${item.label} ${item.detail || ""}`,
      transform: `translate(${at.x - at.width / 2},${at.y - at.height / 2})`,
      onclick: () => { if (!svg.moved) pick(item); },
      ondblclick: () => { if (opens) toggle(item); },
      onkeydown: (e) => {
        if (e.key === "Enter") { e.preventDefault(); pick(item); }
        if (e.key === " ") { e.preventDefault(); if (opens) toggle(item); }
      },
      onpointerenter: (e) => tipFor(item, e), onpointerleave: () => { hideTip(); light(null); },
      onfocus: () => light(item), onblur: () => light(null),
    }, s("rect", { width: at.width, height: at.height, rx: item.kind === "io" ? at.height / 2 : 5 }),
    share > 0.004 && s("rect", { class: "heat", x: 1, y: at.height - 4, width: Math.max(2, (at.width - 2) * share), height: 3 }),
    s("text", { x: at.width / 2, y: 15, "text-anchor": "middle" }, item.text[0]),
    item.text[1] && s("text", { x: at.width / 2, y: 29, "text-anchor": "middle", class: "muted", style: "font-size:10px" }, item.text[1]));
    if (opens && item.kind === "body") {
      element.append(s("rect", { x: at.width - 20, y: 1, width: 19, height: 20, style: "fill:transparent;stroke:none", onclick: (e) => { e.stopPropagation(); toggle(item); } }));
    }
    return element;
  }

  function edge(from, to, at) {
    const [first, ...rest] = at.points;
    let d = `M${first.x},${first.y}`;
    for (let i = 0; i < rest.length - 1; i++) {
      const mx = (rest[i].x + rest[i + 1].x) / 2, my = (rest[i].y + rest[i + 1].y) / 2;
      d += ` Q${rest[i].x},${rest[i].y} ${i === rest.length - 2 ? rest[i + 1].x : mx},${i === rest.length - 2 ? rest[i + 1].y : my}`;
    }
    if (rest.length === 1) d += ` L${rest[0].x},${rest[0].y}`;
    return s("path", { class: "edge", d, "data-from": from.id, "data-to": to.id, "marker-end": `url(#head${p.place})` });
  }

  /** Lines from what is kept to where it is read: of one box, or of all. */
  function drawKept(item) {
    const wanted = kept.filter(([from, to]) => keptShown || from === item || to === item);
    drawing.querySelector(".kept").replaceChildren(...wanted.map(([from, to]) => {
      const a = placed.node(from.id), b = placed.node(to.id);
      const right = b.x >= a.x ? 1 : -1;
      const x1 = a.x + right * a.width / 2, x2 = b.x - right * b.width / 2, bend = Math.max(30, Math.abs(x2 - x1) / 2);
      return s("path", { class: `edge kept ${item ? "lit" : ""}`, "marker-end": `url(#head${p.place})`,
        d: `M${x1},${a.y} C${x1 + right * bend},${a.y} ${x2 - right * bend},${b.y} ${x2},${b.y}` });
    }));
  }

  function light(item) {
    drawKept(item);
    for (const path of drawing.querySelectorAll(".edge:not(.kept)")) {
      path.classList.toggle("lit", item !== null && (path.dataset.from === item.id || path.dataset.to === item.id));
    }
  }

  function tipFor(item, event) {
    light(item);
    const lines = item.node ? [item.detail, item.node.lines.join(", "), item.time ? `${time(item.time)}, ${percent(item.time / p.total)}` : "", item.kind === "body" ? "double click opens it" : ""]
      : item.kind === "module" ? [`${item.leaves} nodes, click opens it`] : [item.detail];
    showTip(event.clientX, event.clientY, item.label, lines);
  }

  function pick(item) {
    if (item.kind === "module") toggle(item);
    else if (item.node) select(p, "node", item.node.number);
    else select(p, "value", item.value);
  }

  function toggle(item) {
    const before = new Set(open);
    if (open.has(item)) open.delete(item); else open.add(item);
    if (!draw(item.id)) { open = before; memory.get(Number(picker.value))[1] = open; draw(item.id); full.hidden = false; }
    memory.get(Number(picker.value))[1] = open;
    hideTip();
  }

  function openAll() {
    open = tree.openLevels(drawable);
    const left = [...tree.all.values()].some((i) => i.kind === "module" && !open.has(i));
    memory.get(Number(picker.value))[1] = open;
    draw();
    fit();
    full.hidden = !left;
    full.textContent = "All modules at once are too many to draw: click one to open it.";
  }

  function closeAll() {
    open = new Set([tree.root]);
    memory.get(Number(picker.value))[1] = open;
    draw();
    fit();
  }

  function apply() { drawing.setAttribute("transform", `translate(${transform.x},${transform.y}) scale(${transform.k})`); }

  /** All of it if letters stay legible, else its head. */
  function fit(whole = false) {
    const { width, height } = canvas.getBoundingClientRect();
    if (!width) return;
    const both = Math.min(width / size.width, height / size.height);
    const k = Math.min(1.2, whole ? both : Math.max(both, Math.min(0.8, width / size.width), 0.45));
    transform = { k, x: (width - size.width * k) / 2, y: Math.max(0, (height - size.height * k) / 2) };
    if (size.width * k > width) transform.x = Math.min(12, (width - size.width * k) / 2);
    apply();
  }

  function zoom(factor, cx, cy) {
    const box = canvas.getBoundingClientRect();
    cx = cx ?? box.width / 2;
    cy = cy ?? box.height / 2;
    const k = Math.max(0.05, Math.min(4, transform.k * factor));
    transform.x = cx - (cx - transform.x) * (k / transform.k);
    transform.y = cy - (cy - transform.y) * (k / transform.k);
    transform.k = k;
    apply();
  }

  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    const box = canvas.getBoundingClientRect();
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY / 200), event.clientX - box.left, event.clientY - box.top);
    else { transform.x -= event.deltaX; transform.y -= event.deltaY; apply(); }
  }, { passive: false });
  svg.addEventListener("pointerdown", (event) => {
    svg.moved = false;
    const start = { x: event.clientX, y: event.clientY, tx: transform.x, ty: transform.y };
    const move = (e) => {
      if (Math.hypot(e.clientX - start.x, e.clientY - start.y) > 4) { svg.moved = true; svg.classList.add("dragging"); }
      transform.x = start.tx + e.clientX - start.x;
      transform.y = start.ty + e.clientY - start.y;
      apply();
    };
    const stop = () => { removeEventListener("pointermove", move); removeEventListener("pointerup", stop); svg.classList.remove("dragging"); };
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop);
  });
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "+" || event.key === "=") zoom(1.25);
    if (event.key === "-") zoom(0.8);
    if (event.key === "0") fit(true);
  });

  function mark() {
    const chosen = selected && selected.program === p ? selected : null;
    for (const element of drawing.querySelectorAll(".node")) {
      const item = tree.all.get(element.dataset.id);
      const same = chosen && item.node && (
        (chosen.kind === "kernel" && item.kernel && item.kernel.name === chosen.key) || (chosen.kind === "node" && item.node.number === chosen.key)
        || (chosen.kind === "line" && item.node.lines.includes(chosen.key)) || (["value", "buffer"].includes(chosen.kind)
          && item.node.outputs.includes(chosen.kind === "buffer" ? p.buffers[chosen.key].value : chosen.key))
        || (chosen.kind === "step" && item.kernel && item.kernel.name === p.steps[chosen.key].name));
      element.classList.toggle("selected", Boolean(same));
    }
  }
  document.addEventListener("selected", mark);

  /** Open what is around a node and bring it to the middle. */
  function show(number) {
    const stages = p.stages.map((stage, i) => [i, p.flat(stage.nodes).includes(number)]).filter(([, has]) => has);
    if (!stages.length) return;
    const here = stages.find(([i]) => i === Number(picker.value));
    if (!here) stageTo(stages[stages.length - 1][0]);
    const item = tree.leafOf.get(number);
    if (!item) return;
    for (let at = item.parent; at; at = at.parent) open.add(at);
    draw();
    const element = [...drawing.querySelectorAll(".node")].find((e) => e.dataset.id === item.id);
    if (!element) return;
    element.classList.add("selected");
    const [, x, y] = /translate\(([-\d.]+),([-\d.]+)\)/.exec(element.getAttribute("transform")).map(Number);
    const box = canvas.getBoundingClientRect();
    transform.k = Math.max(transform.k, 0.8);
    transform.x = box.width / 2 - (x + 60) * transform.k;
    transform.y = box.height / 2 - y * transform.k;
    apply();
  }

  const holder = h("span");
  quick = holder;
  const button = (text, label, act) => h("button", { onclick: act, title: label, "aria-label": label }, text);
  const view = h("section", { class: "panel" }, h("div", { class: "bar" }, holder, picker,
    button("−", "Zoom out", () => zoom(0.8)), button("+", "Zoom in", () => zoom(1.25)), button("Fit", "Show all of it", () => fit(true)),
    button("Open all", "Open every module", openAll), button("Close all", "Close every module", closeAll),
    h("label", {}, h("input", { type: "checkbox", onchange: (e) => { keptShown = e.target.checked; drawKept(null); } }), " kept values"),
    h("span", { class: "space" }), legend()), canvas,
  h("p", { class: "muted small" }, "Dashed: values that the forward pass keeps for the backward one, shown of the box that you point at. Click a module to open it, a box to see what it is and why; double click a kernel or loop to see inside. Drag to move, Ctrl and the wheel to zoom. The bar below a kernel is its share of the time."));
  graphViews.set(p, { stageTo, show, view });
  requestAnimationFrame(() => stageTo(p.stages.length - 1));
  return view;
}
