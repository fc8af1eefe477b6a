// The console's page. Keys, values and names are text: they reach the page by textContent alone.
"use strict";

const PERIOD = 2000; // Milliseconds between two looks.
const POINTS_MAX = 150; // Five minutes of them.
const ROUNDS = 10; // Requests of one search or one sample; a button goes on.
const byId = (id) => document.getElementById(id);

// ---- Elements ----

function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "onclick") element.addEventListener("click", value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function svg(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// A column is a title, or a title and "n" for numbers. A cell is text, an element, or null.
function row(columns, cells, tag = "td") {
  return make("tr", {}, ...cells.map((cell, at) => {
    const is_number = Array.isArray(columns[at]);
    return make(tag, { class: is_number ? "n" : null, scope: tag === "th" ? "col" : null }, cell ?? "–");
  }));
}

function fill(table, columns, rows) {
  const head = columns.some((column) => column !== "" && column[0] !== "")
    ? make("thead", {}, row(columns, columns.map((column) => (Array.isArray(column) ? column[0] : column)), "th"))
    : null;
  const body = make("tbody", {}, ...rows.map((cells) => row(columns, cells)));
  table.replaceChildren(...[head, body].filter(Boolean));
}

function pairs(table, rows) {
  const body = rows.map(([name, value]) =>
    make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "v" }, value ?? "–")));
  table.replaceChildren(make("tbody", {}, ...body));
}

// Bytes of a user, as the server describes them.
function shown(text, name = "span") {
  const element = make(name, { class: "mono" }, text.text === "" ? "" : text.text);
  if (text.bytes === 0) element.append(make("span", { class: "tag" }, "empty"));
  if (text.escaped) element.append(make("span", { class: "tag" }, "escaped"));
  if (text.cut) element.append(make("span", { class: "tag" }, `cut, ${bytes(text.bytes)}`));
  return element;
}

// ---- Numbers ----

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

function count(number) {
  if (number === null || number === undefined) return "–";
  if (number !== 0 && Math.abs(number) < 10 && !Number.isInteger(number)) return number.toFixed(1);
  return whole.format(number);
}

