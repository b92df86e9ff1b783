// The console. Everything that comes from elsewhere (answers, names, errors) becomes text of a node, never markup.
import { grouped, parseMetrics, quantile, total } from "./metrics.js";
import { $, WORDS, barRow, language, make, milliseconds, percent, short, speak, switchLanguage, time, word } from "./page.js";
import { evidence, picture, shoot, showCamera, showHeat, switchCamera, takePicture } from "./picture.js";
import { Refused, call, json, lookAround, opens, refusedKey, there } from "./server.js";

const FEW_SAMPLES = 30; // below it an accuracy is no figure to act upon; the alert rules say the same
const WINDOW_MS = 60000, FIGURES_MS = 3000, DRIFT_MS = 6000, SLOW_MS = 20000;

let model = "";

async function arrive() {
  try {
    await lookAround();
    const version = await json("version");
    model = version.model ?? "";
    $("budget-row").hidden = !there.selects;
    $("version").textContent = there.ready
      ? word("serves", { model, hash: short(version.model_hash), version: version.version }) : word("loading");
  } catch (error) {
    $("version").textContent = error.message;
  }
}

// ---- asking ----------------------------------------------------------------------------------------------------------
let asking = null, answered = null;

async function* eventsOf(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s, 2)));
      yield { name: fields.event, data: JSON.parse(fields.data) };
    }
  }
}

function beginAnswer() {
  answered = null;
  for (const id of ["answer", "answer-error", "feedback-told"]) $(id).textContent = "";
  for (const id of ["feedback", "cost"]) $(id).hidden = true;
  showHeat(null);
}

async function ask() {
  if (asking || !$("question").value.trim()) return;
  beginAnswer();
  const prompt = { text: $("question").value, evidence: picture !== null };
  if (there.selects && $("budget").value) prompt.visual_tokens = Number($("budget").value);
  const form = new FormData();
  form.append("prompt", new Blob([JSON.stringify(prompt)], { type: "application/json" }));
  if (picture) form.append("image", picture);
  asking = new AbortController();
  $("send").disabled = true;
  $("stop").hidden = false;
  $("answer").setAttribute("aria-busy", "true");
  try {
    const camera = encodeURIComponent($("camera-name").value.trim()) || "-"; // a picture chosen by hand is no camera's
    const reply = await call("v1/vlm/invoke?stream=1", { method: "POST", body: form, signal: asking.signal, headers: { "X-Camera": camera } });
    for await (const { name, data } of eventsOf(reply)) {
      if (name === "delta") $("answer").textContent += data.delta;
      if (name === "done") showDone(data);
      if (name === "error") throw new Refused(0, data.error.message);
    }
    if (!answered) throw new Refused(0, word("broken"));
  } catch (error) {
    $("answer-error").textContent = error.name === "AbortError" ? word("finish_cancelled")
      : error instanceof Refused ? error.message : word("broken");
  } finally {
    asking = null;
    $("send").disabled = false;
    $("stop").hidden = true;
    $("answer").removeAttribute("aria-busy");
    figures();
    drift();
  }
}

function showDone(reply) {
  answered = reply;
  $("answer").textContent = reply.text;
  showHeat(reply.usage.evidence?.[0] ?? null);
  $("feedback").hidden = false;
  for (const id of ["right", "wrong"]) { $(id).setAttribute("aria-pressed", "false"); $(id).disabled = false; }
  showCost(reply);
}

function showCost({ usage, latency_ms, finish_reason }) {
  const image = usage.images[0], common = { prompt: usage.prompt_tokens, answer: usage.completion_tokens, ms: Math.round(latency_ms) };
  const told = [image ? word("cost", { ...common, before: image.original.join(" × "), after: image.used.join(" × "),
    tokens: image.tokens, kept: image.kept ?? word("all") }) : word("costText", common)];
  if (usage.evidence?.length) told.push(word("attention", { share: percent(usage.evidence[0].mass) }));
  if (usage.route) told.push(word("routed", usage.route));
  if (`finish_${finish_reason}` in WORDS[language]) told.push(word(`finish_${finish_reason}`));
  $("cost-words").textContent = told.join(" ");
  $("stages").replaceChildren(...Object.entries(usage.stages).map(([name, seconds]) =>
    barRow(name in WORDS[language] ? word(name) : name, seconds / (usage.stages.total_s || 1), milliseconds(seconds))));
  $("cost").hidden = false;
}

