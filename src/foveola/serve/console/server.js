// Asking the server that the page came from, with the key that this tab holds.
import { word } from "./page.js";

export class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}
function headers() {
  const key = sessionStorage.getItem("foveola.key");
  return key ? { Authorization: `Bearer ${key}` } : {};
}
export async function call(path, options = {}) {
  let reply;
  try {
    reply = await fetch(path, { ...options, headers: { ...headers(), ...options.headers } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, word("away"));
  }
  if (reply.ok) return reply;
  const told = await reply.json().catch(() => null);
  throw new Refused(reply.status, told?.error?.message ?? `${reply.status} ${reply.statusText}`);
}
export const json = async (path, options) => (await call(path, options)).json();

export let there = { ready: false, keys: false, drift: false, patching: false, selects: false, bridge: false, split: false, guards: false };
export const refusedKey = new Set(); // places that this key does not open: not asked again until there is another key
export const opens = (place) => (!there.keys || sessionStorage.getItem("foveola.key")) && !refusedKey.has(place);

export async function lookAround() {
  there = await json("console/there.json");
}