function bytes(number) {
  if (number === null || number === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (Math.abs(number) >= 1024 && at < units.length - 1) {
    number /= 1024;
    at += 1;
  }
  return `${at === 0 || number >= 100 ? number.toFixed(0) : number.toFixed(1)} ${units[at]}`;
}

function time(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  const size = Math.abs(seconds);
  if (size === 0) return "0 s";
  if (size < 1e-3) return `${(seconds * 1e6).toFixed(size < 1e-5 ? 1 : 0)} µs`;
  if (size < 1) return `${(seconds * 1e3).toFixed(size < 1e-2 ? 1 : 0)} ms`;
  if (size < 120) return `${seconds.toFixed(size < 10 ? 1 : 0)} s`;
  if (size < 7200) return `${(seconds / 60).toFixed(0)} min`;
  if (size < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} d`;
}

function moment(seconds) {
  return new Date(seconds * 1000).toISOString().replace("T", " ").slice(0, 19);
}

function ttl(millis) {
  if (millis === null || millis === undefined || millis === -2) return "–";
  return millis === -1 ? "none" : time(millis / 1000);
}

const plural = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

// ---- Requests ----

class Problem extends Error {}

async function get(path, parameters = {}) {
  const query = Object.entries(parameters).filter(([, value]) => value !== null && value !== "")
    .map(([name, value]) => `${name}=${value}`).join("&");
  let response;
  try {
    response = await fetch(`/api/${path}${query ? `?${query}` : ""}`, { cache: "no-store" });
  } catch {
    throw new Problem("The server does not answer.");
  }
  const text = await response.text();
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    throw new Problem(text.trim() || `The server answers with status ${response.status}.`);
  }
  if (!response.ok) throw new Problem(body.error || `The server answers with status ${response.status}.`);
  return body;
}

function problem(error) {
  byId("error").textContent = error ? error.message : "";
  byId("error").hidden = !error;
}

// Runs what a person asked for. Only the last one shows its result.
let asked = 0;
async function ask(work) {
  const own = ++asked;
  problem(null);
  try {
    await work(() => own === asked);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (own === asked) problem(error);
  }
}

// ---- Overview ----

const looks = []; // {at, numbers}, oldest first.

const sum = (object) => Object.values(object || {}).reduce((all, one) => all + one, 0);
const value = (look, name) => {
  const number = look.numbers[name];
  return number !== null && typeof number === "object" ? sum(number) : number ?? 0;
};

// By how much a counter grew in a second, between two looks.
function rate(before, after, name) {
  const seconds = (after.at - before.at) / 1000;
  return seconds > 0 ? Math.max(0, value(after, name) - value(before, name)) / seconds : 0;
}

// The times of commands that ran between two looks: counts for each bound. `only` is one command, or all.
function buckets(before, after, only = null) {
  const all = new Map();
  for (const [command, { buckets: own }] of Object.entries(after.numbers.command_duration_seconds || {})) {
    if (only !== null && command !== only) continue;
    const earlier = before.numbers.command_duration_seconds?.[command]?.buckets;
    own.forEach(([bound, number], at) => {
      const key = bound ?? Infinity;
      all.set(key, (all.get(key) || 0) + Math.max(0, number - (earlier ? earlier[at][1] : 0)));
    });
  }
  return [...all].sort(([one], [other]) => one - other);
}

// The time below which this part of the commands was, interpolated within its bucket.
function quantile(found, part) {
  const total = found.reduce((all, [, number]) => all + number, 0);
  if (total === 0) return null;
  let seen = 0;
  let lower = 0;
  for (const [bound, number] of found) {
    if (number > 0 && seen + number >= part * total) {
      return bound === Infinity ? lower : lower + (bound - lower) * ((part * total - seen) / number);
    }
    seen += number;
    lower = bound;
  }
  return lower;
}

const CHARTS = [
  { title: "Commands", unit: (n) => `${count(n)}/s`, lines: [["all", (a, b) => rate(a, b, "commands")],
    ["errors", (a, b) => rate(a, b, "error_replies")]] },
  { title: "Latency", unit: time, lines: [["p50", (a, b) => quantile(buckets(a, b), 0.5)],
    ["p99", (a, b) => quantile(buckets(a, b), 0.99)]] },
  { title: "Reads of keys", unit: (n) => `${count(n)}/s`, lines: [["hits", (a, b) => rate(a, b, "keyspace_hits")],
    ["misses", (a, b) => rate(a, b, "keyspace_misses")]] },
  { title: "Space of the store", unit: bytes, lines: [["used", (a, b) => value(b, "used_bytes")],
    ["live", (a, b) => value(b, "live_bytes")], ["medium", (a, b) => value(b, "medium_bytes")]] },
  { title: "Memory of the process", unit: bytes, lines: [["private", (a, b) => value(b, "process_private_bytes")],
    ["indexes", (a, b) => value(b, "index_bytes")]] },
  { title: "Clients", unit: count, lines: [["connected", (a, b) => value(b, "clients")],
    ["waiting", (a, b) => value(b, "clients_waiting")]] },
  { title: "Network", unit: (n) => `${bytes(n)}/s`, lines: [["in", (a, b) => rate(a, b, "network_received_bytes")],
    ["out", (a, b) => rate(a, b, "network_sent_bytes")]] },
  { title: "Keys removed", unit: (n) => `${count(n)}/s`, lines: [["expired", (a, b) => rate(a, b, "expired_keys")],
    ["evicted", (a, b) => rate(a, b, "evicted_keys")]] },
  { title: "Writing", unit: (n) => `${bytes(n)}/s`, lines: [["appended", (a, b) => rate(a, b, "written_bytes")],
    ["compacted", (a, b) => rate(a, b, "compaction_copied_bytes")]] },
  { title: "Commits", unit: (n) => `${count(n)}/s`, lines: [["syncs", (a, b) => rate(a, b, "commits")]] },
];

function draw_charts() {
  // At first a minute, so that something is seen.
  const width = looks.length <= 31 ? 31 : POINTS_MAX + 1;
  const begin = `${Math.round((width * PERIOD) / 60000)} min ago`;
  const all = CHARTS.map(({ title, unit, lines }) => {
    const points = lines.map(([, of]) => looks.slice(1).map((look, at) => of(looks[at], look)));
    const most = Math.max(...points.flat().filter((point) => point !== null), 0);
    const top = most > 0 ? most * 1.1 : 1;
    const picture = svg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img" });
    const last = points.map((of_line) => of_line.at(-1) ?? null);
    const words = lines.map(([name], at) => `${name} ${last[at] === null ? "–" : unit(last[at])}`);
    picture.setAttribute("aria-label", `${title}: ${words.join(", ")}; at most ${unit(most)}`);
    for (const y of [0, 50, 100]) picture.append(svg("line", { x1: 0, x2: 100, y1: y, y2: y }));
    points.forEach((of_line, number) => {
      let path = "";
      let is_down = false;
      of_line.forEach((point, at) => {
        const x = 100 - ((of_line.length - 1 - at) / (width - 1)) * 100;
        if (point !== null) path += `${is_down ? "L" : "M"}${x.toFixed(2)} ${(100 - (point / top) * 100).toFixed(2)}`;
        is_down = point !== null;
      });
      if (path) picture.append(svg("path", { d: path, class: `s${number}` }));
    });
    const keys = make("span", { class: "keys" }, ...words.map((word, number) =>
      make("span", { class: "key" }, make("i", { class: `s${number}` }), word)));
    const minutes = make("div", { class: "axis", "aria-hidden": "true" },
      make("span", {}, begin), make("span", {}, `top ${unit(top)}`), make("span", {}, "now"));
    return make("figure", {}, make("figcaption", {}, make("h3", {}, title), keys), picture, minutes);
  });
  byId("charts").replaceChildren(...all);
}

function draw_overview() {
  const [first, last] = [looks[0], looks.at(-1)];
  const before = looks.at(-2) || last;
  const numbers = last.numbers;
  const reads = rate(before, last, "keyspace_hits") + rate(before, last, "keyspace_misses");
  const p99 = quantile(buckets(before, last), 0.99);
  const facts = [
    ["commands/s", count(rate(before, last, "commands"))],
    ["p99 of commands", time(p99)],
    ["keys", count(numbers.store_keys)],
    ["of reads found", reads > 0 ? `${((100 * rate(before, last, "keyspace_hits")) / reads).toFixed(1)} %` : "–"],
    ["clients", count(numbers.clients)],
    ["used of the store", bytes(numbers.used_bytes)],
    ["private memory", bytes(numbers.process_private_bytes)],
    ["processor", `${(100 * rate(before, last, "process_cpu_seconds")).toFixed(0)} %`],
  ];
  byId("facts").replaceChildren(...facts.map(([name, text]) =>
    make("div", { class: "card" }, make("b", {}, text), make("span", {}, name))));
  draw_charts();

  const calls = numbers.command_calls || {};
  const since = (command) => calls[command] - (first.numbers.command_calls?.[command] || 0);
  const found = Object.keys(calls).map((command) => [command, since(command)]).filter(([, number]) => number > 0);
  found.sort((one, other) => other[1] - one[1]);
  const columns = ["command", ["calls"], ["failed"], ["p50"], ["p99"], ["calls in all"]];
  fill(byId("commands"), columns, found.slice(0, 20).map(([command, number]) => {
    const times = buckets(first, last, command);
    const failed = (numbers.command_failures?.[command] || 0) - (first.numbers.command_failures?.[command] || 0);
    return [command, count(number), count(failed), time(quantile(times, 0.5)), time(quantile(times, 0.99)),
      count(calls[command])];
  }));
  if (found.length === 0) byId("commands").replaceChildren(make("caption", { class: "quiet" }, "None so far."));

  fill(byId("databases"), ["database", ["keys"], ["that expire"]], Object.entries(numbers.database_keys || {})
    .map(([db, keys]) => [make("a", { href: `#keys?db=${db}` }, db), count(keys),
      count(numbers.database_expiring_keys?.[db])]));
  pairs(byId("space"), [
    ["Used, live or dead", bytes(numbers.used_bytes)],
    ["Live", bytes(numbers.live_bytes)],
    ["Dead, which compaction can gain", bytes(numbers.dead_bytes)],
    ["Free extents", bytes(numbers.free_bytes)],
    ["The medium has", bytes(numbers.medium_bytes)],
    ["It grows up to", bytes(numbers.medium_limit_bytes)],
    ["Left in the file system", bytes(numbers.file_system_available_bytes)],
    ["When full", last.policy],
    ["Indexes, in memory", bytes(numbers.index_bytes)],
    ["Process in DRAM", bytes(numbers.process_resident_bytes)],
    ["Memory of the machine", bytes(numbers.machine_memory_bytes)],
  ]);
  const rounds = rate(first, last, "compaction_rounds") * 60;
  const commits = value(last, "commits") - value(before, "commits");
  const sync = commits > 0 ? (value(last, "commit_sync_seconds") - value(before, "commit_sync_seconds")) / commits : null;
  pairs(byId("background"), [
    ["Rounds of compaction", `${count(numbers.compaction_rounds)} (${count(rounds)} a minute)`],
    ["Copied by compaction", bytes(numbers.compaction_copied_bytes)],
    ["Freed by compaction", bytes(numbers.compaction_freed_bytes)],
    ["Commits by a sync", count(numbers.commits)],
    ["A sync takes", time(sync)],
    ["Blocks", Object.entries(numbers.blocks || {}).filter(([, number]) => number > 0)
      .map(([state, number]) => `${count(number)} ${state.replace("_", " ")}`).join(", ")],
    ["Index checkpoints", count(numbers.index_checkpoints)],
    ["Pages of the index not read yet", count(numbers.index_pages_left)],
    ["Not verified since the start", bytes(numbers.unverified_bytes)],
    ["Damaged blocks", count(numbers.damaged_blocks)],
    ["Expired, evicted keys", `${count(numbers.expired_keys)}, ${count(numbers.evicted_keys)}`],
  ]);
}

