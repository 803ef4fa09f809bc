// Views that are text: the overview, kernels, the user's source, passes, and two programs compared.

const PHASES = ["forward", "backward", "update"];

function overview(p) {
  const parts = PHASES.map((phase) => [phase, p.kernels.filter((k) => k.phase === phase).reduce((a, k) => a + k.time, 0)])
    .filter(([, t]) => t > 0);
  const top = [...p.kernels].sort((a, b) => b.time - a.time).slice(0, 8);
  const held = p.buffers.filter((b) => b.first <= p.peakStep && p.peakStep <= b.last)
    .sort((a, b) => (b.stop - b.start) - (a.stop - a.start));
  const peak = p.steps[p.peakStep];
  const where = p.measured ? "Where the time goes" : "Where the time goes, as predicted";
  return h("div", {},
    h("div", { class: "columns" },
      p.kernels.length > 0 && h("section", { class: "panel" },
        h("h2", {}, where),
        h("div", { class: "stacked", role: "img", "aria-label": parts.map(([n, t]) => `${n} ${percent(t / p.total)}`).join(", ") },
          parts.map(([n, t]) => h("span", { class: `fill-${n}`, style: `flex:${t}`, title: `${n}: ${time(t)}` }))),
        h("div", { class: "legend", style: "margin-top:.4rem" }, parts.map(([n, t]) => h("span", {},
          h("i", { class: n }), `${n} ${time(t)}, ${percent(t / p.total)}`))),
        ranked(top.map((k) => ({
          name: kernelLink(p, k.name), figure: time(k.time), of: percent(p.share(k)),
          share: k.time / top[0].time, phase: k.phase, line: k.lines[0],
        })), p)),
      held.length > 0 && h("section", { class: "panel" },
        h("h2", {}, "What holds the peak"),
        h("p", { class: "muted" }, `${bytes(p.summary.peak)} of work memory, reached at `,
          stepLink(p, p.peakStep), peak.kind === "launch" ? [", ", kernelLink(p, peak.name)] : "",
          `; ${held.length} values are alive there.`),
        ranked(held.slice(0, 8).map((b) => ({
          name: link(b.value, () => select(p, "buffer", b.number)), figure: bytes(b.stop - b.start),
          share: (b.stop - b.start) / (held[0].stop - held[0].start), phase: b.phase, line: b.lines[0], type: b.type,
        })), p),
        p.advice.length > 0 && [h("h3", {}, "What would lower it"), h("ul", { class: "notes" }, p.advice.map((a) => h("li", {}, a)))])),
    lineTable(p),
    p.notes.length > 0 && h("section", { class: "panel" }, h("h2", {}, "What was decided"),
      h("ul", { class: "notes" }, p.notes.map((note) => h("li", {}, note)))),
    p.summary.verified && h("section", { class: "panel" }, h("h2", {}, "What is proved"),
      h("p", {}, `${p.summary.verified}.`)),
  );
}

function ranked(rows, p) {
  return h("ol", { class: "ranked" }, rows.map((row) => h("li", {},
    h("div", { class: "head" },
      h("span", {}, row.name, row.type ? h("span", { class: "muted small" }, `  ${row.type}`) : null),
      row.line ? h("span", { class: "small" }, lineLink(p, row.line)) : null,
      h("span", { class: "num figure" }, row.figure), row.of ? h("span", { class: "num of" }, row.of) : null),
    h("div", { class: "track" }, h("span", { class: `fill-${row.phase}`, style: `width:${100 * row.share}%` })))));
}

/** The lines of the user that take the most time. */
function lineTable(p) {
  const lines = [...p.lineOf.values()].filter((l) => l.time > 0).sort((a, b) => b.time - a.time).slice(0, 8);
  if (!lines.length) return null;
  return h("section", { class: "panel" }, h("h2", {}, "Your lines"), h("table", {},
    h("thead", {}, h("tr", {}, h("th", {}, "line"), h("th", {}, ""), h("th", { class: "num" }, "kernels"), h("th", { class: "num" }, "time"), h("th", { class: "num" }, "share"))),
    h("tbody", {}, lines.map((l) => h("tr", {},
      h("td", {}, lineLink(p, l.line)), h("td", {}, h("code", {}, short(p.code(l.line), 90))),
      h("td", { class: "num" }, l.kernels.length), h("td", { class: "num" }, time(l.time)),
      h("td", { class: "num" }, percent(l.time / p.total)))))));
}

