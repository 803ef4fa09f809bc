// Drawings over steps and time: the map of memory, the streams, the roofline.

/** Units across a drawing: beside another one it is half as wide, and its letters stay as large. */
const wide = () => (programs.length > 1 ? 620 : 1080);

/** Round values of an axis, at most so many. */
function ticks(most, number, base = 10) {
  if (!(most > 0)) return [0];
  const rough = most / number;
  const power = base ** Math.floor(Math.log(rough) / Math.log(base));
  const step = [1, 2, 5, 10].map((m) => m * power).find((x) => x >= rough) || 10 * power;
  const found = [];
  for (let x = 0; x <= most * 1.0001; x += step) found.push(x);
  return found;
}

function memoryMap(p) {
  if (!p.buffers.length) return h("p", { class: "panel muted" }, "This program needs no work memory.");
  const left = 66, top = 96, height = 330, width = wide() - left - 12;
  const steps = p.steps.length;
  const roof = Math.max(p.summary.peak, 1);
  const x = (step) => left + (step / steps) * width;
  const y = (offset) => top + height - (offset / roof) * height;
  const most = Math.max(...p.live, 1);
  const liveY = (n) => 74 - (n / most) * 56;
  const marks = [];
  // A value that is written over another takes its place in the middle of the step that does it.
  const held = new Map(p.buffers.map((b) => [b.value, b]));
  const begin = new Map(), finish = new Map();
  for (const b of p.buffers) {
    const old = held.get(b.over);
    if (!old) continue;
    const middle = (b.first + old.last + 1) / 2;
    begin.set(b, middle);
    finish.set(old, middle);
  }
  const shapes = [...p.buffers].sort((a, b) => (b.last - b.first) * (b.stop - b.start) - (a.last - a.first) * (a.stop - a.start)).map((b) => {
    const from = x(begin.get(b) ?? b.first);
    const until = x(finish.get(b) ?? b.last + 1);
    const element = s("rect", {
      class: `mark ${b.phase}`, "data-buffer": b.value, x: from.toFixed(2), y: y(b.stop).toFixed(2),
      width: Math.max(1, until - from).toFixed(2), height: Math.max(1, y(b.start) - y(b.stop)).toFixed(2),
    });
    const last = p.steps[b.last];
    marks.push({
      element, title: b.value, first: b.first, start: b.start, choose: () => select(p, "buffer", b.number),
      lines: [`${b.type || "value"}, ${bytes(b.stop - b.start)}`, `made by ${b.producer}, step ${b.first}`,
        `last used by ${last.name}, step ${b.last}`, b.over && `written over ${b.over}`, b.lines.join(", ")],
    });
    const labelled = until - from > 6.2 * Math.min(b.value.length, 12) && y(b.start) - y(b.stop) > 15;
    const room = Math.floor((until - from - 6) / 6);
    return [element, labelled ? s("text", { class: "inbar", x: from + 4, y: y(b.stop) + 12 }, short(b.value, Math.max(3, room))) : null];
  });
  const peakX = x(p.peakStep + 0.5);
  const liveLine = p.live.map((n, i) => `${x(i).toFixed(1)},${liveY(n).toFixed(1)} ${x(i + 1).toFixed(1)},${liveY(n).toFixed(1)}`).join(" ");
  const svg = s("svg", { class: "chart memory", viewBox: `0 0 ${wide()} ${top + height + 34}` },
    s("text", { x: left, y: 12, class: "muted" }, "bytes alive at each step"),
    s("polygon", { class: "area", points: `${left},74 ${liveLine} ${left + width},74` }),
    s("line", { class: "rule", x1: left, x2: left + width, y1: liveY(p.summary.bound), y2: liveY(p.summary.bound) }),
    s("text", { x: left - 6, y: liveY(most) + 4, "text-anchor": "end", class: "muted" }, bytes(most)),
    s("text", { x: left - 6, y: 77, "text-anchor": "end", class: "muted" }, "0"),
    ticks(roof, 6).map((tick) => [s("line", { class: "axis", x1: left, x2: left + width, y1: y(tick), y2: y(tick) }),
      s("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end", class: "muted" }, tick ? bytes(tick) : "0")]),
    shapes,
    s("line", { class: "rule", x1: peakX, x2: peakX, y1: 16, y2: top + height }),
    s("text", { x: peakX + (peakX > left + width - 130 ? -5 : 5), y: 90, "text-anchor": peakX > left + width - 130 ? "end" : "start", class: "muted" }, `peak, step ${p.peakStep}`),
    ticks(steps - 1, 10).map((tick) => s("text", { x: x(tick + 0.5), y: top + height + 15, "text-anchor": "middle", class: "muted" }, Math.round(tick))),
    s("text", { x: left + width / 2, y: top + height + 31, "text-anchor": "middle", class: "muted" }, "step of the plan"));
  marks.sort((a, b) => a.first - b.first || a.start - b.start);
  operable(svg, marks, "Map of the work memory: steps across, bytes upwards");
  return h("section", { class: "panel" }, h("div", { class: "bar" },
    h("span", {}, h("strong", {}, bytes(p.summary.peak)), ` of work memory; the least that one stream needs is ${bytes(p.summary.bound)}.`),
    h("span", { class: "space" }), legend()), svg,
  h("p", { class: "muted small" }, `Each box is a value: as wide as it lives, as high as it is large, where it lies. State, ${bytes(p.summary.state_bytes)}, lies apart and stays between calls.`));
}

