// BullMQ: workers that are killed, and a server that is killed (kill -9) at work: no job is lost, and none is done twice but
// those that were at work when something was killed. Then priorities, delays, retries, flows.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { connect } from "node:net";
import { FlowProducer, Queue, QueueEvents, Worker } from "bullmq";
import Redis from "ioredis";

const [JOBS, WORKERS, AT_ONCE] = [600, 3, 5];
const connection = { port: Number(process.env.PORT), host: "127.0.0.1", maxRetriesPerRequest: null };
const r = new Redis(connection);
const pause = (ms) => new Promise((go) => setTimeout(go, ms));
const until = async (what, happened, seconds = 60) => {
  const end = Date.now() + seconds * 1000;
  while (!(await happened().catch(() => false))) {
    assert(Date.now() < end, `never: ${what}`);
    await pause(50);
  }
};
const isRefused = () => new Promise((go) => {
  const socket = connect(connection.port, connection.host);
  socket.on("connect", () => go(socket.destroy() === null));
  socket.on("error", ({ code }) => go(code === "ECONNREFUSED"));
});
const ignore = (...all) => all.forEach((one) => one.on("error", () => {}));
const started = [];
const start = (command, words) => {
  const child = spawn(command, words, { stdio: ["ignore", "inherit", "inherit"] });
  started.push(child);
  return child;
};

if (process.argv[2] === "work") {
  const worker = new Worker("jobs", async (job) => {
    await pause(10);
    await r.hincrby("done", job.data.number, 1);
    return job.data.number;
  }, { connection, concurrency: AT_ONCE, lockDuration: 1000, stalledInterval: 500, maxStalledCount: 10 });
  ignore(worker, r);
} else {
  try {
    await main();
  } catch (error) {
    console.error(error);
    process.exitCode = 1;
  } finally {
    started.forEach((child) => child.kill("SIGKILL"));
    process.exit();
  }
}

async function main() {
  await r.flushall();
  const queue = new Queue("jobs", { connection });
  ignore(queue, r);
  const jobs = Array.from({ length: JOBS }, (_, number) => ({ name: "job", data: { number } }));
  await queue.addBulk(jobs);
  const work = () => start(process.execPath, [process.argv[1], "work"]);
  const workers = Array.from({ length: WORKERS }, work);
  const finished = (count) => async () => (await queue.getJobCounts("completed")).completed >= count;
  await until("a hundred jobs", finished(100));
  workers[0].kill("SIGKILL");
  work();
  await until("two hundred jobs", finished(200));
  if (process.env.SERVER_COMMAND) {
    const [program, ...words] = process.env.SERVER_COMMAND.split("\n");
    process.kill(Number(process.env.SERVER_PID), "SIGKILL");
    await until("the end of the server", isRefused);
    start(program, words);
  }
  await until("all jobs", finished(JOBS));
  const done = Object.entries(await r.hgetall("done"));
  assert.equal(done.length, JOBS);
  const twice = done.filter(([, times]) => times > 1).length;
  assert(twice <= 2 * WORKERS * AT_ONCE, `${twice} jobs were done twice`);
  assert.deepEqual(await queue.getJobCounts("wait", "active", "failed", "delayed"), { wait: 0, active: 0, failed: 0, delayed: 0 });
  const events = new QueueEvents("other", { connection });
  await events.waitUntilReady();
  const other = new Queue("other", { connection });
  const order = [];
  const tries = {};
  await other.add("low", {}, { priority: 10 });
  await other.add("high", {}, { priority: 1 });
  const late = await other.add("late", {}, { delay: 500 });
  const again = await other.add("again", {}, { attempts: 3, backoff: { type: "fixed", delay: 50 } });
  const bad = await other.add("bad", {}, { attempts: 2 });
  assert.equal((await other.add("one", {}, { jobId: "own" })).id, (await other.add("one", {}, { jobId: "own" })).id);
  const worker = new Worker("other", async (job) => {
    order.push(job.name);
    tries[job.name] = (tries[job.name] ?? 0) + 1;
    if (job.name === "bad" || (job.name === "again" && tries.again < 3)) throw new Error("not yet");
    if (job.name === "parent") return Object.values(await job.getChildrenValues()).reduce((sum, value) => sum + value, 0);
    return job.data.value;
  }, { connection });
  await late.waitUntilFinished(events, 10000);
  await again.waitUntilFinished(events, 10000);
  await assert.rejects(bad.waitUntilFinished(events, 10000), /not yet/);
  assert.equal(tries.again, 3);
  assert.equal(tries.bad, 2);
  assert.equal(order.filter((name) => name === "one").length, 1);
  assert(order.indexOf("high") < order.indexOf("low"), order.join());
  const flows = new FlowProducer({ connection });
  const children = Array.from({ length: 20 }, (_, value) => ({ name: "child", queueName: "other", data: { value } }));
  const flow = await flows.add({ name: "parent", queueName: "other", children });
  assert.equal(await flow.job.waitUntilFinished(events, 20000), 190);
  await other.upsertJobScheduler("often", { every: 100 }, { name: "tick" });
  await until("three ticks", async () => tries.tick >= 3);
  assert.equal(await other.removeJobScheduler("often"), true);
  await other.pause();
  assert.equal(await other.isPaused(), true);
  await other.resume();
  await worker.close();
  await other.obliterate({ force: true });
  assert.deepEqual(await r.keys("bull:other:*"), []);
}
