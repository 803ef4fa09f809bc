// The panel of details: what a kernel, node, value, event or line is, and why.

const inspector = document.getElementById("inspector");
let selected = null;

/** Show the details of one thing: `kind` is kernel, node, buffer, value, step or line. */
function select(program, kind, key) {
  selected = { program, kind, key };
  const content = DETAILS[kind](program, key);
  inspector.replaceChildren(
    h("button", { class: "close", "aria-label": "Close details", onclick: closeInspector }, "×"),
    ...content.flat(Infinity).filter(Boolean),
  );
  inspector.hidden = false;
  inspector.scrollTop = 0;
  document.querySelector("main").classList.add("inspecting");
  hideTip();
  document.dispatchEvent(new CustomEvent("selected", { detail: selected }));
}

function closeInspector() {
  selected = null;
  inspector.hidden = true;
  document.querySelector("main").classList.remove("inspecting");
  document.dispatchEvent(new CustomEvent("selected", { detail: null }));
}

const link = (text, choose, title) => h("button", { class: "link", type: "button", title, onclick: choose }, text);
const kernelLink = (p, name) => (p.kernelOf.has(name)
  ? link(name, () => select(p, "kernel", name)) : h("span", {}, name));
const valueLink = (p, name) => h("span", {}, link(name, () => select(p, "value", name)),
  h("span", { class: "muted small" }, ` ${p.types[name] || ""}`));
const lineLink = (p, line) => link(line, () => select(p, "line", line), p.code(line));
const stepLink = (p, i) => link(`step ${i}`, () => select(p, "step", i));

const phaseChip = (phase) => h("span", { class: `chip ${phase}` }, phase);
const facts = (...pairs) => h("dl", { class: "facts" }, pairs.filter((pair) => pair && pair[1] !== null && pair[1] !== "")
  .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
const list = (items) => h("ul", {}, items.map((item) => h("li", {}, item)));
const titled = (title, content) => (content && content.length !== 0 && content.childElementCount !== 0 ? [h("h3", {}, title), content] : []);
const TOPICS = {
  what: "What", fused: "Fused", apart: "Apart from", tile: "Tile", memory: "Memory", stream: "Stream", event: "Event", gone: "Gone",
};
/** Reasons, each with what it is about set off. */
const why = (lines) => list(lines.map((line) => {
  const topic = TOPICS[line.split(" ", 1)[0]];
  return topic ? [h("strong", {}, topic), " ", line.slice(line.indexOf(" ") + 1)] : line;
}));
const cut = (items, most, render) => {
  const shown = items.slice(0, most).map(render);
  if (items.length > most) shown.push(h("span", { class: "muted" }, `and ${items.length - most} more`));
  return shown;
};

/** The user's lines with the text around the first. */
function places(p, lines) {
  if (!lines.length) return [];
  return titled(lines.length > 1 ? "Lines" : "Line", [
    h("div", {}, lines.map((line, i) => [i ? ", " : "", lineLink(p, line)])),
    snippet(p, lines[0]),
  ]);
}

function snippet(p, line, around = 2) {
  const text = p.files[file(line)];
  if (text === undefined) return null;
  const rows = text.split("\n");
  const here = number(line) - 1;
  const from = Math.max(0, here - around);
  return h("pre", { class: "snippet" }, rows.slice(from, here + around + 1).map((row, i) => h(
    "span", { class: from + i === here ? "here" : "there" }, `${String(from + i + 1).padStart(4)}  ${row}\n`)));
}

const KEYWORDS = "alignas|auto|bool|case|const|constexpr|double|else|extern|float|for|if|int|int32_t|int64_t|"
  + "inline|namespace|return|static|struct|switch|template|true|false|typename|uint32_t|unsigned|using|void|while|"
  + "__global__|__device__|__shared__|__restrict__|operator|public";
const TOKEN = new RegExp(`(//[^\\n]*)|\\b(${KEYWORDS})\\b`, "g");

/** Generated code, with comments and words of the language set off. */
function code(text) {
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    parts.push(text.slice(end, match.index), h("span", { class: match[1] ? "comment" : "word" }, match[0]));
    end = match.index + match[0].length;
  }
  return h("pre", { tabindex: "0" }, parts, text.slice(end));
}

