// The picture that is asked about: a file, or a moment of this device's camera; and where the model looked, over it.
import { $, word } from "./page.js";

export let picture = null, evidence = null;

export function takePicture(file) {
  if (!file) return;
  if (stream) stopCamera();
  $("answer-error").textContent = "";
  const url = URL.createObjectURL(file);
  const image = $("picture");
  image.onload = () => {
    picture = file;
    image.alt = file.name ?? "";
    image.hidden = false;
    $("drop").hidden = true;
    showHeat(null);
  };
  image.onerror = () => {
    URL.revokeObjectURL(url);
    picture = null;
    image.hidden = true;
    $("drop").hidden = false;
    $("answer-error").textContent = word("noPicture");
  };
  image.src = url;
}

// Matplotlib's magma at five places: darker is less, and the order survives a print in grey.
const RAMP = [[44, 16, 92], [114, 31, 129], [182, 54, 121], [251, 136, 97], [252, 253, 191]];
function colourOf(share) {
  const place = share * (RAMP.length - 1), low = Math.min(RAMP.length - 2, Math.floor(place));
  return RAMP[low].map((value, n) => value + (RAMP[low + 1][n] - value) * (place - low));
}

export function showHeat(found) {
  evidence = found;
  const canvas = $("heat"), wanted = found !== null && found.weights.length === found.grid[0] * found.grid[1];
  $("heat-tools").hidden = !wanted;
  canvas.hidden = !wanted || !$("heat-on").checked;
  if (!wanted) return;
  const [rows, columns] = found.grid, most = Math.max(...found.weights, 1e-12);
  const cells = new ImageData(columns, rows), strength = $("heat-strength").value / 100;
  found.weights.forEach((weight, n) => {
    const share = weight / most;
    cells.data.set([...colourOf(share), 255 * strength * Math.sqrt(share)], 4 * n);
  });
  const small = new OffscreenCanvas(columns, rows);
  small.getContext("2d").putImageData(cells, 0, 0);
  canvas.width = stream ? $("live").videoWidth : $("picture").naturalWidth;
  canvas.height = stream ? $("live").videoHeight : $("picture").naturalHeight;
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
  canvas.setAttribute("aria-label", `${word("heat")}: ${rows} × ${columns}`);
}

// ---- the camera of this device ---------------------------------------------------------------------------------------
const AGAIN_MS = 1000;
let stream = null;

export async function switchCamera() {
  if (stream) { stopCamera(); return; }
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" }, audio: false });
  } catch (error) {
    $("answer-error").textContent = word("noCamera", { why: error.name });
    return;
  }
  stream.getVideoTracks()[0].addEventListener("ended", stopCamera); // unplugged
  $("live").srcObject = stream;
  await $("live").play();
  showCamera();
}

function stopCamera() {
  for (const track of stream?.getTracks() ?? []) track.stop();
  stream = $("live").srcObject = null;
  $("again").checked = false;
  showCamera();
}

export function showCamera() {
  const on = stream !== null;
  for (const id of ["live", "shoot", "again-label"]) $(id).hidden = !on;
  $("picture").hidden = on || picture === null;
  $("drop").hidden = on || picture !== null;
  $("camera-on").textContent = word(on ? "cameraOff" : "cameraOn");
  $("camera-on").setAttribute("aria-pressed", String(on));
}

export async function shoot(ask) {
  const video = $("live"), still = new OffscreenCanvas(video.videoWidth, video.videoHeight);
  still.getContext("2d").drawImage(video, 0, 0);
  const blob = await still.convertToBlob({ type: "image/jpeg", quality: 0.92 });
  picture = new File([blob], "camera.jpg", { type: "image/jpeg" });
  $("picture").onload = null;
  $("picture").src = URL.createObjectURL(blob); // what stays when the camera is switched off
  $("picture").alt = picture.name;
  await ask();
  if (stream && $("again").checked) setTimeout(() => { if (stream && $("again").checked) shoot(ask); }, AGAIN_MS);
}