async function label(right) {
  for (const id of ["right", "wrong"]) $(id).disabled = true;
  try {
    const body = JSON.stringify({ id: answered.id, right });
    const told = await json("v1/feedback", { method: "POST", body, headers: { "Content-Type": "application/json" } });
    $(right ? "right" : "wrong").setAttribute("aria-pressed", "true");
    $("feedback-told").textContent = word("thanks", { share: percent(told.accuracy), samples: told.samples });
    figures();
  } catch (error) {
    for (const id of ["right", "wrong"]) $(id).disabled = false;
    $("feedback-told").textContent = error.message;
  }
}

// ---- figures ---------------------------------------------------------------------------------------------------------
const seen = []; // scrapes of the last minute: { at, rows }

function spark(values) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), most = Math.max(...values, 1e-9);
  svg.setAttribute("viewBox", "0 0 100 20");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", values.map((value, n) => `${(100 * n) / Math.max(1, values.length - 1)},${19 - (18 * value) / most}`).join(" "));
  svg.append(line);
  return svg;
}

async function figures() {
  let rows;
  try {
    rows = parseMetrics(await (await call("metrics")).text());
  } catch (error) {
    $("figures").replaceChildren(make("dd", { text: error.message }));
    return;
  }
  seen.push({ at: Date.now(), rows });
  while (seen.length > 2 && Date.now() - seen[0].at > WINDOW_MS) seen.shift();
  const tell = (name, value, small, chart) => make("div", { children: [make("dt", { text: word(name) }),
    make("dd", { text: value, children: [...(small ? [make("small", { text: small })] : []), ...(chart ? [chart] : [])] })] });
  const rates = seen.slice(1).map((one, n) =>
    (1000 * (total(one.rows, "ocr_qps_total") - total(seen[n].rows, "ocr_qps_total"))) / Math.max(1, one.at - seen[n].at));
  const span = (seen.at(-1).at - seen[0].at) / 1000;
  const rate = span > 0 ? (total(rows, "ocr_qps_total") - total(seen[0].rows, "ocr_qps_total")) / span : 0;
  const fresh = quantile(seen[0].rows, rows, 0.5) !== null, from = fresh ? seen[0].rows : [];
  const half = quantile(from, rows, 0.5);
  const samples = total(rows, "foveola_accuracy_samples");
  const guards = grouped(rows, "foveola_guard_verdicts_total", ["guard", "outcome"]), routes = grouped(rows, "foveola_routed_total", ["engine", "reason"]);
  $("figures").replaceChildren(
    tell("rate", rate.toFixed(2), word("minute"), rates.length > 1 ? spark(rates) : null),
    tell("latency", half === null ? "–" : `${milliseconds(half)} · ${milliseconds(quantile(from, rows, 0.95))}`,
      half === null ? word("none") : word(fresh ? "minute" : "sinceStart")),
    tell("accuracy", samples ? percent(total(rows, "ocr_accuracy_rate"), 1) : "–",
      samples ? word(samples < FEW_SAMPLES ? "fewSamples" : "samples", { samples }) : word("none")),
    tell("waiting", `${total(rows, "foveola_queue_depth")} · ${total(rows, "foveola_active")}`,
      `${word("mostWaiting", { most: total(rows, "foveola_queue_depth_most") })}; ${word("refused", { n: total(rows, "foveola_refused_total") })}`),
    ...(guards.length ? [tell("guard", "", guards.join(", "))] : []),
    ...(routes.length ? [tell("router", "", routes.join(", "))] : []),
  );
}

// ---- drift -----------------------------------------------------------------------------------------------------------
let drawnTimeline = "";