const DETAILS = {
  kernel(p, name) {
    const k = p.kernelOf.get(name);
    const steps = p.stepsOf.get(name) || [];
    const step = p.steps[steps[0]];
    const node = p.nodes[k.node];
    const stepTitle = steps.length === 1 && k.launches === 1 ? "Step" : "Steps";
    return [
      h("h2", {}, name), h("div", { class: "bar" }, phaseChip(k.phase), h("span", { class: "chip" }, k.template),
        k.module && h("span", { class: "chip" }, k.module)),
      facts(
        [p.measured && k.measured !== null ? "time" : "time, predicted", `${time(k.time)} a call, ${percent(p.share(k))} of all kernels`],
        ["gradient of", k.gradient],
        k.launches > 1 && ["launches", `${count(k.launches)} a call, ${time(k.each)} each`],
        k.measured !== null && ["predicted", `${time(k.launches * k.predicted)} by round rates`],
        ["moves", `${bytes(k.bytes)} a launch, ${rate((1e6 * k.bytes) / k.each, "B")}`],
        k.flops > 0 && ["computes", `${scaled(k.flops, ["FLOP", "kFLOP", "MFLOP", "GFLOP"])} a launch, ${rate((1e6 * k.flops) / k.each, "FLOP")}`],
        k.workspace > 0 && ["workspace", bytes(k.workspace)],
        steps.length > 0 && [stepTitle, cut(steps, 4, (i) => [stepLink(p, i), ` on stream ${p.steps[i].stream} `])],
      ),
      places(p, k.lines),
      titled("Why it is so", k.reasons.length ? why(k.reasons) : []),
      node && titled("What it computes", list(cut(
        node.body ? node.body.nodes.filter((i) => p.nodes[i].op !== "constant") : [k.node], 30,
        (i) => h("code", {}, p.nodes[i].text)))),
      step && titled("Reads", list(cut([...new Set(step.reads)], 12, (v) => valueLink(p, v)))),
      step && titled("Writes", list(cut([...new Set(step.writes)], 12, (v) => valueLink(p, v)))),
      h("div", { class: "bar" }, h("button", { onclick: () => reveal(p, k.node) }, "Show in the graph")),
      h("details", { open: true, class: "source" }, h("summary", {}, "Generated source"), code(k.source)),
    ];
  },

  node(p, i) {
    const node = p.nodes[i];
    if (p.kernelAt.has(i)) return DETAILS.kernel(p, p.kernelAt.get(i).name);
    const after = p.kernels.filter((k) => k.lines.some((line) => node.lines.includes(line)));
    return [
      h("h2", {}, node.outputs[0] || node.op),
      h("div", { class: "bar" }, phaseChip(node.phase), h("span", { class: "chip" }, node.kernel ? "kernel" : node.op),
        node.module && h("span", { class: "chip" }, node.module)),
      h("pre", {}, node.text.replace(/ : /, "\n  : ")),
      node.free && !p.became[node.outputs[0]] ? h("p", { class: "muted" }, "Costs nothing: kernels compute it where they read it.") : null,
      titled("Why it is so", node.note ? list([node.note]) : []),
      titled("What became of it", why(node.outputs.flatMap((name) => p.became[name] || []))),
      places(p, node.lines),
      titled("Reads", list(cut(node.inputs, 12, (v) => valueLink(p, v)))),
      !node.kernel && titled("Kernels of its lines", list(cut(after, 12, (k) => kernelLink(p, k.name)))),
    ];
  },

  buffer(p, i) {
    const b = p.buffers[i];
    return DETAILS.value(p, b.value, b);
  },

  value(p, name, given) {
    const found = given || p.buffers.find((b) => b.value === name);
    const state = p.state.find(([n]) => n === name);
    const writers = p.writers.get(name) || [];
    const readers = p.readers.get(name) || [];
    const last = found && p.steps[found.last];
    return [
      h("h2", {}, name),
      h("div", { class: "bar" }, found && phaseChip(found.phase), state && h("span", { class: "chip" }, "state"),
        h("span", { class: "chip" }, p.types[name] || (found && found.type) || "value")),
      facts(
        found && ["bytes", `${count(found.stop - found.start)} (${bytes(found.stop - found.start)})`],
        state && ["bytes", `${count(state[2])} (${bytes(state[2])}), stays on the device between calls`],
        found && ["place", `work + ${count(found.start)} to ${count(found.stop)}`],
        found && ["alive", [`steps ${found.first} to ${found.last}`, found.first <= p.peakStep && p.peakStep <= found.last ? ", also at the peak" : ""]],
        found && found.over && ["written over", valueLink(p, found.over)],
        ["made by", found ? kernelLink(p, found.producer) : writers.length ? cut(writers, 3, (j) => [kernelLink(p, p.steps[j].name), " "]) : ""],
        last && ["last use", last.kind === "launch" ? kernelLink(p, last.name) : `${last.kind} ${last.name}`],
      ),
      titled("Why it is so", found && found.reasons.length ? why(found.reasons) : []),
      found ? places(p, found.lines) : [],
      titled("Read by", readers.length ? list(cut([...new Set(readers.map((j) => p.steps[j].name))], 15, (n) => kernelLink(p, n))) : []),
    ];
  },

  step(p, i) {
    const step = p.steps[i];
    if (step.kind === "launch") return DETAILS.kernel(p, step.name);
    const span = p.modelled.find((x) => x.step === i);
    return [
      h("h2", {}, `${step.kind} ${step.name}`),
      facts(
        ["step", String(i)], ["stream", String(step.stream)],
        step.kind === "loop" && ["iterations", count(step.count)],
        span && ["takes", `${time(span.stop - span.start)} from ${time(span.start)}`],
      ),
      titled("Why it is so", step.reasons.length ? why(step.reasons) : []),
      titled("Reads", step.reads.length ? list(cut(step.reads, 15, (v) => valueLink(p, v))) : []),
      titled("Writes", step.writes.length ? list(cut(step.writes, 15, (v) => valueLink(p, v))) : []),
      titled("Its launches", step.kind === "loop"
        ? list(p.steps.filter((x) => x.inside === i && x.kind === "launch").map((x) => kernelLink(p, x.name))) : []),
    ];
  },

  line(p, line) {
    const found = p.lineOf.get(line) || { kernels: [], nodes: [], time: 0 };
    return [
      h("h2", {}, line),
      snippet(p, line, 4),
      facts(["time", found.time ? `${time(found.time)} a call, ${percent(found.time / p.total)} of all kernels` : "none of its own"]),
      titled("Kernels", found.kernels.length ? list(found.kernels.map((k) => [kernelLink(p, k.name), " ",
        h("span", { class: "muted small" }, `${k.phase}, ${time(k.time)}`)])) : []),
      titled("What was traced", found.nodes.length ? list(cut(found.nodes, 30, (n) => h("code", {}, n.text))) : []),
    ];
  },
};
