"use strict";
(function () {
  const data = JSON.parse(document.getElementById("film-data").textContent);
  const $ = (id) => document.getElementById(id);
  const el = (tag, text, cls) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (cls) made.className = cls;
    return made;
  };
  // Frames hold what changed only: put them together once.
  const frames = [];
  let state = {};
  for (const frame of data.frames) {
    state = Object.assign({}, state, frame.blocks);
    frames.push(Object.assign({}, frame, { state, changed: new Set(frame.changed) }));
  }
  const last = frames.length - 1;
  const violation = data.violation;
  const named = new Set(data.named);
  const colours = {};
  let seen = 0;
  const colour = (label) => {
    if (!(label in colours)) colours[label] = "c" + (seen++ % 6);
    return colours[label];
  };
  let at = violation;
  let playing = null;

  const nameOf = (key) => (key[0] === "h" ? "h" + key.slice(1) : key.slice(1));
  const wrongOf = (frame, block) => (frame.settled ? block.keys.filter((key) => key.wrong) : []);

  function glyph(block) {
    if (block.owners.length) {
      const labels = [...new Set(block.owners.map((owner) => owner[0].slice(1)))];
      return labels.length > 2 ? labels.length + "x" : labels.join("+");
    }
    if (block.pins.length) return "p";
    if (block.place !== null) return "\u00b7" + block.place;
    return block.refs ? "?" : "";
  }

  function cellText(key, frame) {
    const block = frame.state[key];
    const parts = ["block " + nameOf(key), block.refs + (block.refs === 1 ? " reference" : " references")];
    block.owners.forEach((owner) => parts.push(owner[0] + " g" + owner[1] + " column " + owner[2]));
    block.pins.forEach((pin) => parts.push(pin));
    if (block.place !== null) parts.push("free, place " + block.place);
    block.keys.forEach((k) => parts.push("key " + k.text + (k.wrong ? " (" + (frame.settled ? "wrong" : "not there yet") + ": " + k.wrong + ")" : "")));
    parts.push("bytes " + bytesOf(block));
    return parts.join("; ");
  }

  function bytesOf(block) {
    if (block.group === null) return "unwritten";
    return "g" + block.group + " " + [...new Set(block.ranks)].join(" | ");
  }

  // --- the picture --------------------------------------------------------------------------------------------------

  const cells = [];
  function draw() {
    const table = $("film");
    const head = el("tr");
    head.append(el("th", "block", "block"));
    frames.forEach((frame, step) => {
      const th = el("th", frame.position < 0 ? "start" : String(frame.position), "step" + (step === violation ? " violation" : ""));
      th.scope = "col";
      th.title = frame.position < 0 ? "the beginning" : "action " + frame.position + ": " + frame.action;
      th.addEventListener("click", () => go(step));
      head.append(th);
    });
    const top = el("thead");
    top.append(head);
    const body = el("tbody");
    for (const key of data.order) {
      const row = el("tr");
      const th = el("th", nameOf(key), "block" + (named.has(key) ? " named" : ""));
      th.scope = "row";
      row.append(th);
      frames.forEach((frame, step) => {
        const block = frame.state[key];
        const td = el("td", glyph(block));
        const classes = [];
        if (block.owners.length) classes.push(colour(block.owners[0][0]));
        if (block.place !== null) classes.push("free");
        if (frame.changed.has(key)) classes.push("changed");
        if (step === violation) classes.push("violation");
        if (block.refs > 1) td.textContent += "\u00d7" + block.refs;
        if (block.keys.length) td.textContent += "\u2022";
        if (wrongOf(frame, block).length) {
          classes.push("wrong");
          td.textContent += "\u2717";
        }
        td.className = classes.join(" ");
        td.title = cellText(key, frame);
        td.addEventListener("click", () => go(step));
        cells.push([td, step]);
        row.append(td);
      });
      body.append(row);
    }
    table.append(top, body);
  }

  // --- one step -----------------------------------------------------------------------------------------------------

  function poolTable(prefix, title, free) {
    const frame = frames[at];
    const section = el("section");
    section.append(el("h3", title));
    const queue = el("ol", undefined, "queue");
    queue.setAttribute("aria-label", title + ": free queue, reused first first");
    free.forEach((block, place) => queue.append(el("li", (place ? "" : "first: ") + (prefix === "h" ? "h" : "") + block)));
    if (!free.length) queue.append(el("li", "free queue empty"));
    section.append(queue);
    const scroll = el("div", undefined, "scroll");
    const table = el("table");
    const head = el("tr");
    ["block", "refs", "who", "keys: what they claim", "bytes: what is there"].forEach((text) => {
      const th = el("th", text);
      th.scope = "col";
      head.append(th);
    });
    table.append(head);
    for (const key of data.order.filter((name) => name[0] === prefix)) {
      const block = frame.state[key];
      const row = el("tr");
      if (frame.changed.has(key)) row.className = "changed";
      const name = el("td", nameOf(key));
      if (named.has(key)) {
        name.className = "named";
        name.append(el("span", " (named by the evidence)", "hidden"));
      }
      if (frame.changed.has(key)) name.append(el("span", " (changed)", "hidden"));
      row.append(name, el("td", String(block.refs)));
      const who = block.owners.map((owner) => owner[0] + " g" + owner[1] + "[" + owner[2] + "]").concat(block.pins);
      if (block.place !== null) who.push("free #" + block.place);
      row.append(el("td", who.join(", ")));
      const keys = el("td");
      block.keys.forEach((k, index) => {
        if (index) keys.append(el("br"));
        keys.append(document.createTextNode(k.text + (k.primary ? "" : " (secondary)")));
        if (k.wrong) keys.append(el("span", (frame.settled ? " \u2717 " : " not there yet: ") + k.wrong, frame.settled ? "wrong" : "soft"));
        else keys.append(el("span", " \u2713", "soft"));
      });
      row.append(keys);
      const bytes = el("td");
      if (block.ranks.length > 1 && block.group !== null) {
        const details = el("details");
        details.open = ranksOpen;
        details.addEventListener("toggle", () => { ranksOpen = details.open; });
        details.append(el("summary", bytesOf(block)));
        block.ranks.forEach((text, rank) => details.append(el("div", "rank " + rank + ": " + text)));
        bytes.append(details);
      } else bytes.textContent = bytesOf(block);
      row.append(bytes);
      table.append(row);
    }
    scroll.append(table);
    section.append(scroll);
    return section;
  }
  let ranksOpen = false;

  function go(step) {
    at = Math.max(0, Math.min(last, step));
    const frame = frames[at];
    $("slider").value = String(at);
    $("slider").setAttribute("aria-valuetext", frame.position < 0 ? "the beginning" : "action " + frame.position);
    const here = frame.position < 0 ? "The beginning" : "Action " + frame.position + " (the last is " + (data.actions - 1) + "): " + frame.action;
    const now = $("now");
    now.replaceChildren();
    const strong = el("strong", here);
    now.append(strong);
    if (at === violation) now.append(el("span", " " + data.mark, data.wrong ? "wrong" : "soft"));
    if (frame.answer) now.append(el("div", frame.answer, "mono"));
    const changed = [...frame.changed].map(nameOf);
    now.append(el("div", frame.phase + (frame.requests.length ? "; " + frame.requests.join("; ") : "; no request") +
      (changed.length ? "; changed blocks: " + changed.join(", ") : ""), "soft"));
    cells.forEach(([td, other]) => td.classList.toggle("now", other === at));
    const pools = $("pools");
    pools.replaceChildren(poolTable("d", "Device pool", frame.free));
    if (data.host) pools.append(poolTable("h", "Host pool", frame.hostFree));
    document.querySelectorAll("#actions tr[data-step]").forEach((row) => {
      const [first, end] = row.dataset.step.split("-").map(Number);
      const inside = frame.position >= first && frame.position <= end;
      row.classList.toggle("now", inside);
      if (inside) row.setAttribute("aria-current", "step");
      else row.removeAttribute("aria-current");
    });
    $("first").disabled = $("back").disabled = at === 0;
    $("last").disabled = $("forward").disabled = at === last;
    const cell = cells.find(([, other]) => other === at);
    if (cell) {
      const box = $("film-scroll");
      const left = cell[0].offsetLeft;
      if (left < box.scrollLeft + 80 || left > box.scrollLeft + box.clientWidth - 60) box.scrollLeft = left - box.clientWidth / 2;
    }
  }

  function stop() {
    clearInterval(playing);
    playing = null;
    $("play").textContent = "Play";
    $("play").setAttribute("aria-pressed", "false");
  }

  function play() {
    if (playing !== null) return stop();
    if (at === last) go(0);
    $("play").textContent = "Pause";
    $("play").setAttribute("aria-pressed", "true");
    playing = setInterval(() => { if (at === last) stop(); else go(at + 1); }, 700);
  }

  function theme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    $("theme").setAttribute("aria-label", "Theme: " + root.dataset.theme + ", switch");
  }

  $("first").addEventListener("click", () => go(0));
  $("back").addEventListener("click", () => go(at - 1));
  $("forward").addEventListener("click", () => go(at + 1));
  $("last").addEventListener("click", () => go(last));
  $("play").addEventListener("click", play);
  $("jump").addEventListener("click", () => go(violation));
  $("theme").addEventListener("click", theme);
  $("slider").max = String(last);
  $("slider").addEventListener("input", (event) => go(Number(event.target.value)));
  document.querySelectorAll("[data-go]").forEach((button) => button.addEventListener("click", () => {
    go(Number(button.dataset.go) + 1);
    $("player").scrollIntoView({ block: "start" });
  }));
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const target = event.target;
    if (target instanceof HTMLElement && (target.isContentEditable || target.tagName === "INPUT")) {
      if (event.key !== "v" && event.key !== "t") return;
    }
    const does = {
      ArrowLeft: () => go(at - 1), ArrowRight: () => go(at + 1), Home: () => go(0), End: () => go(last),
      v: () => go(violation), t: theme, p: play,
    }[event.key];
    if (!does) return;
    event.preventDefault();
    if (event.key !== "p") stop();
    does();
  });
  if (!document.documentElement.dataset.theme) {
    document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }
  draw();
  go(violation);
}());