let is_late = false;
async function look() {
  try {
    const found = await get("overview");
    // Another process, or a clock that was set back: what was seen before is of no use.
    if (looks.length > 0 && (looks[0].run !== found.run || looks.at(-1).at >= found.at)) looks.length = 0;
    looks.push(found);
    if (looks.length > POINTS_MAX + 1) looks.shift();
    byId("about").textContent = `${found.version}, up ${time(found.uptime)}. ${found.medium}`;
    byId("state").textContent = found.not_ready ?? "ready";
    byId("state").classList.toggle("bad", found.not_ready !== null);
    if (is_late) problem(null);
    is_late = false;
    for (const id of ["keys-db", "types-db"]) databases(byId(id), found);
    if (page === "overview") draw_overview();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    is_late = true;
    byId("state").textContent = "no data";
    byId("state").classList.add("bad");
    if (page === "overview") problem(error);
  }
}

function databases(select, found) {
  if (select.options.length === found.databases) return;
  const chosen = select.value || select.dataset.chosen || "0";
  select.replaceChildren(...Array.from({ length: found.databases }, (_, db) => make("option", { value: db }, String(db))));
  select.value = chosen;
}

// ---- Keys ----

let search = null; // {db, match, type, next, keys, asked}

function key_button(key, db, more = {}) {
  if (key.id === null) return make("span", {}, shown(key.name), make("span", { class: "tag" }, "too long to open"));
  const button = make("button", { type: "button", class: "link", ...more }, shown(key.name));
  button.addEventListener("click", () => {
    document.querySelectorAll("tr.chosen").forEach((chosen) => chosen.classList.remove("chosen"));
    button.closest("tr").classList.add("chosen");
    open_value(db, key.id, button);
  });
  return button;
}

