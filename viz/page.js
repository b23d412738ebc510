"use strict";
// The page of a graph: pan, zoom, select a node, read its numbers; with a trace, its cuts. Everything shown is in #data.

const model = JSON.parse(document.getElementById("data").textContent);
const nodes = new Map(model.nodes.map((node) => [node.id, node]));
const svg = document.querySelector("#graph svg");
const graph = document.getElementById("graph");
const drawn = new Map([...svg.querySelectorAll("g.node, g.edge")].map((group) => [group.id, group]));

// Elements. Text from the model only ever becomes text nodes and attributes, never markup.

function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function button(text, onClick, options = {}) {
  const made = element("button", { type: "button", ...options }, text);
  made.addEventListener("click", onClick);
  return made;
}

function link(id) {
  return button(nodes.get(id).label, () => select(id, true), { class: "link" });
}

// Numbers

function format(x) {
  if (x === null) return "not computed";
  if (typeof x === "boolean") return x ? "✓" : "·";
  if (typeof x === "string") return x.replace("Infinity", "∞").replace("-", "−");
  const size = Math.abs(x);
  const text = Number.isInteger(x) && size < 1e6 ? String(x) : size >= 1e-3 && size < 1e5 ? x.toFixed(4) : x.toExponential(2);
  return text.replaceAll("-", "−");
}

function signed(x) {
  const sign = typeof x === "number" && x !== 0 ? (x > 0 ? "plus-text" : "minus-text") : "faint";
  return element("span", { class: sign, title: x }, (x > 0 ? "+" : "") + format(x));
}

function table(array, caption, entry = null) {
  const made = element("table", { "aria-label": caption }, ...rows(array, entry));
  return element("div", { class: "scroll" }, element("p", { class: "caption" }, caption), made);
}

function rows(array, entry) {
  if (array === null) return [note("not computed")];
  if (!array.rows.length) return [note("empty")];
  const largest = Math.max(...array.rows.flat().filter(Number.isFinite).map(Math.abs));
  const made = [];
  if (array.shape.length) {
    made.push(element("tr", {}, element("th"), ...array.rows[0].map((_, i) => element("th", { scope: "col" }, i))));
  }
  array.rows.forEach((row, r) => {
    const index = rowIndex(array.shape, r);
    const cells = row.map((x, c) => {
      const cell = element("td", { title: x }, format(x));
      if (x === 0 || x === false) cell.classList.add("zero");
      else if (Number.isFinite(x)) {
        cell.classList.add(x > 0 ? "plus" : "minus");
        cell.style.setProperty("--heat", `${Math.round((38 * Math.abs(x)) / largest)}%`);
      }
      if (entry && entry.join() === (array.shape.length ? [...index, c] : []).join()) cell.classList.add("entry");
      return cell;
    });
    made.push(element("tr", {}, element("th", { scope: "row" }, index.join()), ...cells));
  });
  if (!array.whole) {
    const { min, max, mean, norm } = array.summary;
    made.push(note(`a corner of ${shape(array)}: ${format(min)} … ${format(max)}, mean ${format(mean)}, norm ${format(norm)}`));
  }
  return made;
}

function note(text) {
  return element("tr", {}, element("td", { class: "zero", colspan: 99 }, text));
}

/** The index of a row among all axes but the last. */
function rowIndex(shape, row) {
  const index = [];
  for (const size of shape.slice(0, -1).reverse()) {
    index.unshift(row % size);
    row = Math.floor(row / size);
  }
  return index;
}

function shape(array) {
  return array.shape.length ? array.shape.join("×") : "a number";
}

// The panel of one node

function showNode(node) {
  const panel = document.getElementById("node");
  panel.replaceChildren(element("h2", {}, node.label));
  if (node.path !== node.label) panel.append(element("p", { class: "faint" }, node.path));
  if (node.kind === "fold") {
    panel.append(element("p", {}, `${node.operation}, folded into one box:`));
    const rest = node.hidden - node.members.length;
    panel.append(element("code", {}, node.members.join(", ") + (rest ? `, and ${rest} more` : "")));
  } else {
    panel.append(element("code", {}, node.forward || node.label));
    panel.append(element("p", { class: "faint" }, [node.kind, shape(node), node.dtype].join(", ")));
    if (node.source) {
      const where = `${node.source.file}:${node.source.line}, in ${node.source.function}`;
      panel.append(element("code", { class: "source" }, element("span", {}, where), node.source.text));
    }
    panel.append(element("h3", {}, "In numbers"), arrays(node));
  }
  panel.append(...connections(node));
}

