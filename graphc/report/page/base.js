// Elements, figures, and a program as views see it.

/** An HTML element; `on...` attributes are listeners, children may be text, elements or null. */
function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
function s(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** Three digits and a unit. */
function scaled(value, units, base = 1000) {
  if (!value) return `0 ${units[0]}`;
  let place = 0;
  while (value >= base * 0.9995 && place < units.length - 1) { value /= base; place++; }
  const digits = value >= 100 || (place === 0 && Number.isInteger(value)) ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[place]}`;
}
const count = (n) => grouped.format(n);
const bytes = (n) => scaled(n, ["B", "kB", "MB", "GB", "TB"]);
const time = (us) => scaled(us, ["µs", "ms", "s"]);
const rate = (perSecond, unit) => scaled(perSecond / 1e9, [`G${unit}/s`, `T${unit}/s`]);
const percent = (share) => (share >= 0.0995 ? `${(100 * share).toFixed(0)} %` : `${(100 * share).toFixed(1)} %`);
const short = (text, length) => (text.length <= length ? text : `${text.slice(0, length - 1)}…`);
const number = (line) => Number(line.slice(line.lastIndexOf(":") + 1));
const file = (line) => line.slice(0, line.lastIndexOf(":"));

/** A program's data with what views look up. */
class Program {
  constructor(data, place) {
    Object.assign(this, data);
    this.place = place;
    this.kernelOf = new Map(this.kernels.map((k) => [k.name, k]));
    this.kernelAt = new Map(this.kernels.map((k) => [k.node, k]));
    this.measured = this.summary.measured !== null;
    this.total = 0;
    for (const k of this.kernels) {
      k.each = k.measured ?? k.predicted;
      k.time = k.launches * k.each;
      this.total += k.time;
    }
    this.stepsOf = new Map();
    this.steps.forEach((step, i) => {
      step.number = i;
      if (step.kind === "launch") push(this.stepsOf, step.name, i);
    });
    this.nodes.forEach((node, i) => { node.number = i; });
    this.buffers.forEach((buffer, i) => { buffer.number = i; });
    this.readers = new Map();
    this.writers = new Map();
    for (const step of this.steps) {
      if (step.kind !== "launch" && step.kind !== "copy") continue;
      for (const value of step.reads) push(this.readers, value, step.number);
      for (const value of step.writes) push(this.writers, value, step.number);
    }
    this.lineOf = new Map();
    for (const kernel of this.kernels) {
      kernel.lines.forEach((line) => {
        if (!this.lineOf.has(line)) this.lineOf.set(line, { line, kernels: [], nodes: [], time: 0 });
        this.lineOf.get(line).kernels.push(kernel);
      });
      if (kernel.lines.length) this.lineOf.get(kernel.lines[0]).time += kernel.time;
    }
    this.traced = this.stages[0];
    for (const i of this.flat(this.traced.nodes)) {
      for (const line of this.nodes[i].lines) {
        if (!this.lineOf.has(line)) this.lineOf.set(line, { line, kernels: [], nodes: [], time: 0 });
        this.lineOf.get(line).nodes.push(this.nodes[i]);
      }
    }
    this.peakStep = this.live.indexOf(this.live.reduce((a, b) => Math.max(a, b), 0));
  }

  /** The numbers of nodes with those inside loops, in order. */
  flat(numbers, into = []) {
    for (const i of numbers) {
      into.push(i);
      const node = this.nodes[i];
      if (node.body && !node.kernel) this.flat(node.body.nodes, into);
    }
    return into;
  }

  share(kernel) { return this.total ? kernel.time / this.total : 0; }

  /** The text of a user's line; "" where its file was not found. */
  code(line) {
    const text = this.files[file(line)];
    return text === undefined ? "" : (text.split("\n")[number(line) - 1] || "").trim();
  }
}

function push(map, key, value) {
  if (!map.has(key)) map.set(key, []);
  map.get(key).push(value);
}

// The tip beside the pointer or the focused mark.

const tipBox = document.getElementById("tip");

function showTip(x, y, title, lines) {
  tipBox.replaceChildren(h("strong", {}, title), ...lines.filter(Boolean).map((l) => h("div", {}, l)));
  tipBox.hidden = false;
  const box = tipBox.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth ? x - box.width - 10 : x + 14;
  const top = y + 14 + box.height > innerHeight ? y - box.height - 10 : y + 14;
  tipBox.style.left = `${Math.max(4, left)}px`;
  tipBox.style.top = `${Math.max(4, top)}px`;
}

const hideTip = () => { tipBox.hidden = true; };

/**
 * Makes marks of a drawing answer to the pointer and the keyboard: the drawing takes the focus, the
 * arrow keys go from mark to mark in the order given, Enter chooses. Marks are
 * {element, title, lines, choose}.
 */
function operable(svg, marks, label) {
  const byElement = new Map(marks.map((mark, i) => [mark.element, i]));
  let current = -1;
  svg.setAttribute("tabindex", "0");
  svg.setAttribute("role", "application");
  svg.setAttribute("aria-roledescription", "chart");
  svg.setAttribute("aria-label", `${label}. Arrow keys go from mark to mark, Enter opens one.`);
  const at = (event) => byElement.get(event.target);
  const lines = (mark) => (typeof mark.lines === "function" ? mark.lines() : mark.lines);
  const go = (i) => {
    if (!marks.length) return;
    if (current >= 0) marks[current].element.classList.remove("current");
    current = (i + marks.length) % marks.length;
    const mark = marks[current];
    mark.element.classList.add("current");
    const box = mark.element.getBoundingClientRect();
    showTip(box.left + Math.min(box.width / 2, 60), box.top + Math.min(box.height, 40), mark.title, lines(mark));
    svg.setAttribute("aria-description", [mark.title, ...lines(mark).filter(Boolean)].join(", "));
  };
  svg.addEventListener("pointermove", (event) => {
    const i = at(event);
    if (i === undefined) hideTip();
    else showTip(event.clientX, event.clientY, marks[i].title, lines(marks[i]));
  });
  svg.addEventListener("pointerleave", hideTip);
  svg.addEventListener("click", (event) => {
    const i = at(event);
    if (i !== undefined) marks[i].choose();
  });
  svg.addEventListener("blur", () => {
    hideTip();
    if (current >= 0) marks[current].element.classList.remove("current");
  });
  svg.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (move) { event.preventDefault(); go(current + move); }
    if (event.key === "Home") { event.preventDefault(); go(0); }
    if (event.key === "End") { event.preventDefault(); go(marks.length - 1); }
    if (event.key === "Enter" && current >= 0) marks[current].choose();
  });
  return svg;
}

function legend(critical = false) {
  const names = ["forward", "backward", "update", ...(critical ? ["critical"] : [])];
  const words = { forward: "forward", backward: "backward", update: "update", critical: "critical path" };
  return h("div", { class: "legend" }, names.map((n) => h("span", {}, h("i", { class: n }), words[n])));
}

/** A row of buttons of which one is pressed. */
function choice(label, options, chosen, choose) {
  const buttons = options.map(([value, text]) => h("button", {
    type: "button", "aria-pressed": String(value === chosen),
    onclick: () => {
      buttons.forEach((b, i) => b.setAttribute("aria-pressed", String(options[i][0] === value)));
      choose(value);
    },
  }, text));
  return h("div", { class: "group", role: "group", "aria-label": label }, buttons);
}
