"use strict";
// Draws the panels that the page carries as JSON. Text goes in as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.getElementById("charts");
  if (!root) return;
  const NS = "http://www.w3.org/2000/svg";
  const HEIGHT = 190, TOP = 16, BOTTOM = 22, RIGHT = 10;
  const charts = [];

  const node = (parent, name, attributes, text) => {
    const made = parent.namespaceURI === NS || name === "svg"
      ? document.createElementNS(NS, name) : document.createElement(name);
    for (const key in attributes || {}) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    parent.appendChild(made);
    return made;
  };

  const trim = (x) => {
    const a = Math.abs(x);
    return x.toFixed(a >= 100 || Number.isInteger(x) ? 0 : a >= 10 ? 1 : a >= 1 ? 2 : 3).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
  };
  const scaled = (x, steps, base) => {
    let at = 0;
    while (Math.abs(x) >= base && at < steps.length - 1) { x /= base; at += 1; }
    return trim(x) + steps[at];
  };
  const show = (x, unit) => {
    if (x === null || x === undefined) return "\u2013";
    if (unit === "s") {
      const a = Math.abs(x);
      return a === 0 ? "0" : a < 1e-3 ? trim(x * 1e6) + " \u00b5s" : a < 1 ? trim(x * 1e3) + " ms" : trim(x) + " s";
    }
    if (unit === "part") return trim(x * 100) + " %";
    if (unit.startsWith("bytes")) {
      return scaled(x, [" B", " KiB", " MiB", " GiB", " TiB"], 1024) + unit.slice(5);
    }
    const number = scaled(x, ["", "k", "M", "G", "T"], 1000);
    return unit === "1/s" ? number + "/s" : unit ? number + " " + unit : number;
  };
  const clock = (s) => {
    s = Math.round(s);
    const two = (n) => String(n).padStart(2, "0");
    return s >= 3600 ? Math.floor(s / 3600) + ":" + two(Math.floor(s / 60) % 60) + ":" + two(s % 60)
      : Math.floor(s / 60) + ":" + two(s % 60);
  };

  // Round numbers that cover 0 to max in three to six steps.
  const ticksOf = (max, unit) => {
    const base = unit.startsWith("bytes") ? Math.pow(1024, Math.max(0, Math.floor(Math.log(max) / Math.log(1024)))) : 1;
    const rough = max / base / 4;
    const power = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 2.5, 5, 10].find((m) => m * power >= rough * 0.999) * power * base;
    const ticks = [];
    for (let t = 0; t <= max * 1.0001 + step * 0.5 && ticks.length < 9; t += step) ticks.push(t);
    if (ticks[ticks.length - 1] < max) ticks.push(ticks[ticks.length - 1] + step);
    return ticks;
  };
  const timeTicks = (length, width) => {
    const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];
    const step = steps.find((s) => length / s <= Math.max(2, width / 80)) || 86400 * Math.ceil(length / 86400 / 6);
    const ticks = [];
    for (let t = 0; t <= length; t += step) ticks.push(t);
    return ticks;
  };

  const range = (panel) => {
    let max = 0, least = Infinity;
    for (const line of panel.lines) for (const v of line.values) {
      if (v === null) continue;
      if (v > max) max = v;
      if (v > 0 && v < least) least = v;
    }
    return { max: max || 1, least: Number.isFinite(least) ? least : 1 };
  };

  const draw = (chart) => {
    const { panel, box, svg } = chart;
    const width = Math.max(240, box.clientWidth - 28);
    svg.textContent = "";
    svg.setAttribute("viewBox", "0 0 " + width + " " + HEIGHT);
    const { max, least } = range(panel);
    const log = panel.log && max / least > 50;
    chart.scale.textContent = log ? "logarithmic" : "";
    let ticks, y;
    const bottom = HEIGHT - BOTTOM;
    if (log) {
      const from = Math.floor(Math.log10(least)), to = Math.ceil(Math.log10(max));
      const every = Math.max(1, Math.ceil((to - from) / 5));
      ticks = [];
      for (let p = from; p <= to; p += every) ticks.push(Math.pow(10, p));
      const part = (v) => (Math.log10(Math.max(v, Math.pow(10, from))) - from) / Math.max(1, to - from);
      y = (v) => bottom - part(v) * (bottom - TOP);
    } else {
      ticks = ticksOf(max, panel.unit);
      const top = ticks[ticks.length - 1];
      y = (v) => bottom - (v / top) * (bottom - TOP);
    }
    const labels = ticks.map((t) => show(t, panel.unit));
    const left = Math.min(96, 12 + 6.4 * Math.max(...labels.map((l) => l.length)));
    const x = (s) => left + (s / data.length_s) * (width - left - RIGHT);
    ticks.forEach((t, i) => {
      node(svg, "line", { class: "grid", x1: left, x2: width - RIGHT, y1: y(t), y2: y(t) });
      node(svg, "text", { x: left - 7, y: y(t) + 4, "text-anchor": "end" }, labels[i]);
    });
    for (const t of timeTicks(data.length_s, width - left)) {
      node(svg, "line", { class: "axis", x1: x(t), x2: x(t), y1: bottom, y2: bottom + 4 });
      node(svg, "text", { x: x(t), y: HEIGHT - 4, "text-anchor": "middle" }, clock(t));
    }
    let lastFlag = -Infinity;
    data.events.forEach((event, i) => {
      const at = Math.min(width - RIGHT, Math.max(left, x(event.at_s)));
      const line = node(svg, "line", { class: "mark " + event.kind, x1: at, x2: at, y1: TOP - 4, y2: bottom });
      node(line, "title", {}, clock(event.at_s) + " " + event.text);
      if (at - lastFlag >= 15) {
        node(svg, "text", { class: "flag " + event.kind, x: at, y: TOP - 6 }, String(i + 1));
        lastFlag = at;
      }
    });
    for (const line of panel.lines) {
      let path = "", pen = false, alone = null;
      line.values.forEach((v, i) => {
        if (v === null) {
          if (alone) path += "h0.01";
          pen = false; alone = null;
          return;
        }
        const point = x(Math.min(data.length_s, (i + 0.5) * line.step_s)).toFixed(1) + " " + y(v).toFixed(1);
        path += (pen ? "L" : "M") + point;
        alone = pen ? null : point;
        pen = true;
      });
      if (alone) path += "h0.01";
      const made = node(svg, "path", { d: path || "M0 0", stroke: "var(--c" + line.color + ")" });
      if (line.dash) made.setAttribute("class", "dash");
    }
    chart.cross = node(svg, "line", { class: "cross", y1: TOP - 4, y2: bottom, x1: -9, x2: -9, visibility: "hidden" });
    chart.left = left;
    chart.span = width - left - RIGHT;
    chart.width = width;
  };

  const point = (s) => {
    for (const chart of charts) {
      chart.cross.setAttribute("visibility", s === null ? "hidden" : "visible");
      if (s !== null) {
        const at = chart.left + (s / data.length_s) * chart.span;
        chart.cross.setAttribute("x1", at);
        chart.cross.setAttribute("x2", at);
      }
      chart.when.textContent = s === null ? "" : "at " + clock(s);
      chart.panel.lines.forEach((line, i) => {
        const value = s === null ? line.peak : line.values[Math.floor(s / line.step_s)];
        chart.values[i].textContent = (s === null ? "max " : "") + show(value, chart.panel.unit);
      });
    }
  };

  for (const panel of data.panels) {
    const box = node(root, "figure", { "data-panel": panel.title });
    const caption = node(box, "figcaption", {}, panel.title);
    const scale = node(caption, "small");
    const when = node(caption, "small");
    const legend = node(box, "div", { class: "legend" });
    const values = panel.lines.map((line) => {
      line.peak = line.values.reduce((a, v) => (v !== null && (a === null || v > a) ? v : a), null);
      const item = node(legend, "span");
      const swatch = node(item, "i", line.dash ? { class: "dash" } : {});
      swatch.style.color = "var(--c" + line.color + ")";
      node(item, "span", {}, line.label);
      return node(item, "b");
    });
    const svg = node(box, "svg", { role: "img", "aria-label": panel.title + " over time" });
    const chart = { panel, box, svg, scale, when, values };
    charts.push(chart);
    draw(chart);
    const follow = (event) => {
      const area = svg.getBoundingClientRect();
      const at = ((event.clientX - area.left) / area.width) * chart.width - chart.left;
      const part = at / chart.span;
      point(part < 0 || part > 1 ? null : Math.min(data.length_s - 1e-6, part * data.length_s));
    };
    svg.addEventListener("pointermove", follow);
    svg.addEventListener("pointerdown", follow);
    svg.addEventListener("pointerleave", () => point(null));
  }
  point(null);
  let waiting = false;
  addEventListener("resize", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; charts.forEach(draw); point(null); });
  });
  root.dataset.drawn = String(charts.length);
})();
