// Times the functions of a LeNet, of graphc and of TensorFlow.js, in this page.
import { fuses, load } from "./digits.mjs";

const BATCH = 100;
const bytes = async (path) => (await fetch(path)).arrayBuffer();
const name = `digits${fuses() ? ".fma" : ""}.wasm`;
const data = new Uint8Array(await bytes("digits.bin"));
const model = await load(await bytes(name), await bytes("digits.weights"));
for (const call of ["step", "classify"]) model.inputs(call).counts.set(data.subarray(0, 6400));
model.inputs("recognise").counts.set(data.subarray(0, 64));
model.inputs("step").labels.set(data.subarray(64 * 1797, 64 * 1797 + BATCH));

// The same network for TensorFlow.js, which takes images that are enlarged already.
function network() {
  const { conv2d, maxPooling2d, flatten, dense } = tf.layers;
  const relu = { activation: "relu" };
  return tf.sequential({
    layers: [
      conv2d({ filters: 20, kernelSize: 5, ...relu, inputShape: [28, 28, 1] }),
      maxPooling2d({ poolSize: 2, strides: 2 }),
      conv2d({ filters: 50, kernelSize: 5, ...relu }),
      maxPooling2d({ poolSize: 2, strides: 2 }),
      flatten(),
      dense({ units: 500, ...relu }),
      dense({ units: 10 }),
    ],
  });
}

function tensorflow() {
  const net = network();
  const counts = tf.tensor4d(Array.from(data.subarray(0, 6400), (c) => c / 16), [BATCH, 8, 8, 1]);
  const images = tf.image.resizeBilinear(counts, [28, 28], false, true);
  const image = images.slice(0, 1);
  const labels = tf.oneHot(Array.from(data.subarray(64 * 1797, 64 * 1797 + BATCH)), 10);
  const rule = tf.train.momentum(0.05, 0.9);
  const loss = () => tf.losses.softmaxCrossEntropy(labels, net.apply(images, { training: true }));
  const read = (x) => tf.tidy(() => tf.softmax(net.apply(x)).dataSync());
  return {
    step() {
      const cost = rule.minimize(loss, true);
      const value = cost.dataSync()[0];
      cost.dispose();
      return value;
    },
    classify: () => read(images),
    recognise: () => read(image),
  };
}

const made = {};
async function functions(who) {
  if (who === "graphc") return model;
  const backend = who.split(" ")[1];
  if (tf.getBackend() !== backend) await tf.setBackend(backend);
  await tf.ready();
  return (made[who] ??= tensorflow());
}

// Milliseconds of a call, `count` times, of so many calls together each, after one that does not count
// if there are several; or why there are none.
window.measure = async (who, what, count, together) => {
  try {
    const its = await functions(who);
    if (count > 1) its[what]();
    const times = [];
    for (let i = 0; i < count; i++) {
      const begin = performance.now();
      for (let j = 0; j < together; j++) its[what]();
      times.push((performance.now() - begin) / together);
    }
    return times;
  } catch (error) {
    return String(error.message);
  }
};
document.documentElement.dataset.ready = "true";
