// What the reader sees: the parts of all runs at `place`, a frame number that may lie between two frames.
// A column of the film is one number, or the first number and the packed differences from it.
const film = JSON.parse(document.getElementById("film").textContent);
const element = (id) => document.getElementById(id);
const unpack = (text) => new Float32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
const column = (told) => {
  if (typeof told === "number") return () => told;
  const values = unpack(told[1]);
  return (i) => told[0] + values[i];
};
const last = film.frames - 1;
const timeOf = column(film.times);
for (const copy of film.copies) {
  for (const part of copy.parts) for (const key of ["at", "turn", "size"]) part[key] = part[key].map(column);
}
const extent = Math.max(...film.high.map((x, i) => x - film.low[i]));
const mix = (a, b, share) => a + (b - a) * share;
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

// Between frames, places move along straight lines and rotations along the shorter arc.
function between(columns, frame) {
  const i = Math.min(Math.floor(frame), Math.max(last - 1, 0)), j = Math.min(i + 1, last), share = frame - i;
  return columns.map((value) => mix(value(i), value(j), share));
}
function matrix([a, b, c, w]) {
  const n = 2 / (a * a + b * b + c * c + w * w);
  return [
    1 - n * (b * b + c * c), n * (a * b - c * w), n * (a * c + b * w),
    n * (a * b + c * w), 1 - n * (a * a + c * c), n * (b * c - a * w),
    n * (a * c - b * w), n * (b * c + a * w), 1 - n * (a * a + b * b),
  ];
}

// ---- Shapes. Long faces are cut, because faces are sorted by the depth of their centres.
const solids = film.copies[0].parts.filter((part) => film.meshes[part.kind].faces.length && part.kind !== "tile");
const middle = (frame) => {
  const places = (solids.length ? solids : film.copies[0].parts).map((part) => between(part.at, frame));
  const good = places.filter((p) => p.every(Number.isFinite));
  return [0, 1, 2].map((i) => good.reduce((sum, p) => sum + p[i], 0) / Math.max(good.length, 1));
};
const centre = middle(0);
// The size of the thing that moves; particles have no size of their own.
const sized = solids.filter((part) => part.kind !== "point");
const body = !sized.length ? extent / 6 : Math.max(extent / 500, ...sized.map((part) => {
  const size = Math.max(...part.size.map((value) => value(0)));
  return size + 2 * Math.hypot(...part.at.map((value, i) => value(0) - centre[i])) || 0;
}));
function refined(part) {
  const mesh = film.meshes[part.kind], size = part.size.map((value) => Math.abs(value(0)));
  const corners = [...mesh.corners], faces = [];
  const corner = (i) => mesh.corners.slice(3 * i, 3 * i + 3);
  const pieces = (a, b) => clamp(Math.ceil(7 * Math.hypot(...a.map((x, i) => size[i] * (x - b[i]))) / body), 1, 8);
  mesh.faces.forEach((face, k) => {
    const [a, b, c, d] = face.map(corner);
    const [m, n] = d && mesh.faces.length < 60 ? [pieces(a, b), pieces(b, c)] : [1, 1];
    if (m * n === 1) return faces.push({ loop: face, paint: mesh.paints[k] });
    const start = corners.length / 3;
    for (let i = 0; i <= m; i++) for (let j = 0; j <= n; j++) {
      for (let e = 0; e < 3; e++) corners.push(mix(mix(a[e], b[e], i / m), mix(d[e], c[e], i / m), j / n));
    }
    for (let i = 0; i < m; i++) for (let j = 0; j < n; j++) {
      const at = start + i * (n + 1) + j;
      faces.push({ loop: [at, at + n + 1, at + n + 2, at + 1], paint: mesh.paints[k] });
    }
  });
  return { corners, faces, lines: mesh.lines };
}
for (const copy of film.copies) for (const part of copy.parts) part.mesh = refined(part);

