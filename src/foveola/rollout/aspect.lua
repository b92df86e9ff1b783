-- Reads the size of the first picture in a request and marks pictures beyond the aspect limit; gives each request the
-- number by which its version is chosen. Headers that only we may set are taken off first.
local LIMIT = @LIMIT@
local SCAN = 262144  -- bytes of the body that are looked at: a JPEG's size may lie behind its thumbnail
local PHI = 0.6180339887498949
local turn = math.random()

local function u16(s, i) local a, b = s:byte(i, i + 1); return a * 256 + b end
local function u32(s, i) local a, b, c, d = s:byte(i, i + 3); return ((a * 256 + b) * 256 + c) * 256 + d end
local function l16(s, i) local a, b = s:byte(i, i + 1); return b * 256 + a end
local function l24(s, i) local a, b, c = s:byte(i, i + 2); return (c * 256 + b) * 256 + a end

local function png(s, p)
  if #s >= p + 23 then return u32(s, p + 16), u32(s, p + 20), "png" end
end

local function jpeg(s, p)
  local i = p + 2
  while i + 8 <= #s do
    if s:byte(i) ~= 0xFF then return nil end
    local m = s:byte(i + 1)
    if m == 0xFF then i = i + 1
    elseif m >= 0xC0 and m <= 0xCF and m ~= 0xC4 and m ~= 0xC8 and m ~= 0xCC then
      return u16(s, i + 7), u16(s, i + 5), "jpeg"
    elseif m == 0xD8 or m == 0x01 or (m >= 0xD0 and m <= 0xD7) then i = i + 2
    else i = i + 2 + u16(s, i + 2) end
  end
end

local function webp(s, p)
  if s:sub(p + 8, p + 11) ~= "WEBP" or #s < p + 29 then return nil end
  local kind = s:sub(p + 12, p + 15)
  if kind == "VP8X" then return l24(s, p + 24) + 1, l24(s, p + 27) + 1, "webp" end
  if kind == "VP8 " then return l16(s, p + 26) % 16384, l16(s, p + 28) % 16384, "webp" end
  if kind == "VP8L" then
    local a, b, c, d = s:byte(p + 21, p + 24)
    return (b % 64) * 256 + a + 1, (d % 16) * 1024 + c * 4 + math.floor(b / 64) + 1, "webp"
  end
end

local ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local VALUE = {}
for i = 1, 64 do VALUE[ALPHABET:byte(i)] = i - 1 end

local function base64(s)
  local out, bits, held = {}, 0, 0
  for i = 1, #s do
    local v = VALUE[s:byte(i)]
    if v then
      held = (held * 64 + v) % 16777216
      bits = bits + 6
      if bits >= 8 then
        bits = bits - 8
        out[#out + 1] = string.char(math.floor(held / 2 ^ bits) % 256)
      end
    end
  end
  return table.concat(out)
end

function dims(s)
  local best, w, h, f
  for _, kind in ipairs({ { "\137PNG\r\n\026\n", png }, { "\255\216\255", jpeg }, { "RIFF", webp } }) do
    local p = s:find(kind[1], 1, true)
    if p and (not best or p < best) then
      local a, b, c = kind[2](s, p)
      if a then best, w, h, f = p, a, b, c end
    end
  end
  return w, h, f
end

function dims_of_body(s)
  local w, h, f = dims(s)
  if w then return w, h, f end
  -- JSON: the picture stands there in base64, as the value of "image" or of a data URL
  local _, e = s:find(";base64,", 1, true)
  if not e then _, e = s:find('"image"%s*:%s*"') end
  if e then return dims(base64(s:sub(e + 1))) end
end

function envoy_on_request(handle)
  local headers = handle:headers()
  for _, name in ipairs({ "x-image-route", "x-image-aspect", "x-image-format", "x-foveola-turn" }) do headers:remove(name) end
  -- Steps of the golden ratio spread evenly: the weights hold over any hundred requests, not only on average.
  turn = (turn + PHI) % 1
  headers:add("x-foveola-turn", tostring(math.floor(turn * 100)))
  if headers:get(":method") ~= "POST" then handle:clearRouteCache(); return end
  local body = handle:body()
  headers = handle:headers()  -- handles from before body() are out of scope
  if body then
    local ok, w, h, f = pcall(dims_of_body, body:getBytes(0, math.min(body:length(), SCAN)))
    if ok and w and h and w > 0 and h > 0 then
      local ratio = math.max(w / h, h / w)
      headers:add("x-image-aspect", string.format("%.3f", ratio))
      headers:add("x-image-format", f)
      if ratio > LIMIT then headers:add("x-image-route", "wide") end
    end
  end
  handle:clearRouteCache()
end
