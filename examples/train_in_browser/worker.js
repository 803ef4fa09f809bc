// Trains and recognises, off the page's thread. Messages to it and from it are objects with a `type`.
import { fuses, load } from "./digits.mjs";

const EVALUATED = 5; // test images are read after every so many steps
const PIXELS = 64;

let about, model, images, labels, initial;
let order = { epoch: -1, indices: null };
let running = false;
let loop = null; // the promise of run(), while it goes on
let plainRun = false; // from the initial state, with the initial learning rate
let reported = true; // whether the page is told when it pauses
let last = 0; // the step at which it pauses by itself

const bytes = async (path) => {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path}: ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
};

async function begin() {
  about = await (await fetch("about.json")).json();
  const fused = fuses();
  const names = [`digits${fused ? ".fma" : ""}.wasm`, "digits.weights", "digits.bin"];
  const [wasm, weights, data] = await Promise.all(names.map(bytes));
  model = await load(wasm, weights);
  initial = model.save();
  images = new Uint8Array(data, 0, about.images * PIXELS);
  labels = new Uint8Array(data, about.images * PIXELS);
  plainRun = true;
  postMessage({
    type: "ready",
    about,
    fused,
    rate: model.state.lr[0],
    epoch: about.learn / about.batch,
    sizes: { wasm: wasm.byteLength, memory: model.state.lr.buffer.byteLength },
    tests: { images: images.slice(about.learn * PIXELS), labels: labels.slice(about.learn) },
  });
  evaluate();
}

// The order in which an epoch takes the images; build.py has the same.
function orderOf(epoch) {
  if (order.epoch === epoch) return order.indices;
  const keys = Uint32Array.from({ length: about.learn }, (_, i) => {
    let h = i + epoch * about.learn;
    h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
    h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
    return h ^ (h >>> 16);
  });
  const indices = Array.from(keys.keys()).sort((a, b) => keys[a] - keys[b] || a - b);
  order = { epoch, indices };
  return indices;
}

function step() {
  const done = model.state.step[0];
  const perEpoch = about.learn / about.batch;
  const chosen = orderOf(Math.floor(done / perEpoch));
  const start = (done % perEpoch) * about.batch;
  const { counts, labels: answers } = model.inputs("step");
  for (let i = 0; i < about.batch; i++) {
    const image = chosen[start + i];
    counts.set(images.subarray(image * PIXELS, (image + 1) * PIXELS), i * PIXELS);
    answers[i] = labels[image];
  }
  const begin = performance.now();
  const loss = model.step().result[0];
  postMessage({ type: "step", step: done + 1, loss, ms: performance.now() - begin });
}

// What the net says of the test images: the most likely digit of each.
function evaluate() {
  const count = about.images - about.learn;
  const { counts } = model.inputs("classify");
  const answers = new Uint8Array(count);
  let right = 0;
  for (let first = 0; first < count; first += about.batch) {
    const size = Math.min(about.batch, count - first);
    const from = (about.learn + first) * PIXELS;
    counts.fill(0).set(images.subarray(from, from + size * PIXELS));
    const { result } = model.classify();
    for (let i = 0; i < size; i++) {
      const row = result.subarray(i * 10, i * 10 + 10);
      answers[first + i] = row.indexOf(Math.max(...row));
      right += answers[first + i] === labels[about.learn + first + i];
    }
  }
  postMessage({ type: "tested", step: model.state.step[0], answers, accuracy: right / count });
}

// Whether the state has the bits that Python computed when the page was built.
async function compare() {
  const found = await crypto.subtle.digest("SHA-256", model.save());
  const hex = Array.from(new Uint8Array(found), (b) => b.toString(16).padStart(2, "0")).join("");
  postMessage({ type: "compared", same: hex === about.compared.sha256, sha256: hex });
}

// Lets messages that have come in be handled.
function breathe() {
  const { port1, port2 } = new MessageChannel();
  return new Promise((done) => {
    port1.onmessage = () => done(port1.close());
    port2.postMessage(null);
  });
}

async function run() {
  while (running) {
    step();
    const done = model.state.step[0];
    if (done === about.compared.steps && plainRun && self.isSecureContext) await compare();
    if (running && done % EVALUATED === 0) evaluate();
    if (done >= last) running = false;
    await breathe();
  }
  if (reported) postMessage({ type: "paused", step: model.state.step[0] });
}

function halt() {
  running = reported = false;
}

const handlers = {
  start({ steps }) {
    running = reported = true;
    last = model.state.step[0] + steps;
    loop ??= run().finally(() => (loop = null));
  },
  pause() {
    running = false;
  },
  reset() {
    halt();
    model.restore(initial);
    plainRun = true;
    postMessage({ type: "restored", step: 0, rate: model.state.lr[0] });
    evaluate();
  },
  rate({ rate }) {
    model.state.lr[0] = rate;
    plainRun = false;
  },
  recognise({ counts }) {
    model.inputs("recognise").counts.set(counts);
    postMessage({ type: "recognised", probabilities: model.recognise().result });
  },
  save() {
    const state = model.save();
    postMessage({ type: "saved", step: model.state.step[0], state }, [state.buffer]);
  },
  restore({ state }) {
    halt();
    model.restore(state);
    plainRun = false;
    postMessage({ type: "restored", step: model.state.step[0], rate: model.state.lr[0] });
    evaluate();
  },
};

const ready = begin();
ready.catch((error) => postMessage({ type: "failed", message: error.message }));
addEventListener("message", async ({ data }) => {
  await ready;
  try {
    handlers[data.type](data);
  } catch (error) {
    halt();
    postMessage({ type: "failed", message: error.message });
  }
});