function arrays(node) {
  const entry = model.entry && model.entry.node === node.id ? model.entry.index : null;
  const all = element("div", { class: "arrays" });
  if (node.value) all.append(table(node.value, "value", entry));
  if (node.kind !== "constant") all.append(table(node.adjoint, `adjoint ∂L/∂${node.label}`, entry));
  if (node.tangent) all.append(table(node.tangent, `tangent ∂${node.label}/∂${model.entry.name}`, entry));
  if (node.flow) all.append(table(node.flow, `flow = adjoint · tangent, Σ = ${format(node.total)}`, entry));
  return all;
}

function connections(node) {
  const from = model.edges.filter((edge) => edge.tail === node.id);
  const to = model.edges.filter((edge) => edge.head === node.id);
  const made = [];
  if (from.length && node.kind !== "constant") {
    const many = from.length > 1 ? `, a sum of ${from.length} contributions` : "";
    made.push(element("h3", {}, `Where ∂L/∂${node.label} comes from${many}`), ...from.map((edge) => contribution(edge, edge.head)));
  }
  if (to.length) {
    made.push(element("h3", {}, "What it passes back to its inputs"), ...to.map((edge) => contribution(edge, edge.tail)));
  }
  return made;
}

function contribution(edge, other) {
  const rule = nodes.get(edge.head).rules[edge.position];
  const made = element("div", { class: rule ? "contribution" : "contribution none" }, link(other), " ");
  if (edge.flow !== null) made.append(" carries ", signed(edge.flow));
  if (rule) made.append(element("p", {}, element("code", {}, rule)));
  else if (nodes.get(edge.tail).kind === "constant") made.append(element("span", { class: "faint" }, "a constant: no gradient"));
  if (edge.contribution) made.append(table(edge.contribution, "contribution"));
  return made;
}

// Selecting

let selected = null;

function select(id, moveFocus = false) {
  if (!nodes.has(id) || !drawn.has(id)) return;
  if (selected) {
    drawn.get(selected).classList.remove("selected");
    drawn.get(selected).setAttribute("tabindex", "-1");
  }
  selected = id;
  const group = drawn.get(id);
  group.classList.add("selected");
  group.setAttribute("tabindex", "0");
  for (const edge of model.edges) {
    drawn.get(edge.id)?.classList.toggle("touching", edge.tail === id || edge.head === id);
  }
  showTab("node");
  showNode(nodes.get(id));
  bringIntoView(group);
  if (moveFocus) group.focus({ preventScroll: true });
}

for (const [id, group] of drawn) {
  const real = nodes.has(id) ? id : model.edges.find((edge) => `s${edge.id}` === id)?.tail; // a stub stands for its node
  if (!real || !group.classList.contains("node")) continue;
  group.setAttribute("role", "button");
  group.setAttribute("tabindex", "-1");
  group.setAttribute("aria-label", group.querySelector("title")?.textContent ?? id);
  group.addEventListener("click", () => moved || select(real, true));
  group.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") select(real, true);
  });
}
svg.setAttribute("role", "group");
svg.classList.toggle("plain", !model.entry); // with a trace the edges' colours mean their flow

// Moving from node to node: up and down along the edges, left and right to what is drawn there.

function centre(id) {
  const box = drawn.get(id).getBoundingClientRect();
  return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
}

function neighbour(key) {
  const here = centre(selected);
  const offset = (id) => ({ x: centre(id).x - here.x, y: centre(id).y - here.y });
  if (key === "ArrowUp" || key === "ArrowDown") {
    const [near, far] = key === "ArrowUp" ? ["head", "tail"] : ["tail", "head"];
    const connected = model.edges.filter((edge) => edge[near] === selected).map((edge) => edge[far]);
    return nearest(connected, (id) => Math.abs(offset(id).x) + Math.abs(offset(id).y));
  }
  const side = key === "ArrowLeft" ? -1 : 1;
  const beside = [...nodes.keys()].filter((id) => drawn.has(id) && offset(id).x * side > 1 && Math.abs(offset(id).y) < offset(id).x * side);
  return nearest(beside, (id) => Math.abs(offset(id).x) + 2 * Math.abs(offset(id).y));
}