// ---- The camera turns about a target, with a mild perspective.
const canvas = element("view"), context = canvas.getContext("2d");
const ghosts = document.createElement("canvas"), ghostly = ghosts.getContext("2d");
const wide = film.high[0] - film.low[0] >= film.high[1] - film.low[1];
const home = () => ({ azimuth: wide ? -1.15 : -0.42, elevation: film.floor ? 0.55 : 0.38, zoom: 1, x: 0, y: 0 });
const room = [0, 1, 2].map((i) => (film.low[i] + film.high[i]) / 2);
let camera = home(), place = 0, lens;
function look(eye, target, scale, x, y) {
  const [ca, sa, ce, se] = [Math.cos(eye.azimuth), Math.sin(eye.azimuth), Math.cos(eye.elevation), Math.sin(eye.elevation)];
  const axes = [-sa, ca, 0, -se * ca, -se * sa, ce, ce * ca, ce * sa, se], distance = 4 * extent;
  const turn = (p) => [0, 3, 6].map((r) => axes[r] * p[0] + axes[r + 1] * p[1] + axes[r + 2] * p[2]);
  const project = (p) => {
    const [u, v, depth] = turn([p[0] - target[0], p[1] - target[1], p[2] - target[2]]);
    const s = (scale * distance) / Math.max(distance - depth, 0.1 * distance);
    return { x: x + s * u, y: y - s * v, u, v, depth };
  };
  return { project, turn, target, scale };
}
function filled() {
  // The part of the first picture that the motion fills, in units of the scene.
  const flat = look(home(), room, 1, 0, 0), box = [Infinity, Infinity, -Infinity, -Infinity];
  const samples = Array.from({ length: Math.min(last + 1, 40) }, (_, i) => Math.round((i * last) / Math.min(last || 1, 39)));
  for (const part of film.copies.flatMap((copy) => copy.parts)) for (const frame of samples) {
    const posed = pose(part, frame), shape = film.meshes[part.kind];
    for (const p of posed([0, 0, 0, ...shape.corners, ...shape.lines.flat()]).map(flat.project)) {
      if (!Number.isFinite(p.x)) continue;
      [box[0], box[1], box[2], box[3]] = [Math.min(box[0], p.x), Math.min(box[1], p.y), Math.max(box[2], p.x), Math.max(box[3], p.y)];
    }
  }
  return box;
}
let box;
function aim(width, height) {
  const [left, top, right, bottom] = (box ||= filled()), following = element("follow").checked;
  const whole = Math.min(width / (right - left), height / (bottom - top)) * 0.84;
  const scale = camera.zoom * (following ? Math.max(whole, Math.min(width, height) / (5 * body)) : whole);
  const shift = following ? [0, 0] : [(left + right) / 2, (top + bottom) / 2].map((s) => s * scale);
  const target = following ? middle(place) : room;
  return look(camera, target, scale, width / 2 - shift[0] + camera.x, height / 2 - shift[1] + camera.y);
}

// ---- Colours. Dark ones are made lighter on a dark page.
const darkness = matchMedia("(prefers-color-scheme: dark)");
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
function ink(hex) {
  const colour = rgb(hex), bright = 0.3 * colour[0] + 0.6 * colour[1] + 0.1 * colour[2];
  return darkness.matches && bright < 110 ? colour.map((x) => mix(x, 235, 0.42 - bright / 400)) : colour;
}
const css = (colour, alpha = 1) => `rgba(${colour.map((x) => Math.round(clamp(x, 0, 255))).join(",")},${alpha})`;
let painted = new Map();
function paintOf(copy, part, paint) {
  if (!painted.has(part)) painted.set(part, []);
  const colour = () => ink(paint ? film.paints[paint] : part.colour || copy.colour);
  const ghost = () => colour().map((x, i) => mix(x, ink(copy.colour)[i], 0.55));
  return (painted.get(part)[paint] ||= copy === film.copies[0] ? colour() : ghost());
}
let grey;
function newTheme() {
  painted = new Map();
  grey = { grid: style("--grid"), shadow: style("--shadow"), soft: style("--soft"), line: style("--line") };
}
const light = [-0.25, -0.5, 0.83];

