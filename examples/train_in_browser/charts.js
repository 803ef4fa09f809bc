// Line charts as SVG, and bars.

const NAMES = "http://www.w3.org/2000/svg";
const LEFT = 44;
const RIGHT = 58;
const TOP = 8;
const BOTTOM = 22;

function element(name, attributes, text = "") {
  const made = document.createElementNS(NAMES, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

// At most `most` points; each is the mean of equally many that follow each other.
function thinned(points, most) {
  const size = Math.ceil(points.length / most);
  if (size <= 1) return points;
  const means = [];
  for (let i = 0; i < points.length; i += size) {
    const part = points.slice(i, i + size);
    const mean = (k) => part.reduce((sum, point) => sum + point[k], 0) / part.length;
    means.push([mean(0), mean(1)]);
  }
  return means;
}

// Numbers between 0 and `high` for a grid: 1, 2 or 5 times a power of ten apart, about `count`.
function marks(high, count) {
  const rough = high / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const apart = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const found = [];
  for (let i = 0; i * apart <= high * 1.0001; i++) found.push(i * apart);
  return found;
}

// Draw lines, lists of points [step, value], with steps from 0 to `widest` and values to `high`. The
// last value of the last line is written beside it, as `label` has it.
export function drawChart(svg, lines, widest, high, label, mark = String) {
  const { width, height } = svg.getBoundingClientRect();
  const x = (step) => LEFT + (step / widest) * (width - LEFT - RIGHT);
  const y = (value) => height - BOTTOM - (Math.min(value, high) / high) * (height - TOP - BOTTOM);
  const parts = [];
  for (const value of marks(high, 3)) {
    const at = y(value);
    parts.push(element("line", { x1: LEFT, x2: width - RIGHT, y1: at, y2: at, class: "grid" }));
    const place = { x: LEFT - 7, y: at + 4, "text-anchor": "end" };
    parts.push(element("text", place, mark(value)));
  }
  for (const step of marks(widest, Math.max(2, Math.floor(width / 130)))) {
    const place = { x: x(step), y: height - 5, "text-anchor": "middle" };
    parts.push(element("text", place, step.toLocaleString("en")));
  }
  for (const [number, points] of lines.entries()) {
    const thick = number === lines.length - 1;
    const shown = thinned(points, width);
    const coordinates = shown.map(([step, value]) => `${x(step).toFixed(1)},${y(value).toFixed(1)}`);
    parts.push(element("polyline", { points: coordinates.join(" "), class: thick ? "thick" : "thin" }));
    const end = points.at(-1);
    if (thick && end) {
      const [cx, cy] = [x(end[0]), y(end[1])];
      parts.push(element("circle", { cx, cy, r: 4, class: "end" }));
      parts.push(element("text", { x: cx + 8, y: cy + 4 }, label(end[1])));
    }
  }
  svg.replaceChildren(...parts);
}

// Rows for ten digits; the function that is returned shows probabilities, or none.
export function makeBars(list) {
  const rows = Array.from({ length: 10 }, (_, digit) => {
    const row = document.createElement("li");
    row.innerHTML = `<span>${digit}</span><span class="track"><span class="part"></span></span>
      <span class="share"></span>`;
    list.append(row);
    return row;
  });
  return (probabilities) => {
    const best = probabilities ? probabilities.indexOf(Math.max(...probabilities)) : -1;
    for (const [digit, row] of rows.entries()) {
      const share = probabilities ? 100 * probabilities[digit] : 0;
      row.classList.toggle("best", digit === best);
      row.querySelector(".part").style.width = `${share}%`;
      row.querySelector(".share").textContent = probabilities ? `${share.toFixed(1)} %` : "–";
    }
  };
}
