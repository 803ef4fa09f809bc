// The page: what the worker reports, and what the user asks of it.
import { drawChart, makeBars } from "./charts.js";
import { countsOf, drawCounts, makeField } from "./drawing.js";

const RUN = 20; // epochs, the most that training goes on by itself
const MEAN = 7; // steps of the mean of losses
const SHOWN = 60; // test images, unless only the wrong ones are

const $ = (id) => document.getElementById(id);
const worker = new Worker("worker.js", { type: "module" });
const send = (type, more = {}, transfer = []) => worker.postMessage({ type, ...more }, transfer);
const number = (value) => value.toLocaleString("en");
const size = (bytes) =>
  bytes < 1e6 ? `${Math.round(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
const percent = (share) => `${(100 * share).toFixed(1)} %`;

let about, tests, answers, epoch;
let running = false;
let history = { at: 0, losses: [], means: [], accuracies: [] }; // from step `at` on
let times = []; // of the last steps: [milliseconds, when it ended]
let asked = { counts: null, waiting: false, stale: false };

function say(text, bad = false) {
  $("status").textContent = text;
  $("status").classList.toggle("bad", bad);
}

function showRunning(now) {
  running = now;
  $("start").textContent = running ? "Pause" : history.at + history.losses.length ? "Continue" : "Start";
  document.body.dataset.running = running;
}

// ---- what the worker reports

const reports = {
  ready(given) {
    ({ about, tests, epoch } = given);
    $("rate").value = String(Number(given.rate.toPrecision(4)));
    $("wasm").textContent = size(given.sizes.wasm);
    $("parameters").textContent = `${number(about.parameters)} weights`;
    $("weights").textContent = size(4 * about.parameters);
    $("memory").textContent = size(given.sizes.memory);
    $("madd").textContent = given.fused ? "relaxed SIMD, fused" : "emulated: slow in this browser";
    $("version").textContent = `Made by graphc ${about.version}.`;
    $("same").textContent = isSecureContext ? `compared at step ${about.compared.steps}` : "needs https";
    for (const id of ["start", "reset", "save", "file", "rate", "amount"]) $(id).disabled = false;
    say("Ready. Nothing is trained yet: the weights are random.");
    document.documentElement.dataset.ready = "true";
  },
  step({ step, loss, ms }) {
    history.losses.push([step, loss]);
    const recent = history.losses.slice(-MEAN);
    history.means.push([step, recent.reduce((sum, point) => sum + point[1], 0) / recent.length]);
    times.push([ms, performance.now()]);
    times = times.slice(-40);
    redraw();
  },
  tested(given) {
    ({ answers } = given);
    history.accuracies.push([given.step, given.accuracy]);
    $("accuracy").textContent = percent(given.accuracy);
    showStep(given.step);
    showTests();
    ask();
    redraw();
  },
  compared({ same, sha256 }) {
    $("same").textContent = same ? `yes, after ${about.compared.steps} steps` : "no";
    $("same").className = same ? "good" : "bad";
    $("same").title = `SHA-256 of the state: ${sha256}`;
  },
  paused({ step }) {
    showRunning(false);
    const last = history.accuracies.at(-1);
    say(`Paused after ${number(step)} steps: ${percent(last[1])} of the test images are right.`);
  },
  restored({ step, rate }) {
    history = { at: step, losses: [], means: [], accuracies: [] };
    times = [];
    $("rate").value = String(Number(rate.toPrecision(4)));
    $("same").className = "";
    $("same").textContent = step ? "–" : `compared at step ${about.compared.steps}`;
    showRunning(false);
    showStep(step);
    say(step ? `Goes on from step ${number(step)}.` : "Back at the initial, random weights.");
    redraw();
  },
  recognised({ probabilities }) {
    setWaiting(false);
    if (asked.counts) showReading(probabilities);
    if (asked.stale) ask();
  },
  saved({ step, state }) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([state], { type: "application/octet-stream" }));
    link.download = `digits-step-${step}.state`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    say(`Saved step ${number(step)}: weights, momentum and learning rate, ${size(state.length)}.`);
  },
  failed({ message }) {
    showRunning(false);
    say(message, true);
  },
};
worker.onmessage = ({ data }) => reports[data.type](data);
worker.onerror = (event) => reports.failed({ message: event.message || "The worker cannot start." });

function showStep(step) {
  $("step").textContent = number(step);
  $("epoch").textContent = (step / epoch).toFixed(1);
}

let planned = false;
function redraw() {
  if (planned) return;
  planned = true;
  requestAnimationFrame(() => {
    planned = false;
    drawAll();
  });
}

function drawAll() {
  const { losses, means, accuracies } = history;
  const step = losses.at(-1)?.[0];
  const widest = Math.max(30, step ?? history.at ?? 0);
  drawChart($("losses"), [losses, means], widest, 2.5, (loss) => loss.toFixed(3));
  drawChart($("accuracies"), [accuracies], widest, 1, percent, (share) => `${100 * share} %`);
  if (step === undefined) {
    for (const id of ["time", "speed"]) $(id).textContent = "–";
    $("losses").setAttribute("aria-label", "Loss: no steps yet");
  } else {
    showStep(step);
    const sorted = times.map(([ms]) => ms).sort((a, b) => a - b);
    $("time").textContent = `${sorted[sorted.length >> 1].toFixed(sorted[0] < 10 ? 1 : 0)} ms`;
    if (times.length > 1) {
      const seconds = (times.at(-1)[1] - times[0][1]) / 1000;
      $("speed").textContent = ((times.length - 1) / seconds).toFixed(1);
    }
    const mean = means.at(-1)[1].toFixed(3);
    $("losses").setAttribute("aria-label", `Loss: mean ${mean} at step ${step}`);
  }
  if (accuracies.length) {
    const [at, share] = accuracies.at(-1);
    $("accuracies").setAttribute("aria-label", `Test accuracy: ${percent(share)} at step ${at}`);
  }
}
new ResizeObserver(redraw).observe($("losses"));

// ---- controls

$("start").onclick = () => {
  if (running) {
    send("pause");
    return;
  }
  times = [];
  const { value, selectedOptions } = $("amount");
  send("start", { steps: { epoch, run: RUN * epoch }[value] ?? Number(value) });
  showRunning(true);
  say(`Training: it pauses after ${selectedOptions[0].text}.`);
};
$("reset").onclick = () => send("reset");
$("save").onclick = () => send("save");
$("rate").onchange = () => send("rate", { rate: Number($("rate").value) });
$("file").onchange = async () => {
  const [file] = $("file").files;
  if (file) send("restore", { state: await file.arrayBuffer() });
  $("file").value = "";
};

// ---- drawing

const showBars = makeBars($("bars"));
showBars(null);
const field = makeField($("field"), (strokes) => {
  $("hint").hidden = strokes.length > 0;
  recognise(strokes.length ? countsOf(strokes) : null);
});
$("clear").onclick = () => field.clear();

// Ask what digit counts are, or with null show nothing.
function recognise(counts, what = "What the net sees") {
  asked.counts = counts;
  $("what").textContent = what;
  drawCounts($("seen"), counts ?? new Uint8Array(64));
  if (counts) ask();
  else {
    showBars(null);
    $("reading").textContent = "Draw with mouse, pen or finger.";
  }
}

// One question at a time; those that come before its answer become one.
function ask() {
  asked.stale = asked.waiting;
  if (asked.waiting || !asked.counts) return;
  setWaiting(true);
  send("recognise", { counts: asked.counts });
}

function setWaiting(now) {
  asked.waiting = now;
  document.body.dataset.asking = now;
}

function showReading(probabilities) {
  showBars(probabilities);
  const share = Math.max(...probabilities);
  const text = `The net reads ${probabilities.indexOf(share)}, to ${Math.round(100 * share)} %.`;
  if ($("reading").textContent !== text) $("reading").textContent = text;
}

// ---- test images

const buttons = [];

function makeTest(index) {
  const button = document.createElement("button");
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 8;
  const counts = tests.images.subarray(64 * index, 64 * (index + 1));
  drawCounts(canvas, counts);
  button.append(canvas, document.createElement("span"));
  button.onclick = () => {
    field.clear();
    recognise(counts, `Test image ${index + 1}`);
  };
  return button;
}

function showTests() {
  const { labels } = tests;
  const only = $("only").checked;
  const wrong = [...labels.keys()].filter((i) => answers[i] !== labels[i]);
  const shown = only ? wrong : [...labels.keys()].slice(0, SHOWN);
  const items = shown.map((index) => {
    const button = (buttons[index] ??= makeTest(index));
    const [read, label] = [answers[index], labels[index]];
    const bad = read !== label;
    button.lastChild.textContent = bad ? `✗ ${read} (${label})` : String(read);
    button.classList.toggle("wrong", bad);
    button.setAttribute("aria-label", bad ? `A ${label}, read as ${read}: wrong` : `A ${label}, read right`);
    if (button.parentNode) return button.parentNode;
    const item = document.createElement("li");
    item.append(button);
    return item;
  });
  const list = $("tests");
  if (items.length !== list.children.length || items.some((item, i) => item !== list.children[i])) {
    list.replaceChildren(...items);
  }
  const first = only ? "" : `The first ${SHOWN} of ${labels.length}; `;
  const text = `${first}${wrong.length} of all ${labels.length} are read wrong.`;
  const [index] = wrong;
  const example = ` ✗ ${answers[index]} (${labels[index]}): read as ${answers[index]}, is ${labels[index]}.`;
  $("wrong").textContent = wrong.length ? text + example : text;
}
$("only").onchange = () => answers && showTests();