// ---- Drawing.
function trail(ctx, points, colour, thickness) {
  ctx.beginPath();
  points.forEach((p, i) => (Number.isFinite(p.x + p.y) && i ? ctx.lineTo(p.x, p.y) : ctx.moveTo(p.x, p.y)));
  Object.assign(ctx, { strokeStyle: colour, lineWidth: thickness, lineJoin: "round", lineCap: "round" });
  ctx.stroke();
}
function grid(width) {
  const span = width / lens.scale, power = 10 ** Math.floor(Math.log10(span / 16));
  const spacing = power * [1, 2, 5, 10].find((x) => x * power >= span / 16);
  const edge = element("follow").checked ? span : spacing;
  const [low, high] = [-1, 1].map((side) => [0, 1].map((i) => {
    const end = side < 0 ? film.low[i] - edge / 2 : film.high[i] + edge / 2, near = lens.target[i] + side * span;
    return Math.round((side < 0 ? Math.max(end, near) : Math.min(end, near)) / spacing);
  }));
  const line = (a, b) => trail(context, [[...a, 0], [...b, 0]].map(lens.project), grey.grid, 1);
  for (let i = low[0]; i <= high[0]; i++) line([i * spacing, low[1] * spacing], [i * spacing, high[1] * spacing]);
  for (let i = low[1]; i <= high[1]; i++) line([low[0] * spacing, i * spacing], [high[0] * spacing, i * spacing]);
}
function outline(points) {
  points.sort((a, b) => a.x - b.x || a.y - b.y);
  const half = (list) => list.reduce((hull, p) => {
    const left = ([a, b]) => (b.x - a.x) * (p.y - a.y) - (b.y - a.y) * (p.x - a.x) <= 0;
    while (hull.length > 1 && left(hull.slice(-2))) hull.pop();
    return [...hull, p];
  }, []);
  return [...half(points).slice(0, -1), ...half([...points].reverse()).slice(0, -1)];
}
function pose(part, frame = place) {
  const at = between(part.at, frame), size = between(part.size, frame), r = matrix(between(part.turn, frame));
  const space = (x, y, z) => {
    const [a, b, c] = [x * size[0], y * size[1], z * size[2]];
    return [at[0] + r[0] * a + r[1] * b + r[2] * c, at[1] + r[3] * a + r[4] * b + r[5] * c, at[2] + r[6] * a + r[7] * b + r[8] * c];
  };
  return (list) => Array.from({ length: list.length / 3 }, (_, i) => space(list[3 * i], list[3 * i + 1], list[3 * i + 2]));
}
function shadow(copy) {
  context.beginPath();
  for (const part of copy.parts) {
    if (!part.mesh.faces.length || part.kind === "tile") continue;
    const points = pose(part)(film.meshes[part.kind].corners).map((p) => lens.project([p[0] - light[0] * 0.35 * p[2], p[1] - light[1] * 0.35 * p[2], 0]));
    outline(points).forEach((p, i) => (i ? context.lineTo(p.x, p.y) : context.moveTo(p.x, p.y)));
  }
  context.fillStyle = grey.shadow;
  context.fill();
}
function traces(ctx, copy) {
  for (const part of copy.parts.filter((x) => x.kind === "trace")) {
    const colour = paintOf(copy, part, 0), until = Math.floor(place);
    const all = Array.from({ length: last + 1 }, (_, i) => lens.project(part.at.map((value) => value(i))));
    const now = lens.project(between(part.at, place));
    trail(ctx, [now, ...all.slice(until + 1)], css(colour, copy === film.copies[0] ? 0.22 : 0.4), 1.2);
    part.past = [...all.slice(0, until + 1), now];
    if (film.floor) trail(ctx, part.past, css(colour), 1.8);
  }
}
// A part that lies below all others, such as a turntable, is drawn before them and needs no sorting against them.
function base(copy) {
  const heights = copy.parts.filter((part) => part.kind !== "line").map((part) => {
    const points = pose(part)([0, 0, 0, ...film.meshes[part.kind].corners]).slice(part.mesh.faces.length ? 1 : 0);
    return { part, low: Math.min(...points.map((p) => p[2])), high: Math.max(...points.map((p) => p[2])) };
  });
  const below = ({ part, high }) => part.mesh.faces.length && heights.every((x) => x.part === part || high <= x.low + 0.01 * extent);
  return camera.elevation > 0 && heights.length > 1 ? heights.filter(below).map((x) => x.part) : [];
}
function solid(ctx, copies, wanted) {
  const items = [], bulb = lens.turn(light), seam = 0.9;
  for (const copy of copies) for (const part of copy.parts.filter((x) => wanted(copy, x))) {
    const posed = pose(part), hub = lens.project(posed([0, 0, 0])[0]);
    if (!Number.isFinite(hub.x)) continue;
    const corners = posed(part.mesh.corners).map(lens.project);
    for (const { loop, paint } of part.mesh.faces) {
      const p = loop.map((i) => corners[i]), [a, b, c, d] = [p[0], p[1], p[2], p[3] || p[0]];
      if ((c.x - a.x) * (d.y - b.y) - (c.y - a.y) * (d.x - b.x) >= 0) continue;
      const [u, v] = [[c.u - a.u, c.v - a.v, c.depth - a.depth], [d.u - b.u, d.v - b.v, d.depth - b.depth]];
      const normal = [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]];
      const slope = normal.reduce((sum, x, i) => sum + x * bulb[i], 0) / (Math.hypot(...normal) || 1);
      const shade = 0.78 + 0.3 * slope, clear = part.kind === "tile";
      const colour = paintOf(copy, part, paint).map((x) => (shade < 1 ? x * shade : mix(x, 255, shade - 1)));
      items.push({ p, depth: p.reduce((sum, x) => sum + x.depth, 0) / p.length, colour: css(colour, clear ? 0.5 : 1), clear });
    }
    const thick = part.kind === "sphere" ? 1 : part.kind === "line" ? 2 : 1.6;
    const lines = part.mesh.lines.map((line) => posed(line).map(lens.project));
    if (part.past && !film.floor) lines.push(part.past);
    for (const p of lines) {
      const colour = paintOf(copy, part, 0);
      for (let i = 1; i < p.length; i++) {
        const depth = (p[i].depth + p[i - 1].depth) / 2, behind = part.kind === "sphere" && depth < hub.depth;
        items.push({ p: [p[i - 1], p[i]], depth: part.kind === "line" ? -Infinity : depth, colour: css(colour, behind ? 0.35 : 1), thick });
      }
    }
  }
  // Neighbours of one colour make one path, because the canvas is much faster with few paths.
  let open = null;
  const close = () => {
    if (!open) return;
    if (!open.thick) ctx.fill();
    if (!open.clear) ctx.stroke();
  };
  Object.assign(ctx, { lineJoin: "round", lineCap: "round" });
  for (const item of items.sort((a, b) => a.depth - b.depth)) {
    if (!open || open.colour !== item.colour || open.thick !== item.thick) {
      close();
      open = item;
      ctx.beginPath();
      ctx.fillStyle = ctx.strokeStyle = item.colour;
      ctx.lineWidth = item.thick || seam;
    }
    item.p.forEach((p, i) => (i ? ctx.lineTo(p.x, p.y) : ctx.moveTo(p.x, p.y)));
    if (!item.thick) ctx.closePath();
  }
  close();
}
function fitted(target, ctx, box) {
  const ratio = devicePixelRatio || 1, [w, h] = [box.clientWidth, box.clientHeight];
  const [width, height] = [Math.round(w * ratio), Math.round(h * ratio)];
  if (target.width !== width || target.height !== height) Object.assign(target, { width, height });
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, w, h);
  return [w, h];
}
function draw() {
  const [width, height] = fitted(canvas, context, canvas), [first, ...others] = film.copies;
  lens = aim(width, height);
  if (film.floor) grid(width), shadow(first);
  const bases = new Map(film.copies.map((copy) => [copy, base(copy)]));
  const raised = (copy, part) => !bases.get(copy).includes(part);
  solid(context, [first], (copy, part) => !raised(copy, part));
  if (others.length) {
    fitted(ghosts, ghostly, canvas);
    others.forEach((copy) => traces(ghostly, copy));
    solid(ghostly, others, raised);
    context.globalAlpha = 0.55;
    context.drawImage(ghosts, 0, 0, width, height);
    context.globalAlpha = 1;
  }
  traces(context, first);
  solid(context, [first], raised);
}
