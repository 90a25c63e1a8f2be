// What pages do beyond being read: live updates, and the progress of an upload. All else works without.
"use strict";

function live(address) {
  const shown = document.getElementById("live");
  const stream = new EventSource(address);
  let first = true;
  stream.onopen = () => { shown.hidden = false; };
  stream.onerror = () => { shown.hidden = true; };
  stream.addEventListener("changed", async () => {
    if (first) { first = false; return; }
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) { location.reload(); return; }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of document.querySelectorAll("[data-live]")) {
      const fresh = page.getElementById(part.id);
      if (fresh && !part.contains(document.activeElement)) part.replaceWith(document.adoptNode(fresh));
    }
    document.dispatchEvent(new Event("privest:changed"));
  });
}

function replacePage(text) {
  const page = new DOMParser().parseFromString(text, "text/html");
  document.querySelector("main").replaceWith(document.adoptNode(page.querySelector("main")));
  document.title = page.title;
  prepare();
  document.getElementById("problem")?.focus();
}

function upload(event) {
  event.preventDefault();
  const form = event.target, part = form.querySelector(".progress");
  const bar = part.querySelector("progress"), word = part.querySelector("[role=status]");
  const button = form.querySelector("button");
  const request = new XMLHttpRequest();
  const again = (told) => { button.disabled = false; bar.value = 0; word.textContent = told; };
  button.disabled = true;
  part.hidden = false;
  request.upload.onprogress = (sent) => {
    bar.value = 100 * sent.loaded / sent.total;
    word.textContent = `${Math.floor(bar.value)} % sent`;
  };
  request.upload.onload = () => { bar.removeAttribute("value"); word.textContent = "Checking every record …"; };
  request.onload = () => {
    if (request.status < 400) location.assign(request.responseURL);
    else if (request.responseText.includes("<main")) replacePage(request.responseText);
    else again("This file is too large.");
  };
  request.onerror = () => again("The connection was lost. Nothing was stored.");
  request.open("POST", form.action);
  request.send(new FormData(form));
}

function prepare() {
  for (const form of document.querySelectorAll("[data-upload]")) form.addEventListener("submit", upload);
}

prepare();
if (document.body.dataset.events) live(document.body.dataset.events);