const COLUMNS = [
  ["kernel", (k) => k.name, (k, p) => kernelLink(p, k.name), "name"],
  ["line", (k) => k.lines[0] || "", (k, p) => (k.lines[0] ? lineLink(p, k.lines[0]) : "")],
  ["part", (k) => k.phase, (k) => phaseChip(k.phase)],
  ["template", (k) => k.template, (k) => k.template],
  ["launches", (k) => k.launches, (k) => count(k.launches), "num"],
  ["time", (k) => k.time, (k, p) => [time(k.time), h("span", { class: `share fill-${k.phase}`, style: `width:${100 * Math.max(0.01, p.share(k))}%` })], "num"],
  ["share", (k) => k.time, (k, p) => percent(p.share(k)), "num"],
  ["each", (k) => k.each, (k) => time(k.each), "num"],
  ["predicted", (k) => k.launches * k.predicted, (k) => time(k.launches * k.predicted), "num"],
  ["bytes", (k) => k.bytes, (k) => bytes(k.bytes), "num"],
  ["GB/s", (k) => k.bytes / k.each, (k) => (k.bytes / k.each / 1e3).toFixed(1), "num"],
  ["GFLOP/s", (k) => k.flops / k.each, (k) => (k.flops / k.each / 1e3).toFixed(1), "num"],
];

function kernels(p) {
  let column = 5;
  let down = true;
  const body = h("tbody");
  const heads = COLUMNS.map(([name, , , kind], i) => h("th", { class: kind === "num" ? "num" : null },
    h("button", { onclick: () => { down = column === i ? !down : kind === "num"; column = i; draw(); } }, name)));
  function draw() {
    const key = COLUMNS[column][1];
    const order = [...p.kernels].sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (down ? -1 : 1));
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== column ? "none" : down ? "descending" : "ascending"));
    body.replaceChildren(...order.map((k) => h("tr", { "data-kernel": k.name },
      COLUMNS.map(([, , cell, kind]) => h("td", { class: kind }, cell(k, p))))));
  }
  draw();
  return h("div", {}, h("section", { class: "panel" }, h("h2", {}, "Roofline"), roofline(p)),
    h("section", { class: "panel" }, h("div", { class: "scroll" }, h("table", { class: "kernels" }, h("thead", {}, h("tr", {}, heads)), body))));
}

function source(p) {
  const names = Object.keys(p.files);
  const place = h("div");
  const most = Math.max(...[...p.lineOf.values()].map((l) => l.time), 1e-9);
  function draw(name) {
    place.replaceChildren(h("div", { class: "code" }, p.files[name].replace(/\n$/, "").split("\n").map((text, i) => {
      const line = `${name}:${i + 1}`;
      const found = p.lineOf.get(line);
      const phase = found && found.kernels.length ? found.kernels[0].phase : "forward";
      const gutter = h("span", { class: "gutter" },
        h("span", { class: "track" }, found && found.time > 0 && h("span", { class: `fill-${phase}`, style: `width:${100 * found.time / most}%` })),
        h("span", {}, found && found.time > 0 ? time(found.time) : ""), h("span", {}, String(i + 1).padStart(4)));
      if (!found) return h("div", { class: "row" }, gutter, text || " ");
      return h("button", { class: "row", "data-line": line, onclick: () => select(p, "line", line) }, gutter, text);
    })));
  }
  if (!names.length) return h("p", { class: "panel muted" }, "The user's files were not found where the report was made.");
  const busiest = names.map((n) => [[...p.lineOf.values()].filter((l) => file(l.line) === n).reduce((a, l) => a + l.time, 0), n])
    .sort((a, b) => b[0] - a[0])[0][1];
  draw(busiest);
  return h("section", { class: "panel" }, h("div", { class: "bar" },
    h("label", {}, "File ", h("select", { onchange: (e) => draw(e.target.value) },
      names.map((n) => h("option", { value: n, selected: n === busiest }, n)))),
    h("span", { class: "muted" }, "The time of a line is that of the kernels that begin with it, backward ones too. Choose a line to see them.")), place);
}

