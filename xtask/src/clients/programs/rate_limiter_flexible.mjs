// rate-limiter-flexible: no more than the points pass, from however many at once; blocks, bursts and queues.
import assert from "node:assert/strict";
import Redis from "ioredis";
import { BurstyRateLimiter, RateLimiterQueue, RateLimiterRedis } from "rate-limiter-flexible";

const r = new Redis({ port: Number(process.env.PORT), host: "127.0.0.1" });
await r.flushall();
const passes = async (limiter, key, times) => {
  const all = await Promise.allSettled(Array.from({ length: times }, () => limiter.consume(key)));
  for (const { reason } of all) assert(!(reason instanceof Error), String(reason));
  return all.filter(({ status }) => status === "fulfilled").length;
};
const limiter = new RateLimiterRedis({ storeClient: r, points: 10, duration: 2, blockDuration: 1, keyPrefix: "a" });
assert.equal(await passes(limiter, "ada", 100), 10);
await assert.rejects(limiter.consume("ada"), (refused) => refused.msBeforeNext > 0 && refused.remainingPoints === 0);
assert.equal(await passes(limiter, "bob", 5), 5);
assert.equal((await limiter.get("bob")).consumedPoints, 5);
assert.equal((await limiter.reward("bob", 2)).consumedPoints, 3);
assert.equal((await limiter.penalty("bob", 4)).consumedPoints, 7);
assert.equal(await limiter.delete("bob"), true);
assert.equal(await limiter.get("bob"), null);
await limiter.block("eve", 5);
await assert.rejects(limiter.consume("eve"), (refused) => refused.msBeforeNext > 3000);
await new Promise((go) => setTimeout(go, 2100));
assert.equal(await passes(limiter, "ada", 12), 10);
const bursty = new BurstyRateLimiter(
  new RateLimiterRedis({ storeClient: r, points: 2, duration: 10, keyPrefix: "b" }),
  new RateLimiterRedis({ storeClient: r, points: 3, duration: 20, keyPrefix: "c" }),
);
assert.equal(await passes(bursty, "x", 20), 5);
const queue = new RateLimiterQueue(new RateLimiterRedis({ storeClient: r, points: 5, duration: 1, keyPrefix: "q" }));
const begun = Date.now();
await Promise.all(Array.from({ length: 11 }, () => queue.removeTokens(1)));
assert(Date.now() - begun > 1000);
r.disconnect();
process.exit(0);
