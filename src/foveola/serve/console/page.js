// What every part of the page uses: its words in both languages, and small builders of nodes. Everything that comes from
// elsewhere becomes text of a node, never markup.
export const $ = (id) => document.getElementById(id);

// ---- words -----------------------------------------------------------------------------------------------------------
export const WORDS = await (await fetch("console/words.json")).json();
export let language = localStorage.getItem("foveola.language") ?? (navigator.language.startsWith("zh") ? "zh" : "en");
export const word = (name, values = {}) => WORDS[language][name].replace(/\{(\w+)\}/g, (_, key) => values[key] ?? "");

export function switchLanguage() {
  language = language === "en" ? "zh" : "en";
  localStorage.setItem("foveola.language", language);
}

export function speak() {
  document.documentElement.lang = language;
  for (const node of document.querySelectorAll("[data-word]")) node.textContent = word(node.dataset.word);
  for (const node of document.querySelectorAll("[data-label]")) node.setAttribute("aria-label", word(node.dataset.label));
  const other = language === "en" ? "zh" : "en";
  $("language").textContent = other === "zh" ? "中文" : "English";
  $("language").lang = other;
  const known = Object.values(WORDS).map((words) => words.example);
  if ($("question").value === "" || known.includes($("question").value)) $("question").value = word("example");
}

// ---- small builders --------------------------------------------------------------------------------------------------
export function make(tag, { text, children = [], ...attributes } = {}) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  node.append(...children);
  return node;
}
export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;
export const short = (hash) => (hash ?? "").slice(0, 12);
export const time = (seconds) => new Date(seconds * 1000).toLocaleString(language === "zh" ? "zh-CN" : "en-GB");
export const milliseconds = (seconds) => {
  const ms = 1000 * seconds;
  return ms < 1000 ? `${ms.toFixed(ms < 10 ? 1 : 0)} ms` : `${seconds.toFixed(2)} s`;
};

export function barRow(name, share, shown) {
  const bar = make("i");
  bar.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  return make("tr", { children: [make("th", { text: name, scope: "row" }), make("td", { text: shown, class: "number" }),
    make("td", { class: "bar", "aria-hidden": "true", children: [bar] })] });
}