async function find_keys(begins) {
  await ask(async (is_last) => {
    if (begins) {
      search = { db: byId("keys-db").value || "0", match: encodeURIComponent(byId("keys-match").value),
        type: byId("keys-type").value, next: "0", keys: 0 };
      byId("keys").replaceChildren();
      close_value();
    }
    const own = search;
    const wanted = own.keys + 100;
    byId("keys-more").hidden = true;
    byId("keys-note").textContent = "Searching …";
    const columns = ["key", "type", ["time to live"], ["size"]];
    for (let round = 0; round < ROUNDS && own.next !== null && own.keys < wanted; round += 1) {
      const found = await get("keys", { db: own.db, match: own.match, type: own.type, cursor: own.next });
      if (!is_last()) return;
      if (byId("keys").tBodies.length === 0) fill(byId("keys"), columns, []);
      byId("keys").tBodies[0].append(...found.keys.map((key) =>
        row(columns, [key_button(key, own.db), key.type ?? "no right", ttl(key.ttl), bytes(key.size)])));
      own.keys += found.keys.length;
      own.next = found.next;
    }
    byId("keys-more").hidden = own.next === null;
    byId("keys-note").textContent = own.next === null
      ? `${plural(own.keys, "key")}; all were looked at.` : `${plural(own.keys, "key")} so far; there may be more.`;
    if (own.keys === 0) byId("keys").replaceChildren();
  });
}

