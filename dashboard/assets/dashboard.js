// What a browser with JavaScript does better. Every page works without.
"use strict";

const page = document.body.dataset.page;
const spoken = document.querySelector("[data-spoken]");

// A page that answered a form has the form's address: a reload would send it again,
// and a notice in the address would be told twice.
if (page && page !== location.pathname + location.search) {
  history.replaceState(null, "", page);
}

// One click is enough.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  if (form.dataset.sent) {
    event.preventDefault();
    return;
  }
  form.dataset.sent = "yes";
});
addEventListener("pageshow", () => {
  for (const form of document.forms) delete form.dataset.sent;
});

// A secret does not stay behind in a page that was left.
addEventListener("pagehide", () => {
  for (const secret of document.querySelectorAll("[data-secret]")) {
    secret.textContent = "whsec_…";
    secret.parentElement.querySelector("[data-copy]")?.remove();
  }
});

// enhance shows what is of use with JavaScript alone.
function enhance(root) {
  for (const button of root.querySelectorAll("[data-copy][hidden]")) button.hidden = false;
  for (const time of root.querySelectorAll("time[title], time[data-exact]")) {
    const local = new Date(time.dateTime).toLocaleString(document.documentElement.lang, { dateStyle: "medium", timeStyle: "long" });
    const exact = time.title || time.textContent;
    if (!exact.includes(local)) time.title = exact + "\n" + local;
  }
}

// copy puts a text into the clipboard, and says whether it could.
async function copy(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // It may be forbidden here; the old way may not be.
    }
  }
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const done = await copy(button.dataset.copy);
  const label = button.querySelector("span");
  const before = button.dataset.label ?? label.textContent;
  button.dataset.label = before;
  label.textContent = done ? button.dataset.copied : button.dataset.failed;
  spoken.textContent = label.textContent;
  button.focus();
  setTimeout(() => { label.textContent = before; }, 2500);
});

// Pages that change read themselves again while somebody looks, and put what is new
// in the place of what was.
const region = () => document.querySelector("[data-region]");
const pace = Number(document.body.dataset.live) * 1000;
let on = pace > 0 && region() !== null;
let timer = 0;
let failures = 0;

function schedule() {
  clearTimeout(timer);
  if (on && !document.hidden) timer = setTimeout(read, pace * Math.min(2 ** failures, 12));
}

function read() {
  const request = new XMLHttpRequest();
  request.open("GET", page);
  request.responseType = "document";
  request.timeout = 20000;
  request.onload = () => {
    const fresh = request.status === 200 && request.response?.querySelector("[data-region]");
    if (fresh) {
      failures = 0;
      if (on) renew(fresh, Number(request.response.body.dataset.live) > 0);
    } else if (request.status >= 500) {
      failures++;
    } else { // signed out, forbidden, deleted
      stop();
      return;
    }
    schedule();
  };
  request.onerror = request.ontimeout = () => {
    if (failures++ === 1) spoken.textContent = spoken.dataset.offline;
    schedule();
  };
  request.send();
}

function stop() {
  on = false;
  clearTimeout(timer);
  show();
  const told = document.createElement("div");
  told.className = "notice warn";
  const text = document.createElement("p");
  text.textContent = spoken.dataset.stopped;
  told.append(text);
  document.querySelector("main").prepend(told);
  spoken.textContent = spoken.dataset.stopped;
}

// busy says that somebody is at work in the region: what is selected or typed into
// is not taken away.
function busy(old) {
  const selection = getSelection();
  return (selection && !selection.isCollapsed && old.contains(selection.anchorNode)) ||
    old.contains(document.activeElement?.closest("input, select, textarea"));
}

function renew(fresh, more) {
  const old = region();
  if (busy(old)) return;
  const known = new Set(Array.from(old.querySelectorAll("[data-key]"), (row) => row.dataset.key));
  for (const details of old.querySelectorAll("details[id]")) {
    const same = fresh.querySelector("#" + CSS.escape(details.id));
    if (same) same.open = details.open;
  }
  const scrolled = Array.from(old.querySelectorAll(".scroll"), (box) => box.scrollLeft);
  const focused = old.contains(document.activeElement) ? mark(document.activeElement) : "";
  const what = fresh.dataset.say;
  const changed = what && what !== old.dataset.say;
  fresh = document.adoptNode(fresh);
  if (known.size > 0) {
    for (const row of fresh.querySelectorAll("[data-key]")) row.classList.toggle("new", !known.has(row.dataset.key));
  }
  old.replaceWith(fresh);
  if (!more) on = false;
  enhance(fresh);
  show();
  fresh.querySelectorAll(".scroll").forEach((box, i) => { box.scrollLeft = scrolled[i] ?? 0; });
  if (focused) places(fresh).find((place) => mark(place) === focused)?.focus({ preventScroll: true });
  if (changed) spoken.textContent = spoken.dataset.changed.replace("{what}", what);
}

// places can have the focus; mark tells which is which in two states of a page.
const places = (root) => Array.from(root.querySelectorAll("a, button, summary, [tabindex]"));
const mark = (place) => [place.tagName, place.getAttribute("href") ?? place.form?.action ?? "", place.closest("[id]")?.id, place.textContent].join("\n");

function show() {
  for (const button of document.querySelectorAll("[data-live-switch]")) {
    button.hidden = pace === 0 || region() === null;
    button.setAttribute("aria-pressed", String(on));
  }
}

document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-live-switch]")) return;
  on = !on;
  failures = 0;
  show();
  if (on) read();
  else clearTimeout(timer);
});
document.addEventListener("visibilitychange", () => {
  if (on && !document.hidden) read();
});

enhance(document);
show();
schedule();
