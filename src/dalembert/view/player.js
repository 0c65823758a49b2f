// What the reader does: curves beside the picture, playing, turning. It follows player_scene.js in the page's script.

// ---- Panels: curves on log axes, drawn when the page changes. The cursor is an element that moves.
const digits = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079";
const superscript = (n) => (n < 0 ? "\u207b" : "") + [...String(Math.abs(n))].map((c) => digits[c]).join("");
const short = (x) => String(Number(x.toPrecision(6)));
const [from, to] = [timeOf(0), timeOf(last)];
const add = (parent, kind, text = "") => parent.appendChild(Object.assign(document.createElement(kind), { textContent: text }));
const plots = film.panels.map((panel) => {
  const section = add(element("panels"), "section");
  add(section, "h2", panel.title);
  const box = add(section, "div"), picture = add(box, "canvas"), cursor = add(box, "b");
  box.className = "plot";
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", `${panel.title} against time, on a log axis`);
  const curves = panel.curves.map((c) => ({ ...c, t: unpack(c.t), y: unpack(c.y).map(Math.log10) }));
  const ends = (key) => curves.flatMap((c) => [...c[key]]).filter(Number.isFinite).reduce(([a, b], x) => [Math.min(a, x), Math.max(b, x)], [Infinity, -Infinity]);
  const [start, stop] = ends("t"), span = ends("y"), low = Math.floor(span[0]), high = Math.max(Math.ceil(span[1]), low + 1);
  return { picture, cursor, curves, start: Math.min(start, from), stop, low, high };
});
function chart({ picture, curves, start, stop, low, high }) {
  const ctx = picture.getContext("2d"), [w, h] = fitted(picture, ctx, picture), [left, right, top, bottom] = [40, w - 8, 6, h - 20];
  const x = (t) => mix(left, right, (t - start) / (stop - start)), y = (e) => mix(bottom, top, (e - low) / (high - low));
  if (to - from < 0.98 * (stop - start)) {
    ctx.fillStyle = css(ink("#0072b2"), 0.09);
    ctx.fillRect(x(from), top, x(to) - x(from), bottom - top);
  }
  Object.assign(ctx, { font: "11px system-ui, sans-serif", fillStyle: grey.soft, textAlign: "right", textBaseline: "middle" });
  for (let e = low, every = Math.ceil((high - low) / 5); e <= high; e += every) {
    trail(ctx, [{ x: left, y: y(e) }, { x: right, y: y(e) }], grey.line, 1);
    ctx.fillText("10" + superscript(e), left - 5, y(e));
  }
  const power = 10 ** Math.floor(Math.log10((stop - start) / 6)), step = power * [1, 2, 5, 10].find((n) => n * power >= (stop - start) / 6);
  Object.assign(ctx, { textAlign: "center", textBaseline: "bottom" });
  for (let t = Math.ceil(start / step) * step; t <= stop; t += step) ctx.fillText(short(t), clamp(x(t), left, right - 9), h - 2);
  for (const c of [...curves].reverse()) {
    ctx.setLineDash({ "--": [5, 3], ":": [1.5, 3] }[c.dash] || []);
    trail(ctx, Array.from(c.t, (t, i) => ({ x: x(t), y: y(c.y[i]) })), css(ink(c.colour)), 1.3);
  }
  ctx.setLineDash([]);
}