let opener = null;

function close_value() {
  byId("value").hidden = true;
  document.querySelector(".browser").classList.remove("open");
  document.querySelectorAll("tr.chosen").forEach((chosen) => chosen.classList.remove("chosen"));
  if (opener?.isConnected) opener.focus();
  opener = null;
}

async function open_value(db, id, from, cursor = null) {
  opener = from ?? opener;
  await ask(async (is_last) => {
    const key = await get("value", { db, key: id, cursor });
    if (!is_last()) return;
    const facts = [["type", key.type], ["encoding", key.encoding], ["time to live", ttl(key.ttl)],
      ["size", bytes(key.size)], [key.type === "string" ? "bytes" : "elements", count(key.length)]];
    const list = make("dl", {}, ...facts.map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text ?? "–"))));
    const close = make("button", { type: "button", onclick: close_value }, "Close");
    const head = make("header", {}, make("h2", {}, shown(key.name)), list, close);
    let body;
    let note = "";
    if (key.type === "string") {
      body = make("pre", { tabindex: "0", "aria-label": "Value" }, key.value.text);
      const end = key.from + key.value.bytes;
      if (key.from > 0 || key.next !== null) note = `Bytes ${count(key.from)} to ${count(end)} of ${count(key.length)}.`;
      if (key.value.escaped) note += " Bytes that are no text are escaped.";
    } else {
      const table = make("table");
      const columns = key.columns.map((name) => (["position", "rank", "score"].includes(name) ? [name] : name));
      fill(table, columns, key.rows.map((cells) => cells.map((cell) => shown(cell))));
      body = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Elements" }, table);
      if (key.next !== null || cursor !== null) note = `${plural(key.rows.length, "element")} of ${count(key.length)}.`;
    }
    const buttons = [];
    if (cursor !== null) buttons.push(make("button", { type: "button", onclick: () => open_value(db, id, null) }, "First part"));
    if (key.next !== null) {
      buttons.push(make("button", { type: "button", onclick: () => open_value(db, id, null, key.next) }, "Next part"));
    }
    byId("value").replaceChildren(head, body, make("footer", {}, ...buttons, make("span", { class: "quiet" }, note.trim())));
    byId("value").hidden = false;
    document.querySelector(".browser").classList.add("open");
    byId("value").focus({ preventScroll: window.innerWidth > 900 });
  });
}

// ---- Types ----

let sample = null; // {db, next, sampled, total, denied, types}

async function take_sample(begins) {
  await ask(async (is_last) => {
    if (begins) sample = { db: byId("types-db").value || "0", next: "0", sampled: 0, total: 0, denied: 0, types: new Map() };
    const own = sample;
    byId("types-more").hidden = true;
    for (let round = 0; round < ROUNDS && own.next !== null; round += 1) {
      const found = await get("types", { db: own.db, cursor: own.next });
      if (!is_last()) return;
      own.sampled += found.sampled;
      own.denied += found.denied;
      own.total = found.total;
      own.next = found.next;
      for (const [type, { count: number, size, largest }] of Object.entries(found.types)) {
        const known = own.types.get(type) || { count: 0, size: 0, largest: [] };
        known.count += number;
        known.size += size;
        known.largest = [...known.largest, ...largest].sort((one, other) => other.size - one.size).slice(0, 5);
        own.types.set(type, known);
      }
      draw_sample();
    }
    byId("types-more").hidden = own.next === null;
  });
}

