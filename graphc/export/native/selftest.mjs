// The self-test of NAME in Node.js: `node selftest.mjs`, behind `sh build.sh`. Its calls give the
// bits that graphc VERSION computed.
import { readFileSync } from "node:fs";
import { setFlagsFromString } from "node:v8";

import { fuses, load } from "./NAME.mjs";

const calls = CALLS;

// Element i of the input of this number, 32 bits.
function hashed(input, i) {
  let h = (i + Math.imul(input, 0x9e3779b9)) | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

const made = {
  f32: (h) => ((h >>> 8) - 8388608) * 2 ** -23,
  f64: (h) => ((h >>> 8) - 8388608) * 2 ** -23,
  f16: (h) => ((h << 31) >>> 16) | 0x3c00 | (h >>> 22),
  bf16: (h) => ((h << 31) >>> 16) | 0x3f80 | (h >>> 25),
  i64: (h) => BigInt(h & 1),
};

function checksum(array) {
  let sum = -1;
  for (const byte of new Uint8Array(array.buffer, array.byteOffset, array.byteLength)) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
  }
  return ~sum >>> 0;
}

const file = (path) => readFileSync(new URL(path, import.meta.url));
const states = []; // what is printed of the calls of the first module

// Makes all calls; returns how many have wrong bits.
async function wrongCalls(path) {
  const model = await load(file(path), file("NAME.weights"));
  let wrong = 0;
  for (const [number, { name, inputs, outputs, state }] of calls.entries()) {
    const arrays = model.inputs(name);
    for (const { field, type, given, seed } of inputs) {
      const array = arrays[field];
      const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
      const make = made[type] ?? ((h) => h & 1);
      if (given) bytes.set(Buffer.from(given, "base64"));
      else for (let i = 0; i < array.length; i++) array[i] = make(hashed(seed, i));
    }
    const results = Object.values(model[name]());
    const found = new DataView(model.save().buffer).getUint32(12, true);
    const same = found === state && outputs.every((sum, n) => checksum(results[n]) === sum);
    if (!same) wrong++;
    states[number] ??= `call ${number}: state ${found.toString(16).padStart(8, "0")}`;
  }
  return wrong;
}

if (!fuses()) setFlagsFromString("--experimental-wasm-relaxed-simd"); // which Node.js 20 asks for
const modules = ["build/NAME.wasm", ...(fuses() ? ["build/NAME.fma.wasm"] : [])];
let wrong = 0;
for (const path of modules) wrong += await wrongCalls(path);
console.log(states.join("\n"));
const all = modules.length * calls.length;
console.log(`${all - wrong} of ${all} calls have the same bits`);
process.exitCode = wrong ? 1 : 0;