// ---- Playing.
let playing = false, before = 0, queued = false;
const decimals = clamp(1 - Math.floor(Math.log10((to - from) / Math.max(last, 1) || 1)), 0, 4);
const beyond = film.end > to + 1e-9 * Math.abs(to) ? ` (run goes to ${Number(film.end.toFixed(decimals))})` : "";
const timeNow = () => between([timeOf], place)[0];
function show() {
  draw();
  const now = timeNow(), told = `t = ${now.toFixed(decimals)} of ${Number(to.toFixed(decimals))}${beyond}`;
  element("clock").value = told;
  element("scrub").value = place;
  element("scrub").setAttribute("aria-valuetext", told);
  for (const { cursor, picture, start, stop } of plots) {
    cursor.style.left = `${mix(40, picture.clientWidth - 8, (now - start) / (stop - start))}px`;
  }
}
function tick(now) {
  queued = false;
  if (playing) place += (Math.min(now - before, 100) / 1000) * film.fps * Number(element("speed").value);
  before = now;
  if (place > last && playing) element("loop").checked && last ? (place %= last) : play(false);
  place = clamp(place, 0, last);
  show();
  if (playing) redraw();
}
function redraw() {
  if (!queued) queued = Boolean(requestAnimationFrame(tick));
}
function play(on) {
  if (on && place >= last) place = 0;
  [playing, before] = [on, performance.now()];
  element("play").classList.toggle("playing", on);
  element("play").setAttribute("aria-label", on ? "pause" : "play");
  redraw();
}
function go(frame) {
  place = clamp(frame, 0, last);
  redraw();
}
function seek(t) {
  let i = 0;
  while (i < last - 1 && timeOf(i + 1) <= t) i++;
  go(last ? i + (t - timeOf(i)) / (timeOf(i + 1) - timeOf(i)) : 0);
}
element("play").addEventListener("click", () => play(!playing));
element("scrub").addEventListener("input", () => (play(false), go(Number(element("scrub").value))));
element("follow").addEventListener("change", () => ((camera = { ...camera, zoom: 1, x: 0, y: 0 }), redraw()));
document.addEventListener("keydown", (event) => {
  const keys = { ArrowRight: () => go(Math.floor(place + 1)), ArrowLeft: () => go(Math.ceil(place - 1)), Home: () => go(0), End: () => go(last) };
  if (event.key === " " && !event.target.closest("button, select, [type=checkbox]")) play(!playing);
  else if (keys[event.key] && !event.target.closest("select")) play(false), keys[event.key]();
  else return;
  event.preventDefault();
});

// ---- Turning and zooming, by mouse and by fingers.
const fingers = new Map();
const gap = () => { const [a, b] = fingers.values(); return Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY); };
function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const kept = clamp(camera.zoom * factor, 0.2, 80) / camera.zoom;
  camera.zoom *= kept;
  camera.x = kept * camera.x + (1 - kept) * (x - canvas.clientWidth / 2);
  camera.y = kept * camera.y + (1 - kept) * (y - canvas.clientHeight / 2);
  redraw();
}
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  fingers.set(event.pointerId, event);
  element("hint").classList.add("seen");
});
canvas.addEventListener("pointermove", (event) => {
  const old = fingers.get(event.pointerId);
  if (!old) return;
  const [dx, dy, apart] = [event.clientX - old.clientX, event.clientY - old.clientY, fingers.size === 2 && gap()];
  fingers.set(event.pointerId, event);
  if (apart) zoom(gap() / apart);
  if (apart || event.shiftKey || event.buttons & 2) {
    camera.x += apart ? dx / 2 : dx;
    camera.y += apart ? dy / 2 : dy;
  } else {
    camera.azimuth -= 0.008 * dx;
    camera.elevation = clamp(camera.elevation + 0.008 * dy, film.floor ? 0.04 : -1.57, 1.57);
  }
  redraw();
});
for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, (event) => fingers.delete(event.pointerId));
canvas.addEventListener("contextmenu", (event) => event.preventDefault());
canvas.addEventListener("dblclick", () => ((camera = home()), redraw()));
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(Math.exp(-0.0015 * event.deltaY), event.offsetX, event.offsetY);
}, { passive: false });

// ---- The page.
document.title = film.title || "dalembert";
element("title").textContent = film.title;
element("note").textContent = film.note;
element("scrub").max = last;
element("follow").checked = body < 0.03 * extent;
canvas.setAttribute("aria-label", `${film.title} in motion: ${film.copies.map((copy) => copy.label).join(", ")}`);
const swatches = film.copies.length < 2 ? [] : film.copies.map((copy) => {
  const item = add(element("legend"), "li"), swatch = add(item, "i");
  const curve = film.panels.flatMap((panel) => panel.curves).find((c) => c.label === copy.label);
  swatch.style.borderTopStyle = { "--": "dashed", ":": "dotted" }[curve && curve.dash] || "solid";
  item.append(copy.label);
  return () => (swatch.style.borderTopColor = css(ink(copy.colour)));
});
function restyle() {
  newTheme();
  swatches.forEach((paint) => paint());
  plots.forEach(chart);
  redraw();
}
new ResizeObserver(restyle).observe(element("stage"));
darkness.addEventListener("change", restyle);
restyle();
play(last > 0 && !matchMedia("(prefers-reduced-motion: reduce)").matches);
window.player = {
  get time() { return timeNow(); },
  get frame() { return Math.floor(place); },
  get playing() { return playing; },
  seek,
};