async function drift() {
  if (!there.ready) return;
  if (!there.drift) { $("drift-note").textContent = word("noDrift"); return; }
  if (!opens("drift")) { $("drift-note").textContent = word("needKey"); return; }
  try {
    showDrift(await json("v1/drift"));
  } catch (error) {
    if (error.status === 401 || error.status === 403) refusedKey.add("drift");
    $("drift-note").textContent = error.message;
  }
}

function showDrift({ cameras, timeline }) {
  const names = Object.keys(cameras).sort(), raised = names.filter((name) => cameras[name].raised.length);
  $("drift-note").textContent = names.length ? "" : word("noFrames");
  $("banner").parentElement.hidden = raised.length === 0;
  const banner = raised.length ? word("banner", { cameras: raised.join(", ") }) : "";
  if ($("banner").textContent !== banner) $("banner").textContent = banner;
  const held = document.activeElement?.dataset?.camera; // redrawing must not take the keyboard's place away
  $("cameras").replaceChildren(...names.map((name) => card(name, cameras[name])));
  if (held) [...$("cameras").querySelectorAll("button")].find((one) => one.dataset.camera === held)?.focus();
  const mark = `${language} ${timeline.length} ${timeline.at(-1)?.at}`;
  if (mark === drawnTimeline) return;
  drawnTimeline = mark;
  $("timeline-title").hidden = timeline.length === 0;
  $("timeline").replaceChildren(...timeline.toReversed().map(entry));
}

const chartName = (name) => (name in WORDS[language] ? word(name) : name);

function card(name, camera) {
  const rows = Object.entries(camera.shares).map(([chart, share]) => {
    const shown = share < 2 ? percent(Math.max(0, share)) : `${share.toFixed(1)} ×`; // below 0: less than nothing speaks for a change
    const row = barRow(chartName(chart), share, shown);
    row.title = word("share", { name: chartName(chart), share: shown });
    if (share > 1) row.className = "over";
    return row;
  });
  const state = camera.raised.length ? word("raised", { charts: camera.raised.map(chartName).join(", ") }) : word("steady");
  const children = [make("h3", { text: name }), make("p", { text: state, class: "state" }), make("table", { children: rows }),
    make("p", { class: "muted", text: `${word("frames", { n: camera.frames })}; ${word("rule", { level: camera.rule_level, mean: camera.rule_mean?.toFixed(2) ?? "–" })}` })];
  if (camera.raised.length) {
    const button = make("button", { type: "button", text: word("acknowledge"), "data-camera": name, "aria-label": `${word("acknowledge")}: ${name}` });
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        showDrift(await json(`v1/drift/${encodeURIComponent(name)}/acknowledge`, { method: "POST" }));
      } catch (error) {
        button.disabled = false;
        $("drift-note").textContent = error.message;
      }
    });
    children.push(button);
  }
  return make("article", { class: camera.raised.length ? "card raised" : "card", children });
}

function entry(alarm) {
  const values = { ...alarm, chart: chartName(alarm.chart), value: alarm.value.toPrecision(3), bound: alarm.bound.toPrecision(3) };
  const captions = ["before", "now", "difference"].map((name) => make("span", { text: word(name) }));
  return make("li", { children: [
    make("strong", { text: word("alarm", values) }),
    make("p", { class: "muted", text: `${time(alarm.at)} · ${word("alarmDetail", values)}` }),
    make("p", { text: word(`hint_${alarm.chart}`) }),
    ...(alarm.frame_jpeg ? [make("img", { class: "frame", src: `data:image/jpeg;base64,${alarm.frame_jpeg}`, alt: word("driftFrame") })] : []),
    make("img", { class: "maps", src: `data:image/png;base64,${alarm.picture_png}`, alt: word("driftPicture") }),
    make("div", { class: "captions muted", "aria-hidden": "true", children: captions }),
  ] });
}