function draw_sample() {
  const own = sample;
  const is_all = own.next === null;
  byId("types-note").textContent = `${plural(own.sampled, "key")} of ${count(own.total)} were looked at, in the order of SCAN.`
    + (own.denied > 0 ? ` ${plural(own.denied, "key")} this user may not read.` : "");
  const all = [...own.types].sort((one, other) => other[1].size - one[1].size);
  const part = (number) => (own.sampled > 0 ? `${((100 * number) / own.sampled).toFixed(1)} %` : "–");
  const guess = (number) => count(is_all ? number : Math.round((number / Math.max(1, own.sampled)) * own.total));
  fill(byId("types"), ["type", ["keys of the sample"], ["part"], [is_all ? "keys" : "keys, estimated"], ["size"], ["average"]],
    all.map(([type, { count: number, size }]) =>
      [type, count(number), part(number), guess(number), bytes(size), bytes(size / Math.max(1, number))]));
  fill(byId("largest"), ["type", "key", ["size"]], all.flatMap(([type, { largest }]) => largest.map((key) =>
    [type, key.id === null ? shown(key.name) : make("a", { href: `#keys?db=${own.db}&key=${key.id}`, class: "mono" },
      shown(key.name)), bytes(key.size)])));
}

// ---- Lists ----

async function show_slow_log() {
  await ask(async (is_last) => {
    const { entries } = await get("slowlog");
    if (!is_last()) return;
    byId("slowlog-note").textContent = entries.length === 0
      ? "The slow log is empty." : `The newest ${plural(entries.length, "command")}; times are UTC.`;
    fill(byId("slowlog"), [["number"], "at", ["took"], "command", "client"], entries.map((entry) => {
      const words = make("span", { class: "mono" });
      entry.args.forEach((word, at) => words.append(at > 0 ? " " : "", shown(word)));
      const name = entry.name.bytes > 0 ? [" ", shown(entry.name)] : [];
      return [count(entry.id), moment(entry.at), time(entry.micros / 1e6), words, make("span", {}, entry.client, ...name)];
    }));
  });
}

async function show_clients() {
  await ask(async (is_last) => {
    const { clients, total } = await get("clients");
    if (!is_last()) return;
    byId("clients-note").textContent = clients.length < total
      ? `${count(clients.length)} of ${plural(total, "client")}.` : `${plural(total, "client")}, with the console's own.`;
    const number = (text) => (text === undefined ? null : Number(text));
    fill(byId("clients"), [["number"], "address", "name", "user", ["database"], "last command", ["connected"], ["idle"],
      "flags", ["memory"], ["replies"]], clients.map((client) => [client.id, make("span", { class: "mono nowrap" }, client.addr),
      client.name || "", client.user, client.db, client.cmd, time(number(client.age)), time(number(client.idle)),
      client.flags, bytes(number(client["tot-mem"])), bytes(number(client.omem))]));
  });
}

const job_looks = new Map(); // The last look at each job, and its rates.

async function show_jobs() {
  await ask(async (is_last) => {
    const { at, jobs } = await get("jobs");
    if (!is_last()) return;
    byId("jobs-note").textContent = jobs.length === 0
      ? "No jobs of SQL run in this server; the directive duramen-sql names their scripts." : "";
    const open = new Set([...byId("jobs").querySelectorAll("details[open]")].map((details) => details.dataset.job));
    const focused = document.activeElement?.closest?.("details")?.dataset.job;
    byId("jobs").replaceChildren(...jobs.map((job) => draw_job(job, at, open)));
    if (focused !== undefined) {
      [...byId("jobs").querySelectorAll("details")].find((one) => one.dataset.job === focused)?.querySelector("summary").focus();
    }
  });
}

