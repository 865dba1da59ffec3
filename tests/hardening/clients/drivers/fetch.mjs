// Node's fetch, whose connections are kept by the process. See wire.py for the lines.
import readline from "node:readline";

const TIMEOUT = 20_000;

function bodyOf(fields) {
  if (!fields.has("head")) return undefined;
  const fill = "x".repeat(Number(fields.get("fill") ?? 0));
  return Buffer.from(fields.get("head") + fill + (fields.get("tail") ?? ""));
}

async function* partsOf(body, pieces, pause) {
  const size = Math.ceil(body.length / pieces);
  for (let at = 0; at < body.length; at += size) {
    if (at) await new Promise((resolve) => setTimeout(resolve, pause * 1000));
    yield body.subarray(at, at + size);
  }
}

async function send(fields) {
  const headers = fields.getAll("header").map((line) => line.split(/: (.*)/s).slice(0, 2));
  if (fields.get("close") === "1") headers.push(["Connection", "close"]);
  const body = bodyOf(fields);
  const pieces = Number(fields.get("pieces") ?? 1);
  const chunked = fields.get("chunked") === "1";
  const options = { method: fields.get("method") ?? "POST", headers, signal: AbortSignal.timeout(TIMEOUT) };
  if (body !== undefined && (chunked || pieces > 1)) {
    options.body = ReadableStream.from(partsOf(body, pieces, Number(fields.get("pause") ?? 0)));
    options.duplex = "half";
    if (!chunked) headers.push(["Content-Length", String(body.length)]);
  } else if (body !== undefined) {
    options.body = body;
  }
  const response = await fetch(fields.get("url"), options);
  const text = await response.text();
  return { status: response.status, headers: Object.fromEntries(response.headers), body: text.slice(0, 4096), error: null };
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  let told;
  try {
    told = await send(new URLSearchParams(line));
  } catch (error) {
    const cause = error.cause ? ` (${error.cause.code ?? ""} ${error.cause.message})` : "";
    told = { status: null, headers: {}, body: "", error: `${error.name}: ${error.message}${cause}` };
  }
  console.log(JSON.stringify(told));
}
process.exit(0);
