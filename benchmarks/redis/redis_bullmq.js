// BullMQ's side of the comparison, in node: 100 jobs at once, nothing kept of what is done.
// Speaks as side.py does: calls | produce | work, the folder, --seconds S.
"use strict";

const fs = require("fs");
const path = require("path");
const { Queue, Worker } = require(path.join(process.env.BULLMQ, "node_modules", "bullmq"));

const [work, folder] = process.argv.slice(2);
const at = process.argv.indexOf("--seconds");
const seconds = at < 0 ? 2 : Number(process.argv[at + 1]);
const connection = {
  host: "127.0.0.1",
  port: Number(fs.readFileSync(path.join(folder, "port"), "utf8")),
  maxRetriesPerRequest: null,
};
const KEPT = { removeOnComplete: true, removeOnFail: true };
const FIELDS = 3;

async function calls(queue, base) {
  const began = performance.now();
  for (let n = 0; n < 20000; n++) {
    await queue.add("bench", { n }, { delay: 3600000, jobId: `j${base + n}`, ...KEPT });
    const took = (performance.now() - began) / 1000;
    if (took > seconds) return (n + 1) / took;
  }
  return 20000 / ((performance.now() - began) / 1000);
}

// In bulks of 500, as many as the time allows; returns how many.
async function produce(queue, dues) {
  const began = performance.now();
  let placed = 0;
  while (placed < dues.length && (performance.now() - began) / 1000 < seconds) {
    const some = dues.slice(placed, placed + 500);
    await queue.addBulk(some.map((due, i) => ({
      name: "bench",
      data: { n: placed + i },
      opts: { delay: Math.max(0, due - Date.now()), jobId: `j${placed + i}`, ...KEPT },
    })));
    placed += some.length;
  }
  return placed;
}

// The ledger of ledger.py; marks are written out every 20 ms.
function ledger() {
  const file = fs.openSync(path.join(folder, "ledger"), "r+");
  const size = fs.fstatSync(file).size / 8 / FIELDS;
  const first = new BigInt64Array(size), runs = new BigInt64Array(size);
  let changed = false;
  setInterval(() => {
    if (!changed) return;
    changed = false;
    fs.writeSync(file, new Uint8Array(first.buffer), 0, size * 8, 0);
    fs.writeSync(file, new Uint8Array(runs.buffer), 0, size * 8, 2 * size * 8);
  }, 20);
  return (n) => {
    if (!first[n]) first[n] = BigInt(Math.round((performance.timeOrigin + performance.now()) * 1000)) * 1000n;
    runs[n] += 1n;
    changed = true;
  };
}

async function main() {
  if (work === "work") {
    const mark = ledger();
    const worker = new Worker("bench", async (job) => mark(job.data.n), { connection, concurrency: 100 });
    await worker.waitUntilReady();
    console.log("ready");
    return;
  }
  const queue = new Queue("bench", { connection });
  await queue.waitUntilReady();
  if (work === "calls") {
    await calls(queue, 1000000);
    console.log(JSON.stringify({ schedule: await calls(queue, 0) }));
  } else {
    const dues = JSON.parse(fs.readFileSync(path.join(folder, "dues.json"), "utf8"));
    console.log(JSON.stringify({ scheduled: await produce(queue, dues) }));
  }
  await queue.close();
  process.exit(0);
}

main();