function draw_job(job, at, open) {
  const progress = job.progress;
  const before = job_looks.get(job.name);
  const grown = (name) => {
    const seconds = before ? (at - before.at) / 1000 : 0;
    return seconds > 0 && before.progress ? `${count(Math.max(0, progress[name] - before.progress[name]) / seconds)}/s` : "–";
  };
  const facts = [];
  if (progress) {
    facts.push(["read", `${count(progress.records_read)} (${grown("records_read")})`],
      ["written", `${count(progress.records_written)} (${grown("records_written")})`],
      ["skipped", count(progress.records_skipped)], ["late", count(progress.records_late)],
      ["without a time", count(progress.records_timeless)],
      ["state", `${bytes(progress.state_bytes)}, ${plural(progress.state_keys, "key")}`]);
    if (progress.watermark !== null) {
      const lag = job.state === "running" ? `, ${time(Math.max(0, at / 1000 - progress.watermark))} behind` : "";
      facts.push(["watermark", moment(progress.watermark) + lag]);
    }
    const kept = progress.checkpoints;
    if (kept) {
      facts.push(["checkpoints", `${count(kept.count)}, every ${time(kept.every)}`],
        ["the last", `${moment(kept.at)}, ${bytes(kept.bytes)} in ${time(kept.took)}, its commit ${time(kept.commit)}`],
        ["longest pause", time(kept.pause_max)]);
    }
    job_looks.set(job.name, { at, progress });
  }
  const title = make("h2", {}, job.name, make("span", { class: job.state === "failed" ? "tag bad" : "tag" }, job.state));
  const text = job.text ? make("p", { class: job.state === "failed" ? "bad mono" : "quiet" }, job.text) : null;
  const list = facts.length === 0 ? null : make("dl", {}, ...facts.map(([name, fact]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, fact))));
  const plan = job.plan ? make("details", { "data-job": job.name, open: open.has(job.name) ? "" : null },
    make("summary", {}, "Plan"), make("pre", { class: "plan", tabindex: "0" }, job.plan)) : null;
  return make("article", { class: "job" }, title, text, list, plan);
}

// ---- Pages ----

const PAGES = { overview: null, keys: null, types: null, slowlog: show_slow_log, clients: show_clients, jobs: show_jobs };
let page = null;

function turn() {
  const [wanted, query] = location.hash.slice(1).split("?");
  if (wanted === "content") return;
  const next = Object.hasOwn(PAGES, wanted) ? wanted : "overview";
  const is_new = next !== page;
  page = next;
  asked += 1;
  problem(null);
  for (const name of Object.keys(PAGES)) byId(`page-${name}`).hidden = name !== page;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${document.querySelector("nav a[aria-current]").textContent} – Duramen console`;
  if (page === "overview" && looks.length > 0) draw_overview();
  if (page === "keys") turn_keys(new Map((query || "").split("&").map((part) => part.split("=", 2))), is_new);
  if (page === "types" && sample === null) take_sample(true);
  PAGES[page]?.();
}

async function turn_keys(parameters, is_new) {
  const db = parameters.get("db");
  if (db !== undefined) {
    byId("keys-db").dataset.chosen = db;
    byId("keys-db").value = db;
  }
  const key = parameters.get("key");
  if (search === null || (db !== undefined && db !== search.db)) await find_keys(true);
  if (key !== undefined) await open_value(db ?? "0", key, null);
  else if (is_new) problem(null);
}

function start() {
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    find_keys(true);
  });
  byId("keys-more").addEventListener("click", () => find_keys(false));
  byId("sample").addEventListener("submit", (event) => {
    event.preventDefault();
    take_sample(true);
  });
  byId("types-more").addEventListener("click", () => take_sample(false));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && page === "keys" && !byId("value").hidden) close_value();
  });
  window.addEventListener("hashchange", turn);
  const tick = async () => {
    if (!document.hidden) {
      await look();
      if (PAGES[page]) await PAGES[page]();
    }
    setTimeout(tick, PERIOD);
  };
  look().finally(() => {
    turn();
    setTimeout(tick, PERIOD);
  });
}

start();