// ---- the fleet and the guards -----------------------------------------------------------------------------------------
function table(id, columns, rows) {
  const titles = columns.map((name) => make("th", { text: word(name), scope: "col" }));
  $(id).replaceChildren(...(rows.length ? [make("tr", { children: titles })] : []),
    ...rows.map((cells) => make("tr", { children: cells.map((text) => make("td", { text })) })));
}
const known = (value, tell) => (value === null || value === undefined ? "–" : tell(value));

async function split() {
  $("split-section").hidden = !there.split;
  if (!there.split || !opens("split")) return;
  try {
    const { versions: all } = await json("v1/split");
    $("split-note").textContent = word(all.length ? "splitNote" : "none");
    table("split", ["weights", "share", "rate", "p95", "accuracy", "refusedShare"], all.map((one) => [one.model_version,
      known(one.share, percent), known(one.requests_per_s, (value) => value.toFixed(2)), known(one.p95_s, milliseconds),
      `${known(one.accuracy, (value) => percent(value, 1))} (${one.samples ?? 0})`, known(one.refused_per_s, (value) => value.toFixed(2))]));
  } catch (error) {
    if (error.status === 401 || error.status === 403) refusedKey.add("split");
    $("split-note").textContent = error.message;
    table("split", [], []);
  }
}

async function guardLog() {
  $("guard-section").hidden = !there.guards;
  if (!there.guards) return;
  if (!opens("guard")) { $("guard-note").textContent = word("needKey"); return; }
  try {
    const { verdicts } = await json("v1/verdicts");
    $("guard-note").textContent = word(verdicts.length ? "guardNote" : "guardQuiet");
    table("guard-log", ["when", "guardName", "what", "request", "detail"], verdicts.map((one) => [time(one.at), one.guard, one.outcome,
      one.id, Object.entries(one.detail).map(([name, value]) => `${name} ${value}`).join(", ")]));
  } catch (error) {
    if (error.status === 401 || error.status === 403) refusedKey.add("guard");
    $("guard-note").textContent = error.message;
  }
}

// ---- versions --------------------------------------------------------------------------------------------------------
async function versions() {
  if (!there.ready) return;
  const note = !there.patching ? "noPatching" : !there.keys ? "noAdmin" : !opens("admin") ? "needAdmin" : null;
  $("versions").hidden = note !== null;
  $("versions-note").textContent = note ? word(note) : "";
  if (note) return;
  try {
    const told = await json("v1/admin/versions");
    const pairs = [["model", told.model], ["weights", told.model_hash], ["bundle", told.bundle_hash]];
    $("hashes").replaceChildren(...pairs.flatMap(([name, value]) => [make("dt", { text: word(name) }), make("dd", { text: value })]));
    const titles = ["when", "who", "what", "hash", "took"].map((name) => make("th", { text: word(name), scope: "col" }));
    $("changes").hidden = told.changes.length === 0;
    if (!told.changes.length) $("versions-note").textContent = word("noChanges");
    $("changes").replaceChildren(make("tr", { children: titles }), ...told.changes.map((one) => make("tr", { children: [
      time(one.when), one.who, one.kind === "patch" ? word("didPatch", { module: one.module_path }) : word("didRollback"),
      short(one.model_hash), milliseconds(one.seconds)].map((text) => make("td", { text })) })));
  } catch (error) {
    if (error.status === 401 || error.status === 403) refusedKey.add("admin");
    $("versions").hidden = true;
    $("versions-note").textContent = error.status === 403 ? word("needAdmin") : error.message;
  }
}

function confirmed(words) {
  $("confirm-words").textContent = words;
  $("confirm").returnValue = "";
  $("confirm").showModal();
  return new Promise((resolve) => { $("confirm").onclose = () => resolve($("confirm").returnValue === "yes"); });
}

async function change(path, words, options = {}) {
  if (!(await confirmed(words))) return;
  $("patch-told").textContent = word("working");
  $("patch-told").className = "";
  try {
    const told = await json(path, { method: "POST", ...options });
    $("patch-told").textContent = word("done", { hash: short(told.model_hash) });
  } catch (error) {
    $("patch-told").textContent = error.message;
    $("patch-told").className = "error";
  }
  versions();
}

