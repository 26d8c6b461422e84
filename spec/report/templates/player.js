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
    const places = new Map(Object.entries(frame.far));
    frame.free.forEach((block, place) => places.set("d" + block, place));
    frame.hostFree.forEach((block, place) => places.set("h" + block, place));
    frames.push(Object.assign({}, frame, { state, places, changed: new Set(frame.changed) }));
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

  // What the page calls a block in a cell comes with the data; only the place in the free queue changes all the time.
  const placeOf = (frame, key) => frame.places.get(key);
  const glyph = (frame, key) => frame.state[key].glyph.replace("#", String(placeOf(frame, key)));

  function cellText(key, frame) {
    const block = frame.state[key];
    const parts = ["block " + nameOf(key), block.refs + (block.refs === 1 ? " reference" : " references")];
    block.owners.forEach((owner) => parts.push(owner[0] + " g" + owner[1] + " column " + owner[2]));
    block.pins.forEach((pin) => parts.push(pin));
    if (block.free) parts.push("free, place " + placeOf(frame, key));
    block.keys.forEach((k) => parts.push("key " + k.text + (k.wrong ? " (" + (frame.settled ? "wrong" : "not there yet") + ": " + k.wrong + ")" : "")));
    parts.push("bytes " + bytesOf(block));
    return parts.join("; ");
  }

  function bytesOf(block) {
    if (block.group === null) return "unwritten";
    return "g" + block.group + " " + [...new Set(block.ranks)].join(" | ");
  }

  // --- the picture --------------------------------------------------------------------------------------------------

  const columns = frames.map(() => []);
  const numberOf = (frame) => (frame.position < 0 ? "the beginning" : (frame.follows ? "what follows, " : "action ") + frame.label);
  function draw() {
    const table = $("film");
    const head = el("tr");
    head.append(el("th", "block", "block"));
    frames.forEach((frame, step) => {
      const th = el("th", frame.position < 0 ? "start" : frame.label, "step" + (step === violation ? " violation" : ""));
      th.scope = "col";
      th.dataset.step = String(step);
      th.title = numberOf(frame) + (frame.action ? ": " + frame.action : "");
      head.append(th);
    });
    const top = el("thead");
    top.append(head);
    const body = el("tbody");
    for (const key of data.order) {
      const row = el("tr");
      row.dataset.block = key;
      const th = el("th", nameOf(key), "block" + (named.has(key) ? " named" : ""));
      th.scope = "row";
      row.append(th);
      frames.forEach((frame, step) => {
        const block = frame.state[key];
        const td = el("td", glyph(frame, key));
        const classes = [];
        if (block.owners.length) classes.push(colour(block.owners[0][0]));
        if (block.free) classes.push("free");
        if (frame.changed.has(key)) classes.push("changed");
        if (step === violation) classes.push("violation");
        if (wrongOf(frame, block).length) {
          classes.push("wrong");
          td.textContent += "\u2717";
        }
        if (classes.length) td.className = classes.join(" ");
        td.dataset.step = String(step);
        columns[step].push(td);
        row.append(td);
      });
      body.append(row);
    }
    table.append(top, body);
    table.addEventListener("click", (event) => {
      const cell = event.target.closest("[data-step]");
      if (cell) go(Number(cell.dataset.step));
    });
    // What a cell says in words is put together when somebody points at it.
    table.addEventListener("mouseover", (event) => {
      const cell = event.target.closest("td[data-step]");
      if (cell && !cell.title) cell.title = cellText(cell.parentElement.dataset.block, frames[Number(cell.dataset.step)]);
    });
  }

  // --- one step -----------------------------------------------------------------------------------------------------

  function poolTable(prefix, title, free, count) {
    const frame = frames[at];
    const section = el("section");
    section.append(el("h3", title));
    const queue = el("ol", undefined, "queue");
    queue.setAttribute("aria-label", title + ": free queue, reused first first");
    free.forEach((block, place) => queue.append(el("li", (place ? "" : "first: ") + (prefix === "h" ? "h" : "") + block)));
    if (!free.length) queue.append(el("li", "free queue empty"));
    if (count > free.length) queue.append(el("li", "and " + (count - free.length) + " more"));
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
        name.append(el("span", " (in question)", "hidden"));
      }
      if (frame.changed.has(key)) name.append(el("span", " (changed)", "hidden"));
      row.append(name, el("td", String(block.refs)));
      const who = block.owners.map((owner) => owner[0] + " g" + owner[1] + "[" + owner[2] + "]").concat(block.pins);
      if (block.free) who.push("free #" + placeOf(frame, key));
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
  let shown = -1;

  function go(step) {
    at = Math.max(0, Math.min(last, step));
    const frame = frames[at];
    $("slider").value = String(at);
    $("slider").setAttribute("aria-valuetext", numberOf(frame));
    const of = frame.follows ? "What follows, " + frame.label + " (the last is +" + data.following + "): "
      : "Action " + frame.label + " (the last is " + (data.actions - 1) + (data.following ? ", then +1 to +" + data.following : "") + "): ";
    const here = frame.position < 0 ? "The beginning" + (data.actions ? "" : ": there is no action") : of + frame.action;
    const now = $("now");
    now.replaceChildren();
    const strong = el("strong", here);
    now.append(strong);
    if (at === violation) now.append(el("span", " " + data.mark, data.wrong ? "wrong" : "soft"));
    if (at === violation && data.left.length) now.append(el("div", "Left open: " + data.left.join("; "), "wrong"));
    if (frame.answer) now.append(el("div", frame.answer, "mono"));
    const changed = [...frame.changed].map(nameOf);
    now.append(el("div", frame.phase + (frame.requests.length ? "; " + frame.requests.join("; ") : "; no request") +
      (changed.length ? "; changed blocks: " + changed.join(", ") : ""), "soft"));
    columns.forEach((cells, step) => {
      if (step === shown || step === at) cells.forEach((td) => td.classList.toggle("now", step === at));
    });
    shown = at;
    const pools = $("pools");
    pools.replaceChildren(poolTable("d", "Device pool", frame.free, frame.count));
    if (data.host) pools.append(poolTable("h", "Host pool", frame.hostFree, frame.hostCount));
    document.querySelectorAll("#actions tr[data-step]").forEach((row) => {
      const [first, end] = row.dataset.step.split("-").map(Number);
      const inside = frame.position >= first && frame.position <= end;
      row.classList.toggle("now", inside);
      if (inside) row.setAttribute("aria-current", "step");
      else row.removeAttribute("aria-current");
    });
    $("first").disabled = $("back").disabled = at === 0;
    $("last").disabled = $("forward").disabled = at === last;
    const cell = columns[at][0];
    if (cell) {
      const box = $("film-scroll");
      const left = cell.offsetLeft;
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
    go(Number(button.dataset.go) + 1 - data.first);
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
