// Loads and calls NAME, compiled to WebAssembly: in browsers, Node.js and others. Made by graphc
// VERSION. NAME.d.mts has the types.

const description = DESCRIPTION;

const errors = ERRORS;

const kinds = {
  f32: Float32Array,
  f64: Float64Array,
  f16: Uint16Array,
  bf16: Uint16Array,
  i8: Int8Array,
  u8: Uint8Array,
  bool: Uint8Array,
  i32: Int32Array,
  i64: BigInt64Array,
};

// A model with the weights of a file. `wasm` is a URL, a Response or its promise, the bytes of the
// file or a WebAssembly.Module; `weights` the bytes of NAME.weights.
export async function load(wasm, weights) {
  return new Model(await instantiate(await wasm), weights);
}

// f(a, b, c) is a * b + c by the f32x4.relaxed_madd of relaxed SIMD.
const madd = new Uint8Array([
  0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x01, 0x60, 0x03, 0x7d, 0x7d, 0x7d,
  0x01, 0x7d, 0x03, 0x02, 0x01, 0x00, 0x07, 0x05, 0x01, 0x01, 0x66, 0x00, 0x00, 0x0a, 0x16, 0x01,
  0x14, 0x00, 0x20, 0x00, 0xfd, 0x13, 0x20, 0x01, 0xfd, 0x13, 0x20, 0x02, 0xfd, 0x13, 0xfd, 0x85,
  0x02, 0xfd, 0x1f, 0x00, 0x0b,
]);

// Whether multiply-adds are rounded once here: then NAME.fma.wasm computes the same bits as
// NAME.wasm, many times as fast. The standard leaves it to the engine and its processor.
export function fuses() {
  if (!WebAssembly.validate(madd)) return false;
  const { f } = new WebAssembly.Instance(new WebAssembly.Module(madd)).exports;
  return f(1 + 2 ** -12, 1 + 2 ** -12, -1 - 2 ** -11) === 2 ** -24;
}

async function instantiate(wasm) {
  if (typeof wasm === "string" || wasm instanceof URL) wasm = await fetch(wasm);
  if (typeof Response !== "undefined" && wasm instanceof Response) wasm = await wasm.arrayBuffer();
  if (wasm instanceof WebAssembly.Module) return new WebAssembly.Instance(wasm, {});
  return (await WebAssembly.instantiate(wasm, {})).instance;
}

function check(error) {
  if (error !== 0) throw new Error(`NAME: ${errors[error] ?? `error ${error}`}`);
}

function bytesOf(data) {
  return ArrayBuffer.isView(data)
    ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
    : new Uint8Array(data);
}

export class Model {
  #code;
  #functions = {};

  constructor(instance, weights) {
    this.#code = instance.exports;
    const bytes = bytesOf(weights);
    if (bytes.length !== description.weights) {
      throw new Error(`NAME: expected weights of ${description.weights} bytes, got ${bytes.length}`);
    }
    this.#memory(this.#code.weights(), bytes.length).set(bytes);
    check(this.#code.init());
    // Views of the state by name: what is written there counts from the next call on.
    this.state = {};
    for (const { name, type, count, offset } of description.state) {
      const at = this.#code.weights() + offset;
      this.state[name] = new kinds[type](this.#code.memory.buffer, at, count);
    }
    for (const { name, inputs, outputs } of description.functions) {
      const view = ({ name, type, count, number }) => [
        name,
        new kinds[type](this.#code.memory.buffer, this.#code.address(number), count),
      ];
      this.#functions[name] = { inputs: inputs.map(view), outputs: outputs.map(view) };
      this[name] = (given) => this.#call(name, given);
    }
  }

  // Arrays that a function reads, by name, to be filled in place of arguments.
  inputs(name) {
    return Object.fromEntries(this.#functions[name].inputs);
  }

  // The bytes of the state, with a checksum, to be stored and restored on any machine.
  save() {
    const at = this.#code.save();
    return this.#memory(at, description.stateBytes).slice();
  }

  restore(saved) {
    const bytes = bytesOf(saved);
    if (bytes.length < description.stateBytes) check(3);
    this.#memory(this.#code.scratch(), description.stateBytes).set(
      bytes.subarray(0, description.stateBytes),
    );
    check(this.#code.restore());
  }

  #memory(at, length) {
    return new Uint8Array(this.#code.memory.buffer, at, length);
  }

  #call(name, given = {}) {
    const { inputs, outputs } = this.#functions[name];
    for (const key of Object.keys(given)) {
      if (!inputs.some(([known]) => known === key)) {
        throw new Error(`NAME.${name}: no input ${key}; expected ${inputs.map(([k]) => k)}`);
      }
    }
    for (const [key, view] of inputs) {
      const value = given[key];
      if (value === undefined || value === view) continue; // as it is in memory
      if (value.length !== view.length) {
        throw new Error(
          `NAME.${name}: ${key} expected ${view.length} elements, got ${value.length}`,
        );
      }
      view.set(value);
    }
    check(this.#code[`call_${name}`]());
    return Object.fromEntries(outputs.map(([key, view]) => [key, view.slice()]));
  }
}