function patch() {
  const file = $("weights").files[0], form = new FormData();
  form.append("module_path", $("module").value);
  form.append("strict", $("strict").checked ? "true" : "false");
  form.append("weights", file);
  const size = (file.size / 1e6).toFixed(1);
  change("v1/admin/patch", word("surePatch", { module: $("module").value, model, file: file.name, size }), { body: form });
}

// ---- reviews ---------------------------------------------------------------------------------------------------------
async function reviews() {
  $("reviews-section").hidden = !there.bridge;
  if (!there.bridge) return;
  if (!opens("reviews")) { $("reviews-note").textContent = word("needReviewer"); return; }
  try {
    const { reviews: open, counts } = await json("v1/bridge/reviews?limit=5");
    $("reviews-note").textContent = word("reviewCounts", { open: counts.open ?? 0, claimed: counts.claimed ?? 0 });
    $("reviews").replaceChildren(...open.map((one) => make("li", { text: one.payload.text })));
  } catch (error) {
    if (error.status === 401 || error.status === 403) refusedKey.add("reviews");
    $("reviews-note").textContent = error.message;
  }
}

// ---- wiring ----------------------------------------------------------------------------------------------------------
async function everything() {
  await arrive();
  await Promise.all([figures(), drift(), split(), guardLog(), versions(), reviews()]);
}
function every(ms, work) {
  setInterval(() => { if (!document.hidden) work(); }, ms);
}

$("language").addEventListener("click", () => {
  switchLanguage();
  speak();
  showCamera();
  if (answered) showCost(answered);
  everything();
});
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("foveola.key", $("key").value.trim());
  refusedKey.clear();
  everything();
});
$("camera-on").hidden = !navigator.mediaDevices?.getUserMedia; // a browser gives its camera to https and to this machine only
$("camera-on").addEventListener("click", switchCamera);
$("shoot").addEventListener("click", () => shoot(ask));
$("camera-name").value = localStorage.getItem("foveola.camera") ?? "";
$("camera-name").addEventListener("change", () => localStorage.setItem("foveola.camera", $("camera-name").value.trim()));
$("file").addEventListener("change", () => takePicture($("file").files[0]));
$("stage").addEventListener("dragover", (event) => { event.preventDefault(); $("stage").classList.add("over"); });
$("stage").addEventListener("dragleave", () => $("stage").classList.remove("over"));
document.addEventListener("dragover", (event) => event.preventDefault()); // a picture dropped beside it must not replace the page
document.addEventListener("drop", (event) => {
  event.preventDefault();
  $("stage").classList.remove("over");
  takePicture(event.dataTransfer.files[0]);
});
document.addEventListener("paste", (event) => takePicture([...event.clipboardData.files].find((file) => file.type.startsWith("image/"))));
$("heat-on").addEventListener("change", () => showHeat(evidence));
$("heat-strength").addEventListener("input", () => showHeat(evidence));
$("ask-form").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
$("question").addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask(); });
$("stop").addEventListener("click", () => asking?.abort());
$("right").addEventListener("click", () => label(true));
$("wrong").addEventListener("click", () => label(false));
$("patch-form").addEventListener("submit", (event) => { event.preventDefault(); patch(); });
$("weights").addEventListener("change", () => { $("weights-name").textContent = $("weights").files[0]?.name ?? ""; });
$("rollback").addEventListener("click", () => change("v1/admin/rollback", word("sureRollback", { model })));
$("confirm-yes").addEventListener("click", () => $("confirm").close("yes"));
$("confirm-no").addEventListener("click", () => $("confirm").close("no"));

speak();
$("key").value = sessionStorage.getItem("foveola.key") ?? "";
await everything();
every(FIGURES_MS, figures);
every(DRIFT_MS, () => { drift(); guardLog(); });
every(SLOW_MS, async () => { await arrive(); split(); versions(); reviews(); });
