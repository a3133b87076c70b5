"""How the page looks, by day and by night, and what it does when one points at the map."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1b1f24; --soft: #59636e; --line: #d5dbe1; --idle: #eceff2;
  --forward: #2f6db5; --forward-odd: #7fb0e3; --backward: #c2601b; --backward-odd: #eda56c; --weights: #2c8a57;
  --weights-odd: #7fc9a0; --other: #7a6ba8; --real: #2c8a57; --recorded: #2f6db5; --replayed: #7a6ba8;
  --modelled: #c79a1e; --assumed: #b4472f; }
@media (prefers-color-scheme: dark) { :root { --page: #14181d; --ink: #e3e8ee; --soft: #9aa6b2; --line: #333b44;
  --idle: #232a31; --forward: #4f8fd8; --forward-odd: #2f5f96; --backward: #dd8240; --backward-odd: #94562a;
  --weights: #43a873; --weights-odd: #2b6d4b; --other: #9385c4; --real: #43a873; --recorded: #4f8fd8;
  --replayed: #9385c4; --modelled: #d9b03f; --assumed: #d4644b; } }
body { margin: 0 auto; max-width: 1400px; padding: 1.5rem; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .2rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem; }
p { margin: .35rem 0; } .soft, .legend, .map p, #pointed, .scale { color: var(--soft); }
.cards { display: flex; flex-wrap: wrap; gap: 1.5rem; margin: 1rem 0; }
.cards div { border-left: 3px solid var(--line); padding-left: .7rem; }
.cards b { display: block; font-size: 1.35rem; font-weight: 600; } .cards span { color: var(--soft); }
.stacked { display: flex; align-items: center; max-width: 900px; } .stacked b { width: 4rem; font-weight: 500; }
.stack { display: flex; flex: 1; height: 14px; margin: .3rem 0; border-radius: 3px; overflow: hidden; }
.stack span { display: block; height: 100%; }
.wide { overflow-x: auto; } svg { display: block; width: 100%; min-width: 900px; }
svg text { font: 11px system-ui, sans-serif; fill: var(--ink); } svg .figures { fill: var(--soft); }
.tick { stroke: var(--soft); } .idle { fill: var(--idle); background: var(--idle); }
.forward { fill: var(--forward); background: var(--forward); } .forward.odd { fill: var(--forward-odd); }
.backward { fill: var(--backward); background: var(--backward); } .backward.odd { fill: var(--backward-odd); }
.weights { fill: var(--weights); background: var(--weights); } .weights.odd { fill: var(--weights-odd); }
.other { fill: var(--other); background: var(--other); }
.real { background: var(--real); } .recorded { background: var(--recorded); } .modelled { background: var(--modelled); }
.replayed { background: var(--replayed); } .assumed { background: var(--assumed); }
.mark { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-left: .6em; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .2rem .9rem .2rem 0; white-space: nowrap; }
th { color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line); }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td:has(> .bar) { min-width: 180px; } .bar { display: inline-block; height: .75em; min-width: 1px; }
.bar.path { background: var(--forward); }
#heat > input { position: absolute; opacity: 0; }
#heat > label { display: inline-block; padding: .2rem .8rem; border: 1px solid var(--line); cursor: pointer; }
#heat > input:checked + label { background: var(--ink); color: var(--page); }
#heat > input:focus-visible + label { outline: 2px solid var(--forward); }
.map { display: none; margin-top: .5rem; }
#measure-wait:checked ~ .measure-wait, #measure-arrival:checked ~ .measure-arrival,
#measure-memory:checked ~ .measure-memory, #measure-compute:checked ~ .measure-compute { display: block; }
.grid { display: flex; gap: .6rem; } .grid img { flex: 1; min-width: 0; image-rendering: pixelated; cursor: crosshair; }
.rows { display: flex; flex-direction: column; justify-content: space-around; text-align: right; min-width: 5rem;
  font-size: 11px; line-height: 1; color: var(--soft); }
.columns { display: flex; justify-content: space-between; margin-left: 5.6rem; font-size: 11px; color: var(--soft); }
.ramp { display: inline-block; width: 160px; height: .7em; background: linear-gradient(90deg, #440154, #472c7a, #3b518b,
  #2c718e, #21908d, #27ad81, #5cc863, #aadc32, #fde725); }
ul { margin: .3rem 0; padding-left: 1.2rem; }
@media print { .map { display: block; } }
"""

SCRIPT = """
const heat = document.getElementById("heat"), pointed = document.getElementById("pointed");
const axes = JSON.parse(heat.dataset.axes), world = axes.reduce((n, a) => n * a.size, 1);
const units = { ns: [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]],
  bytes: [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]] };
function say(value, unit) {
  const [size, name] = units[unit].find(([size]) => value >= size) || units[unit].at(-1);
  return Number((value / size).toPrecision(4)) + " " + name;
}
for (const image of heat.querySelectorAll("img")) {
  const raw = Uint8Array.from(atob(image.dataset.values), c => c.charCodeAt(0));
  const values = new DataView(raw.buffer), least = +image.dataset.least, most = +image.dataset.most;
  image.addEventListener("mousemove", event => {
    const box = image.getBoundingClientRect(), columns = image.naturalWidth, rows = image.naturalHeight;
    const column = Math.min(Math.floor((event.clientX - box.left) / box.width * columns), columns - 1);
    const row = Math.min(Math.floor((event.clientY - box.top) / box.height * rows), rows - 1);
    const rank = Math.max(row, 0) * columns + Math.max(column, 0);
    if (!(rank < world)) return;
    let left = rank;
    const place = axes.slice().reverse().map(axis => {
      const at = left % axis.size;
      left = (left - at) / axis.size;
      return axis.name + "=" + at;
    });
    const value = least + values.getUint16(2 * rank, true) / 65535 * (most - least);
    pointed.textContent = "rank " + rank + " (" + place.reverse().join(" ") + "): " + say(value, image.dataset.unit);
  });
}
"""
