// A field to draw a digit, and its image as the data set's are made: a bitmap of 32 x 32, in which the
// digit fills all rows and the middle 20 columns, and of whose blocks of 4 x 4 the black pixels are
// counted. All its digits have about as many black pixels: strokes are made thicker or thinner.

const SIZE = 32;
const WIDTH = 20;
const BLACK = 312;
const STRETCH = 1.4; // a narrow digit, such as a 1, is not made broader than so, beside its height

// The counts, 64 from 0 to 16, of strokes: lists of points [x, y] between 0 and 1.
export function countsOf(strokes) {
  let thin = 1;
  let thick = 7;
  let bitmap;
  for (let i = 0; i < 9; i++) {
    const pen = (thin + thick) / 2;
    bitmap = bitmapOf(fitted(strokes, pen), pen / 2);
    if (bitmap.reduce((sum, pixel) => sum + pixel, 0) > BLACK) thick = pen;
    else thin = pen;
  }
  const counts = new Uint8Array(64);
  for (const [i, pixel] of bitmap.entries()) {
    counts[8 * (i >> 7) + ((i % SIZE) >> 2)] += pixel;
  }
  return counts;
}

// The strokes in pixels, so that lines of a pen's width fill the rows.
function fitted(strokes, pen) {
  const [left, right, top, bottom] = [0, 0, 1, 1].map((axis, i) => {
    const all = strokes.flatMap((stroke) => stroke.map((point) => point[axis]));
    return all.reduce((a, b) => (i % 2 ? Math.max(a, b) : Math.min(a, b)));
  });
  const high = (SIZE - pen) / Math.max(bottom - top, 0.02);
  const wide = Math.min((WIDTH - pen) / Math.max(right - left, 0.02), STRETCH * high);
  const middle = [(left + right) / 2, (top + bottom) / 2];
  return strokes.map((stroke) =>
    stroke.map(([x, y]) => [
      SIZE / 2 + (x - middle[0]) * wide,
      SIZE / 2 + (y - middle[1]) * Math.min(high, 2 * wide),
    ]),
  );
}

// Which pixels are nearer to a stroke than `reach`.
function bitmapOf(strokes, reach) {
  const bitmap = new Uint8Array(SIZE * SIZE);
  for (const stroke of strokes) {
    for (let i = 0; i < stroke.length; i++) {
      const [from, to] = [stroke[Math.max(0, i - 1)], stroke[i]];
      const bound = (axis) => [
        Math.max(0, Math.floor(Math.min(from[axis], to[axis]) - reach)),
        Math.min(SIZE, Math.ceil(Math.max(from[axis], to[axis]) + reach)),
      ];
      const [[x0, x1], [y0, y1]] = [bound(0), bound(1)];
      for (let y = y0; y < y1; y++) {
        for (let x = x0; x < x1; x++) {
          if (distance(x + 0.5, y + 0.5, from, to) <= reach) bitmap[SIZE * y + x] = 1;
        }
      }
    }
  }
  return bitmap;
}

function distance(x, y, [ax, ay], [bx, by]) {
  const square = (bx - ax) ** 2 + (by - ay) ** 2;
  const along = square ? ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / square : 0;
  const t = Math.min(1, Math.max(0, along));
  return Math.hypot(x - ax - t * (bx - ax), y - ay - t * (by - ay));
}

// Make a canvas a field; `changed` gets the strokes after each change.
export function makeField(canvas, changed) {
  const context = canvas.getContext("2d");
  const pen = { x: 0.5, y: 0.2, down: false };
  let strokes = [];
  let pointer = null;

  function draw(cursor = false) {
    const { width, height } = canvas;
    context.clearRect(0, 0, width, height);
    context.lineCap = context.lineJoin = "round";
    context.lineWidth = width / 13;
    context.strokeStyle = "#1a2230";
    for (const stroke of strokes) {
      context.beginPath();
      for (const [x, y] of [stroke[0], ...stroke]) context.lineTo(x * width, y * height);
      context.stroke();
    }
    if (!cursor) return;
    context.beginPath();
    context.arc(pen.x * width, pen.y * height, width / 22, 0, 2 * Math.PI);
    context.lineWidth = 4;
    context.strokeStyle = pen.down ? "#b3211a" : "#0b5cc4";
    context.stroke();
  }

  function show(cursor) {
    draw(cursor);
    changed(strokes);
  }

  function clear(cursor = false) {
    strokes = [];
    pointer = null;
    pen.down = false;
    show(cursor);
  }

  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || pointer !== null) return;
    pointer = event.pointerId;
    canvas.setPointerCapture(pointer);
    strokes.push([place(event)]);
    show();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (event.pointerId !== pointer) return;
    const merged = event.getCoalescedEvents?.() ?? [];
    strokes.at(-1).push(...(merged.length ? merged : [event]).map(place));
    show();
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, (event) => {
      if (event.pointerId === pointer) pointer = null;
    });
  }

  const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Delete" || event.key === "Backspace") clear(true);
    else if (event.key === " ") {
      pen.down = !pen.down;
      if (pen.down) strokes.push([[pen.x, pen.y]]);
      show(true);
    } else if (event.key in moves) {
      const [x, y] = moves[event.key];
      pen.x = Math.min(0.95, Math.max(0.05, pen.x + x / 20));
      pen.y = Math.min(0.95, Math.max(0.05, pen.y + y / 20));
      if (pen.down) strokes.at(-1).push([pen.x, pen.y]);
      show(true);
    } else return;
    event.preventDefault();
  });
  canvas.addEventListener("focus", () => draw(canvas.matches(":focus-visible")));
  canvas.addEventListener("blur", () => {
    pen.down = false;
    draw();
  });
  return { clear };
}

// Draw counts on a canvas of 8 x 8 pixels.
export function drawCounts(canvas, counts) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(8, 8);
  for (let i = 0; i < 64; i++) {
    image.data.set([26, 34, 48, Math.round((255 * counts[i]) / 16)], 4 * i);
  }
  context.putImageData(image, 0, 0);
}
