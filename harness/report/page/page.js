
"use strict";
(function () {
  var all = function (selector, root) { return Array.from((root || document).querySelectorAll(selector)); };
  var level = document.getElementById("level"), text = document.getElementById("text"), shown = document.getElementById("shown");
  var chips = all(".chip"), requirements = all(".req");

  function filter() {
    var on = chips.filter(function (c) { return c.getAttribute("aria-pressed") === "true"; }).map(function (c) { return c.dataset.verdict; });
    var words = text.value.toLowerCase().split(" ").filter(Boolean), n = 0;
    requirements.forEach(function (r) {
      var hit = on.includes(r.dataset.verdict) && (!level.value || level.value === r.dataset.level) &&
        words.every(function (w) { return r.dataset.text.includes(w); });
      r.hidden = !hit;
      n += hit;
    });
    shown.textContent = n === requirements.length ? String(n) : n + " of " + requirements.length;
  }
  // From "all", the first chip that is pressed shows its own verdict only; with none left all come back.
  chips.forEach(function (c) {
    c.addEventListener("click", function () {
      var every = chips.every(function (o) { return o.getAttribute("aria-pressed") === "true"; });
      if (every) chips.forEach(function (o) { o.setAttribute("aria-pressed", String(o === c)); });
      else c.setAttribute("aria-pressed", String(c.getAttribute("aria-pressed") !== "true"));
      if (!chips.some(function (o) { return o.getAttribute("aria-pressed") === "true"; })) {
        chips.forEach(function (o) { o.setAttribute("aria-pressed", "true"); });
      }
      filter();
    });
  });
  level.addEventListener("change", filter);
  text.addEventListener("input", filter);
  document.getElementById("filter").addEventListener("submit", function (e) { e.preventDefault(); });

  // The evidence of a scenario is in the page once; a requirement that unfolds gets a copy with its own witnesses marked.
  function fill(requirement) {
    all(".slot", requirement).forEach(function (slot) {
      if (slot.firstChild) return;
      var source = document.querySelector("#" + slot.dataset.scenario + " > .evidence");
      if (!source) return;
      var copy = source.cloneNode(true), ids = JSON.parse(slot.dataset.witnesses || "[]");
      all("[data-id]", copy).forEach(function (e) { e.classList.toggle("wit", ids.includes(e.dataset.id)); });
      slot.appendChild(copy);
    });
  }
  requirements.forEach(function (r) {
    r.addEventListener("toggle", function () { if (r.open) fill(r); });
    if (r.open) fill(r);
  });

  function follow() {
    var target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
  }
  addEventListener("hashchange", follow);
  follow();

  var tip = document.getElementById("tip");
  document.addEventListener("mousemove", function (e) {
    var on = e.target.closest && e.target.closest("[data-tip]");
    tip.hidden = !on;
    if (!on) return;
    tip.textContent = on.dataset.tip;
    tip.style.left = Math.max(4, Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = (e.clientY + 18 + tip.offsetHeight > innerHeight ? e.clientY - tip.offsetHeight - 10 : e.clientY + 18) + "px";
  });
})();