function nearest(ids, distance) {
  return ids.reduce((best, id) => (best === null || distance(id) < distance(best) ? id : best), null);
}

graph.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key.startsWith("Arrow") && selected) {
    const next = neighbour(event.key);
    if (next) select(next, true);
  } else if (event.key === "+" || event.key === "=") zoom(0.8);
  else if (event.key === "-") zoom(1.25);
  else if (event.key === "0") fit();
  else return;
  event.preventDefault();
});

// Pan and zoom, by the view box

const whole = { ...box(svg.viewBox.baseVal) };
let view = { ...whole };
let moved = false; // whether the pointer has moved since it was pressed: then it is no click

function box({ x, y, width, height }) {
  return { x, y, width, height };
}

function look(next) {
  view = next;
  svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`);
}

/** Graph units in one pixel of the screen. */
function unit() {
  const { width, height } = graph.getBoundingClientRect();
  return Math.max(view.width / width, view.height / height);
}

/** A point of the screen in the units of the graph. */
function place(x, y) {
  return new DOMPoint(x, y).matrixTransform(svg.getScreenCTM().inverse());
}

function zoom(factor, x = null, y = null) {
  const frame = graph.getBoundingClientRect();
  const at = place(x ?? frame.x + frame.width / 2, y ?? frame.y + frame.height / 2);
  const f = Math.min(Math.max(factor, 30 / view.width), (4 * Math.max(whole.width, whole.height)) / Math.max(view.width, view.height));
  look({ x: at.x + (view.x - at.x) * f, y: at.y + (view.y - at.y) * f, width: view.width * f, height: view.height * f });
}

/** The whole graph; of one too big to read so, what is around the selected node. */
function fit() {
  look({ ...whole });
  if (unit() < 1.6) return;
  const frame = graph.getBoundingClientRect();
  const scale = Math.min(Math.max(whole.width / frame.width, 0.8), 1.3);
  look({ x: whole.x, y: whole.y, width: frame.width * scale, height: frame.height * scale });
  lookAt(drawn.get(selected ?? model.entry?.node ?? model.output));
}

function bringIntoView(group) {
  const frame = graph.getBoundingClientRect();
  const inner = group.getBoundingClientRect();
  const inside = inner.left >= frame.left && inner.right <= frame.right && inner.top >= frame.top && inner.bottom <= frame.bottom;
  if (!inside) lookAt(group);
}

/** Bring a node to the middle, or as near as the edge of the graph lets it. */
function lookAt(group) {
  const inner = group.getBoundingClientRect();
  const at = place(inner.x + inner.width / 2, inner.y + inner.height / 2);
  const within = (middle, size, start, end) =>
    size > end - start ? (start + end - size) / 2 : Math.min(Math.max(middle - size / 2, start), end - size);
  const x = within(at.x, view.width, whole.x, whole.x + whole.width);
  const y = within(at.y, view.height, whole.y, whole.y + whole.height);
  look({ ...view, x, y });
}

graph.addEventListener("wheel", (event) => {
  event.preventDefault();
  zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.004), event.clientX, event.clientY);
}, { passive: false });

graph.addEventListener("pointerdown", (event) => {
  moved = false;
  const start = { x: event.clientX, y: event.clientY, view };
  const scale = unit();
  const move = (now) => {
    const [dx, dy] = [now.clientX - start.x, now.clientY - start.y];
    if (!moved && Math.hypot(dx, dy) < 4) return;
    moved = true;
    graph.classList.add("dragged");
    look({ ...start.view, x: start.view.x - dx * scale, y: start.view.y - dy * scale });
  };
  const stop = () => {
    graph.classList.remove("dragged");
    setTimeout(() => (moved = false)); // after the click that follows
    window.removeEventListener("pointermove", move);
  };
  window.addEventListener("pointermove", move);
  window.addEventListener("pointerup", stop, { once: true });
  window.addEventListener("pointercancel", stop, { once: true });
});

document.getElementById("closer").addEventListener("click", () => zoom(0.8));
document.getElementById("farther").addEventListener("click", () => zoom(1.25));
document.getElementById("fit").addEventListener("click", fit);

// Cuts of a trace

function showCuts() {
  const panel = document.getElementById("cuts");
  panel.replaceChildren(
    element("h2", {}, `${model.title} = ${format(model.entry.total)}`),
    ...(model.entry.index ? [] : [element("p", { class: "faint" }, "The squared norm of the gradient: how fast the loss changes along it.")]),
    element("p", { class: "faint" }, "At each cut between the entry and the loss the flows sum to this."),
    ...model.cuts.flatMap((cut) => [cutButton(cut), element("div", { hidden: "" })]),
    element("p", { class: "faint" }, `Largest imbalance at any node or cut: ${format(model.entry.residual)}`),
  );
}

function cutButton(cut) {
  const count = cut.terms.length + cut.more;
  const about = `${count} term${count === 1 ? "" : "s"}, cancellation ${format(cut.cancellation)}`;
  const made = button("", () => showCut(made, cut), { class: "cut-button", "aria-pressed": "false" });
  made.append(element("b", {}, cut.name), element("span", {}, about));
  return made;
}

function showCut(pressed, cut) {
  const open = pressed.getAttribute("aria-pressed") === "false";
  for (const other of document.querySelectorAll(".cut-button")) {
    other.setAttribute("aria-pressed", String(open && other === pressed));
    other.nextElementSibling.hidden = !(open && other === pressed);
  }
  svg.classList.toggle("cutting", open);
  for (const [id, group] of drawn) {
    group.classList.toggle("cut", open && (cut.nodes.includes(id) || cut.edges.includes(id) || cut.edges.includes(id.slice(1))));
  }
  if (!open) return;
  pressed.nextElementSibling.replaceChildren(bars(cut));
  bringIntoView(drawn.get(cut.nodes[0]));
}

/** The terms of a cut as bars to the right (+) and to the left (−), and their sum. */
function bars(cut) {
  const terms = cut.more ? [...cut.terms, [`${cut.more} more`, cut.rest]] : cut.terms;
  const largest = Math.max(...[...terms.map(([, x]) => x), cut.total].filter(Number.isFinite).map(Math.abs), 1e-300);
  const made = element("div", { class: "bars" });
  for (const [name, x] of [...terms, ["sum", cut.total]]) {
    const sum = name === "sum" ? " sum" : "";
    const bar = element("i", { class: x < 0 ? "minus" : "plus" });
    bar.style.width = `${Number.isFinite(x) ? (50 * Math.abs(x)) / largest : 0}%`;
    made.append(
      element("span", { class: `label${sum}` }, sum ? "Σ" : name),
      element("span", { class: "bar" }, bar),
      element("span", { class: `number${sum}` }, signed(x)),
    );
  }
  return made;
}

function showTab(name) {
  for (const tab of ["node", "cuts"]) {
    document.getElementById(tab).hidden = tab !== name;
    document.getElementById(`tab-${tab}`).setAttribute("aria-selected", String(tab === name));
  }
  const cut = document.querySelector('.cut-button[aria-pressed="true"]');
  svg.classList.toggle("cutting", name === "cuts" && cut !== null);
}

// Light and dark

function theme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  document.getElementById("theme").textContent = dark ? "Light" : "Dark";
}

document.getElementById("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme !== "dark"));
theme(window.matchMedia("(prefers-color-scheme: dark)").matches);

// Start

const folded = model.hidden ? `, ${model.hidden.toLocaleString("en")} of them folded` : "";
const about = document.getElementById("about");
about.append(`${model.size.toLocaleString("en")} nodes${folded}`);
if (model.entry) {
  const sign = (name, text) => element("span", { class: `${name}-text` }, text);
  about.append(". Edges carry the flow, ∂L/∂n · tangent: ", sign("plus", "blue +"), ", ", sign("minus", "orange −"), ", dashed 0");
}
fit();
select(model.entry ? model.entry.node : model.output);
if (model.entry) {
  document.getElementById("tabs").hidden = false;
  document.getElementById("tab-node").addEventListener("click", () => showTab("node"));
  document.getElementById("tab-cuts").addEventListener("click", () => showTab("cuts"));
  showCuts();
  showTab("cuts");
}