function timeline(p) {
  if (!p.modelled.length) return h("p", { class: "panel muted" }, "There is no plan: the reference device plays the graph node by node.");
  const left = 96, width = wide() - left - 12;
  const tracks = [];
  const critical = new Set(p.critical);
  const streams = Math.max(p.summary.streams, 1);
  for (let n = 0; n < streams; n++) tracks.push({ name: `stream ${n}`, spans: p.modelled.filter((x) => x.stream === n && p.steps[x.step].inside < 0), modelled: true });
  if (p.timeline.length) {
    for (let n = 0; n < streams; n++) tracks.push({ name: `ran, stream ${n}`, spans: p.timeline.filter((x) => x.stream === n && p.steps[x.step].inside < 0) });
  }
  const rowHeight = tracks.length > 4 ? 30 : 44;
  const end = Math.max(...tracks.flatMap((t) => t.spans.map((x) => x.stop)), 1e-9);
  let from = 0, until = end;
  const holder = h("div");
  const readout = h("span", { class: "muted" });
  function draw() {
    const x = (t) => left + ((t - from) / (until - from)) * width;
    const marks = [];
    const rows = [];
    let at = 26;
    const centre = new Map();
    tracks.forEach((track, i) => {
      if (i === streams && p.timeline.length) at += 10;
      const y = at;
      rows.push(s("text", { x: left - 8, y: y + rowHeight / 2 + 2, "text-anchor": "end", class: "muted" }, track.name),
        s("line", { class: "axis", x1: left, x2: left + width, y1: y + rowHeight - 2, y2: y + rowHeight - 2 }));
      for (const span of track.spans) {
        if (track.modelled) centre.set(span.step, { y: y + rowHeight / 2 - 3, span });
        if (span.stop < from || span.start > until) continue;
        const step = p.steps[span.step];
        const kernel = p.kernelOf.get(step.name);
        const a = Math.max(left, x(span.start)), b = Math.min(left + width, x(span.stop));
        const phase = kernel ? kernel.phase : loopPhase(p, step);
        const element = s("rect", {
          class: `mark ${phase}${track.modelled && critical.has(span.step) && streams > 1 ? " critical" : ""}`, "data-step": span.step,
          x: a.toFixed(2), y, width: Math.max(0.7, b - a).toFixed(2), height: rowHeight - 6, rx: b - a > 6 ? 2 : 0,
        });
        marks.push({
          element, title: step.kind === "loop" ? `loop ${step.name}, ${count(step.count)} iterations` : step.name, choose: () => select(p, "step", span.step),
          lines: () => [`${time(span.stop - span.start)}, from ${time(span.start)} to ${time(span.stop)}`,
            track.modelled ? (critical.has(span.step) ? "on the critical path" : `${time(slack(span))} of slack`) : "as it ran",
            kernel && kernel.lines.join(", ")],
        });
        rows.push(element);
        if (b - a > 42) rows.push(s("text", { class: "inbar", x: a + 4, y: y + rowHeight / 2 + 1 }, short(step.name, Math.floor((b - a - 6) / 6))));
      }
      at += rowHeight;
    });
    const arrows = events(p).filter((e) => centre.has(e.from) && centre.has(e.to)).map((e) => {
      const a = centre.get(e.from), b = centre.get(e.to);
      if (a.span.stop < from || b.span.start > until) return null;
      const x1 = x(a.span.stop), x2 = x(b.span.start);
      const element = s("path", { class: "event", d: `M${x1},${a.y} C${x1 + 8},${a.y} ${x2 - 8},${b.y} ${x2},${b.y}`, "marker-end": "url(#tipoff)" });
      const hit = s("circle", { class: "mark other", cx: x1, cy: a.y, r: 4 });
      marks.push({ element: hit, title: `event ${e.name}`, choose: () => select(p, "step", e.wait), lines: [`${p.steps[e.to].name} waits for ${p.steps[e.from].name}`] });
      return [element, hit];
    });
    const svg = s("svg", { class: "chart timeline", viewBox: `0 0 ${wide()} ${at + 26}` },
      s("defs", {}, s("marker", { id: "tipoff", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" }, s("path", { d: "M0,0 8,4 0,8z", class: "tipoff" }))),
      ticks(until - from, 8).map((tick) => [s("line", { class: "axis", x1: x(from + tick), x2: x(from + tick), y1: 18, y2: at }),
        s("text", { x: x(from + tick), y: at + 16, "text-anchor": "middle", class: "muted" }, time(from + tick))]),
      rows, arrows);
    operable(svg, marks, "Streams over time");
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const box = svg.getBoundingClientRect();
      const share = Math.min(1, Math.max(0, ((event.clientX - box.left) * (wide() / box.width) - left) / width));
      zoom(event.deltaY > 0 ? 1.3 : 1 / 1.3, share);
    }, { passive: false });
    svg.addEventListener("keydown", (event) => {
      if (event.key === "+" || event.key === "=") zoom(1 / 1.5, 0.5);
      if (event.key === "-") zoom(1.5, 0.5);
    });
    holder.replaceChildren(svg);
    readout.textContent = from > 0 || until < end ? `${time(from)} to ${time(until)} of ${time(end)}` : `${time(end)} a call`;
  }
  const slack = (span) => {
    const next = p.modelled.filter((o) => o.cause === span.step).reduce((m, o) => Math.min(m, o.start), Infinity);
    const bound = Number.isFinite(next) ? next : Math.max(...p.modelled.map((o) => o.stop));
    return Math.max(0, bound - span.stop);
  };
  function zoom(factor, share) {
    const around = from + (until - from) * share;
    const size = Math.min(end, (until - from) * factor);
    from = Math.max(0, Math.min(end - size, around - size * share));
    until = from + size;
    draw();
  }
  function shift(part) {
    const by = Math.max(-from, Math.min(end - until, (until - from) * part));
    from += by;
    until += by;
    draw();
  }
  draw();
  const button = (text, label, act) => h("button", { onclick: act, "aria-label": label, title: label }, text);
  const onPath = p.critical.filter((i) => p.steps[i].kind !== "copy").map((i) => [p.modelled.find((x) => x.step === i), p.steps[i]])
    .sort((a, b) => (b[0].stop - b[0].start) - (a[0].stop - a[0].start)).slice(0, 8);
  const longest = h("section", { class: "panel" }, h("h2", {}, `Longest on the critical path of ${p.critical.length} steps`),
    ranked(onPath.map(([span, step]) => ({
      name: link(step.name, () => select(p, "step", step.number)), figure: time(span.stop - span.start), of: percent((span.stop - span.start) / end),
      share: (span.stop - span.start) / Math.max(onPath[0][0].stop - onPath[0][0].start, 1e-9),
      phase: p.kernelOf.has(step.name) ? p.kernelOf.get(step.name).phase : loopPhase(p, step), line: (p.kernelOf.get(step.name) || { lines: [] }).lines[0],
    })), p));
  return h("div", {}, h("section", { class: "panel" }, h("div", { class: "bar" },
    button("−", "Zoom out", () => zoom(2, 0.5)), button("+", "Zoom in", () => zoom(0.5, 0.5)),
    button("←", "Earlier", () => shift(-0.5)), button("→", "Later", () => shift(0.5)),
    button("All", "The whole call", () => { from = 0; until = end; draw(); }), readout,
    h("span", { class: "space" }), legend(streams > 1)), holder,
  h("p", { class: "muted small" }, p.measured
    ? "The upper rows let each kernel begin as soon as its stream and events allow, with the measured time of each alone; the lower rows are one call as it ran."
    : "Each kernel begins as soon as its stream and events allow, and takes its predicted time; nothing was measured for this report.")), longest);
}

function loopPhase(p, loop) {
  const inner = p.steps.find((x) => x.inside === loop.number && x.kind === "launch");
  return inner ? p.kernelOf.get(inner.name).phase : "other";
}

/** The waits of the plan: {name, wait, from: what was before the mark, to: what comes behind}. */
function events(p) {
  const last = new Map(), marked = new Map(), pending = new Map(), found = [];
  for (const step of p.steps) {
    if (step.inside >= 0) continue;
    if (step.kind === "record") marked.set(step.name, last.get(step.stream));
    else if (step.kind === "wait") push(pending, step.stream, [step.name, step.number]);
    else {
      for (const [name, wait] of pending.get(step.stream) || []) {
        if (marked.get(name) !== undefined) found.push({ name, wait, from: marked.get(name), to: step.number });
      }
      pending.delete(step.stream);
      last.set(step.stream, step.number);
    }
  }
  return found;
}

function roofline(p) {
  const points = p.kernels.filter((k) => k.flops > 0 && k.bytes > 0 && k.each > 0);
  if (!points.length || !p.limits) return h("p", { class: "muted" }, "No kernel computes enough to be placed.");
  const left = 74, top = 14, width = wide() - left - 20, height = 270;
  const log = Math.log10;
  const at = (k) => [k.flops / k.bytes, (1e6 * k.flops) / k.each];
  const xs = points.map((k) => at(k)[0]), ys = points.map((k) => at(k)[1]);
  const ridge = p.limits.flops / p.limits.bytes;
  const low = Math.floor(log(Math.min(...xs, ridge / 10))), high = Math.ceil(log(Math.max(...xs, ridge * 10)));
  const bottom = Math.floor(log(Math.min(...ys, p.limits.flops / 1e3))), roofTop = Math.ceil(log(Math.max(...ys, p.limits.flops)) + 0.05);
  const x = (v) => left + ((log(v) - low) / (high - low)) * width;
  const y = (v) => top + height - ((log(v) - bottom) / (roofTop - bottom)) * height;
  const decades = (a, b) => Array.from({ length: b - a + 1 }, (_, i) => a + i);
  const start = 10 ** low;
  const clip = Math.max(start, (10 ** bottom) / p.limits.bytes);
  const marks = [];
  const most = Math.max(...points.map((k) => k.time));
  const order = [...points].sort((a, b) => b.time - a.time);
  const dots = order.map((k) => {
    const [i, f] = at(k);
    const element = s("circle", { class: `mark ${k.phase}`, "data-kernel": k.name, cx: x(i), cy: y(f), r: 3.5 + 9 * Math.sqrt(k.time / most) });
    const reach = Math.min(p.limits.flops, i * p.limits.bytes);
    marks.push({
      element, title: k.name, choose: () => select(p, "kernel", k.name),
      lines: [`${time(k.time)} a call, ${percent(p.share(k))}`, `${rate(f, "FLOP")} at ${i.toFixed(2)} FLOP a byte`,
        `${percent(f / reach)} of what the roof allows there`, k.lines.join(", ")],
    });
    return element;
  });
  const boxes = order.map((k) => {
    const [i, f] = at(k);
    const radius = 3.5 + 9 * Math.sqrt(k.time / most);
    return [x(i) - radius, y(f) + 4, 2 * radius, k.name];
  });
  const labels = order.slice(0, 7).map((k) => {
    const [i, f] = at(k);
    const radius = 3.5 + 9 * Math.sqrt(k.time / most);
    const text = short(k.name, 28), wide = 6.1 * text.length;
    const right = x(i) + radius + 4 + wide < left + width;
    const lx = right ? x(i) + radius + 4 : x(i) - radius - 4 - wide;
    const ly = [4, -9, 17, -22, 30].map((d) => y(f) + d).find((v) => boxes.every((b) => b[3] === k.name || lx > b[0] + b[2] || b[0] > lx + wide || Math.abs(b[1] - v) > 12));
    if (ly === undefined) return null;
    boxes.push([lx, ly, wide]);
    return s("text", { x: lx, y: ly, "pointer-events": "none" }, text);
  });
  const svg = s("svg", { class: "chart roofline", viewBox: `0 0 ${wide()} ${top + height + 40}` },
    decades(low, high).map((d) => [s("line", { class: "axis", x1: x(10 ** d), x2: x(10 ** d), y1: top, y2: top + height }),
      s("text", { x: x(10 ** d), y: top + height + 15, "text-anchor": "middle", class: "muted" }, d < 0 ? (10 ** d).toFixed(-d) : count(10 ** d))]),
    decades(bottom, roofTop).map((d) => [s("line", { class: "axis", x1: left, x2: left + width, y1: y(10 ** d), y2: y(10 ** d) }),
      s("text", { x: left - 6, y: y(10 ** d) + 4, "text-anchor": "end", class: "muted" }, scaled(10 ** d, ["", "k", "M", "G", "T", "P"]).replace(/\.00? /, " "))]),
    s("polyline", { class: "roof", points: `${x(clip)},${y(clip * p.limits.bytes)} ${x(ridge)},${y(p.limits.flops)} ${left + width},${y(p.limits.flops)}` }),
    s("text", { x: left + width - 4, y: y(p.limits.flops) - 5, "text-anchor": "end", class: "muted" }, rate(p.limits.flops, "FLOP")),
    s("text", { x: x(clip) + 8, y: y(clip * p.limits.bytes) - 12, class: "muted" }, rate(p.limits.bytes, "B")),
    dots, labels,
    s("text", { x: left + width / 2, y: top + height + 33, "text-anchor": "middle", class: "muted" }, "floating-point operations a byte"),
    s("text", { x: 12, y: top + height / 2, class: "muted", "text-anchor": "middle", transform: `rotate(-90 12 ${top + height / 2})` }, "FLOP a second"));
  operable(svg, marks, "Roofline: operations a byte across, operations a second upwards");
  return h("div", {}, h("div", { class: "bar" }, h("span", { class: "muted" }, `The roof: ${p.limits.title}. Kernels: ${p.measured ? "measured" : "predicted"}; the larger, the more time.`),
    h("span", { class: "space" }), legend()), svg);
}
