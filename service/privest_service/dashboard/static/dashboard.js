// What pages do beyond being read: live updates, and the progress of an upload. All else works without.
"use strict";

// Updates: the page knows the state that it shows, and fetches itself again when the service tells of another.
function live({ events, seen }) {
  const light = document.getElementById("live");
  let stream = null, shown = seen, waiting = false;

  async function renew(state) {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.redirected) { location.assign(answer.url); return; }
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    waiting = false;
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(part.id);
      if (!fresh) { location.reload(); return; }
      if (part.contains(document.activeElement)) waiting = true;
      else part.replaceWith(document.adoptNode(fresh));
    }
    shown = waiting ? shown : state;
    document.body.dataset.seen = shown;
  }

  // Browsers open few connections to one site: pages that nobody looks at let go of theirs.
  function follow() {
    stream?.close();
    stream = null;
    light.hidden = true;
    if (document.visibilityState !== "visible") return;
    stream = new EventSource(events);
    stream.onopen = () => { light.hidden = false; };
    stream.onerror = () => { light.hidden = true; };
    stream.addEventListener("changed", (event) => {
      const state = JSON.parse(event.data);
      if (state !== shown) renew(state);
    });
  }

  document.addEventListener("visibilitychange", follow);
  document.addEventListener("focusout", () => { if (waiting) setTimeout(follow); });
  addEventListener("pagehide", () => stream?.close());
  follow();
}

// Shows why an upload was refused; the form stays as it is, with the file that was chosen.
function refused(form, text) {
  const page = new DOMParser().parseFromString(text, "text/html");
  const told = page.getElementById("problem")?.parentElement ?? page.querySelector("main");
  document.getElementById("refused").replaceChildren(...document.adoptNode(told).childNodes);
  form.dispatchEvent(new Event("refused"));
  document.getElementById("problem")?.focus();
}

function upload(event) {
  event.preventDefault();
  const form = event.target, part = form.querySelector(".progress");
  const bar = part.querySelector("progress"), word = part.querySelector("[role=status]");
  const button = form.querySelector("button:not([type])");
  const request = new XMLHttpRequest();
  const again = (told) => { button.disabled = false; bar.value = 0; word.textContent = told; };
  if (button.disabled) return;
  button.disabled = true;
  part.hidden = false;
  request.upload.onprogress = (sent) => {
    bar.value = 100 * sent.loaded / sent.total;
    word.textContent = `${Math.floor(bar.value)} % sent`;
  };
  request.upload.onload = () => { bar.removeAttribute("value"); word.textContent = "Checking every record …"; };
  request.onload = () => {
    if (request.status < 400) location.assign(request.responseURL);
    else if (request.responseText.includes("<main")) {
      again("");
      part.hidden = true;
      refused(form, request.responseText);
    } else again("This file is too large.");
  };
  request.onerror = () => again("Nothing was stored. The connection was lost, or the file has changed since you chose it: then choose it again.");
  request.open("POST", form.action);
  request.send(new FormData(form));
}

for (const form of document.querySelectorAll("[data-upload]")) form.addEventListener("submit", upload);
const here = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
for (const word of document.querySelectorAll("[data-plain]")) word.hidden = here || location.protocol !== "http:";
if (document.body.dataset.events) live(document.body.dataset);