function passes(p) {
  const rows = p.stages.map((stage, i) => {
    const now = new Set(p.flat(stage.nodes));
    const before = i ? new Set(p.flat(p.stages[i - 1].nodes)) : now;
    return { stage, count: now.size, added: [...now].filter((n) => !before.has(n)), gone: [...before].filter((n) => !now.has(n)) };
  });
  const place = h("div");
  const buttons = rows.map((row, i) => h("button", { onclick: () => draw(i) },
    h("span", { class: row.added.length + row.gone.length || !i ? null : "same" }, row.stage.name),
    row.gone.length ? h("span", { class: "minus" }, `−${row.gone.length}`) : null,
    row.added.length ? h("span", { class: "plus" }, `+${row.added.length}`) : null,
    h("span", { class: "muted" }, count(row.count))));
  function draw(i, most = 200) {
    const { stage, added, gone } = rows[i];
    buttons.forEach((b, j) => b.setAttribute("aria-current", String(i === j)));
    const byLine = new Map();
    const add = (kind) => (n) => push(byLine, p.nodes[n].lines[0] || "the update, and what has no line", [kind, p.nodes[n]]);
    gone.forEach(add("gone"));
    added.forEach(add("add"));
    let left = most;
    const parts = [];
    for (const [line, changes] of byLine) {
      if (left <= 0) break;
      parts.push(h("div", { class: "place" }, p.lineOf.has(line) ? lineLink(p, line) : line, " ", h("code", {}, short(p.code(line), 90))));
      for (const [kind, node] of changes.slice(0, left)) {
        parts.push(h("div", { class: kind }, link(node.text, () => select(p, "node", node.number))));
      }
      left -= changes.length;
    }
    place.replaceChildren(...[
      h("div", { class: "bar" }, h("h2", { style: "margin:0" }, stage.name),
        h("span", { class: "muted" }, i ? `${count(added.length)} nodes new or changed, ${count(gone.length)} gone or changed` : "as the function was traced"),
        h("span", { class: "space" }), h("button", { onclick: () => openGraph(p, i) }, "Graph after it")),
      i && !added.length && !gone.length ? h("p", { class: "muted" }, "This pass changed nothing here.") : null,
      h("div", { class: "diff" }, parts),
      left < 0 ? h("button", { onclick: () => draw(i, most * 4) }, `Show more than ${most} lines`) : null,
    ].filter(Boolean));
  }
  const changed = rows.map((r, i) => [r.added.length, i]).filter(([n, i]) => n && i);
  draw(changed.length ? changed[changed.length - 1][1] : 0);
  return h("div", { class: "passes" }, h("section", { class: "panel" }, h("h2", {}, "Passes, and nodes after each"),
    h("ol", {}, buttons.map((b) => h("li", {}, b)))), h("section", { class: "panel" }, place));
}

/** Two programs: what differs in all, and by the user's line. */
function compare(a, b) {
  const ratio = (x, y) => (x > 0 && y > 0 ? y / x : null);
  const row = (name, x, y, show) => {
    const r = ratio(x, y);
    return h("tr", {}, h("td", {}, name), h("td", { class: "num" }, x === null ? "" : show(x)), h("td", { class: "num" }, y === null ? "" : show(y)),
      h("td", { class: `num ${r === null || Math.abs(r - 1) < 0.02 ? "" : r < 1 ? "better" : "worse"}` }, r === null ? "" : `${r.toFixed(2)}×`));
  };
  const keys = [["kernels", "kernels", count], ["launches", "launches", count], ["bytes moved", "bytes", bytes], ["arithmetic", "flops", (n) => scaled(n, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"])],
    ["peak of work memory", "peak", bytes], ["state", "state_bytes", bytes], ["streams", "streams", count], ["events", "events", count],
    ["time, predicted", "predicted", time], ["time, measured", "measured", time]];
  const head = (first) => h("thead", {}, h("tr", {}, h("th", {}, first), h("th", { class: "num" }, a.title), h("th", { class: "num" }, b.title), h("th", { class: "num" }, "ratio")));
  const modules = (p) => p.kernels.reduce((m, k) => m.set(`${k.module || k.lines[0] || "parameters"} · ${k.phase}`, (m.get(`${k.module || k.lines[0] || "parameters"} · ${k.phase}`) || 0) + k.time), new Map());
  const [ma, mb] = [modules(a), modules(b)];
  const names = [...new Set([...ma.keys(), ...mb.keys()])].sort((x, y) => Math.max(mb.get(y) || 0, ma.get(y) || 0) - Math.max(mb.get(x) || 0, ma.get(x) || 0));
  const changed = names.map((n) => [n, ma.get(n) ?? null, mb.get(n) ?? null]);
  return h("div", { class: "columns" },
    h("section", { class: "panel" }, h("h2", {}, "In all"), h("table", {}, head(""), h("tbody", {}, keys.map(([n, k, f]) => row(n, a.summary[k], b.summary[k], f))))),
    h("section", { class: "panel" }, h("h2", {}, "Time by module"), h("div", { class: "scroll" }, h("table", {}, head("module"), h("tbody", {}, changed.map(([n, x, y]) => row(n, x, y, time)))))));
}
