// A stage's graph as a tree of modules, whose boxes open and close.

/**
 * The graph of one stage as a tree of modules, loops and kernels, with edges between its leaves.
 * A tree node is {id, label, kind, phase, parent, children, node, module}.
 */
class GraphTree {
  constructor(p, stage) {
    this.p = p;
    this.stage = stage;
    this.all = new Map();
    this.root = this.make("", null, "root", "", "forward");
    this.edges = [];
    this.leafOf = new Map();
    const scope = new Map();
    for (const name of stage.inputs) {
      scope.set(name, this.make(`in:${name}`, this.root, "io", name, "forward", { detail: p.types[name] || "", value: name }));
    }
    this.walk(stage.nodes, scope, this.root, true);
    for (const name of stage.outputs) {
      const leaf = this.make(`out:${name}`, this.root, "io", `result ${name}`, "forward", { detail: p.types[name] || "", value: name });
      if (scope.has(name)) this.edges.push([scope.get(name), leaf]);
    }
    this.prune(this.root);
    for (const item of this.all.values()) {
      item.leaves = item.leaves || 0;
      if (item.kind === "module" || item === this.root) continue;
      let inside = false;
      for (let at = item.parent; at; at = at.parent) inside = inside || at.kind === "body";
      for (let at = item.parent; at; at = at.parent) {
        at.time = (at.time || 0) + (item.time || 0);
        if (!inside) at.leaves = (at.leaves || 0) + 1;
      }
    }
  }

  make(id, parent, kind, label, phase, more = {}) {
    const item = { id, parent, kind, label, phase, children: [], ...more };
    this.all.set(id, item);
    if (parent) parent.children.push(item);
    return item;
  }

  /** The box of a module inside `parent`, one for each part of its path. */
  module(parent, path, phase) {
    for (const part of path) {
      const id = `${parent.id}/${part}`;
      parent = this.all.get(id) || this.make(id, parent, "module", part, phase);
    }
    return parent;
  }

  walk(numbers, scope, parent, grouped) {
    for (const i of numbers) {
      const node = this.p.nodes[i];
      if (node.op === "constant") continue;
      const path = node.phase === "forward" ? [] : [node.phase];
      const box = grouped ? this.module(parent, [...path, ...(node.module ? node.module.split(".") : [])], node.phase) : parent;
      const kernel = this.p.kernelAt.get(i);
      const label = kernel ? kernel.name : node.kernel || (node.body ? `loop ${node.outputs[0]}` : node.op);
      const item = this.make(`${parent.id}#${node.outputs[0]}`, box, node.body ? "body" : "op", label, node.phase, {
        node, kernel, time: kernel ? kernel.time : 0, detail: this.p.types[node.outputs[0]] || "",
      });
      this.leafOf.set(i, item);
      if (node.body) {
        const inner = new Map();
        node.body.inputs.forEach((name, j) => { if (scope.has(node.inputs[j])) inner.set(name, scope.get(node.inputs[j])); });
        this.walk(node.body.nodes, inner, item, false);
        for (const name of new Set(node.inputs)) if (scope.has(name)) this.edges.push([scope.get(name), item]);
        node.outputs.forEach((name, j) => scope.set(name, inner.get(node.body.outputs[j]) || item));
      } else {
        for (const name of new Set(node.inputs)) if (scope.has(name)) this.edges.push([scope.get(name), item]);
        for (const name of node.outputs) scope.set(name, item);
      }
    }
  }

  /** Boxes that hold one thing alone are left out. */
  prune(item) {
    item.children.slice().forEach((child) => this.prune(child));
    if (item.kind === "module" && item.children.length === 1 && item.parent) {
      const [only] = item.children;
      only.parent = item.parent;
      if (only.kind === "module") only.label = `${item.label}.${only.label}`;
      item.parent.children[item.parent.children.indexOf(item)] = only;
      this.all.delete(item.id);
    }
  }

  /** Modules to open, level by level, all of a level or none, as long as what is drawn `fits`. */
  openLevels(fits) {
    const open = new Set([this.root]);
    let level = this.root.children.filter((i) => i.kind === "module");
    let shown = this.root.children.length;
    while (level.length) {
      shown += level.reduce((sum, item) => sum + item.children.length - 1, 0);
      if (!fits(shown, open.size - 1 + level.length)) break;
      level.forEach((item) => open.add(item));
      level = level.flatMap((item) => item.children).filter((i) => i.kind === "module");
    }
    return open;
  }

  /** The nearest box around `item` that is drawn. */
  visible(item, open) {
    let shown = item;
    for (let at = item; at; at = at.parent) if (at.parent && !open.has(at.parent)) shown = at.parent;
    return shown;
  }
}
