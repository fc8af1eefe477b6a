// node-redis: the same, in RESP2 and RESP3, with client-side caching.
import assert from "node:assert/strict";
import { createClient } from "redis";

const url = `redis://127.0.0.1:${process.env.PORT}`;
for (const RESP of [2, 3]) {
  const r = await createClient({ url, RESP }).connect();
  const other = await createClient({ url }).connect();
  await r.flushAll();
  const all = await Promise.all(Array.from({ length: 1000 }, (_, i) => r.set(`key:${i}`, String(i))));
  assert.ok(all.every((reply) => reply === "OK"));
  assert.deepEqual(await r.multi().incr("n").incrBy("n", 5).get("n").exec(), [1, 6, "6"]);
  await r.hSet("h", { a: "1", b: "2" });
  assert.deepEqual({ ...(await r.hGetAll("h")) }, { a: "1", b: "2" });
  await r.zAdd("z", [{ score: 1, value: "one" }, { score: 2.5, value: "two" }]);
  assert.deepEqual(await r.zRangeWithScores("z", 0, -1), [{ value: "one", score: 1 }, { value: "two", score: 2.5 }]);
  let seen = 0;
  for await (const keys of r.scanIterator({ MATCH: "key:*", COUNT: 100 })) seen += Array.isArray(keys) ? keys.length : 1;
  assert.equal(seen, 1000);
  const listener = await createClient({ url, RESP }).connect();
  const got = [];
  await listener.subscribe("c", (text) => got.push(text));
  await listener.pSubscribe("p*", (text) => got.push(text));
  await r.publish("c", "one");
  await r.publish("pq", "two");
  while (got.length < 2) await new Promise((go) => setTimeout(go, 5));
  assert.deepEqual(got, ["one", "two"]);
  const popped = r.blPop("queue", 5);
  setTimeout(() => other.rPush("queue", "job"), 50);
  assert.equal((await popped).element, "job");
  await r.xGroupCreate("stream", "group", "$", { MKSTREAM: true });
  const id = await other.xAdd("stream", "*", { a: "1" });
  const read = await r.xReadGroup("group", "me", [{ key: "stream", id: ">" }], { COUNT: 5, BLOCK: 1000 });
  assert.ok(JSON.stringify(read).includes(id));
  assert.equal(await r.xAck("stream", "group", id), 1);
  await assert.rejects(r.incr("h"), /WRONGTYPE/);
  for (const client of [r, other, listener]) client.destroy();
}
const r = await createClient({ url, RESP: 3, clientSideCache: { ttl: 0, maxEntries: 0, evictPolicy: "LRU" } }).connect();
const other = await createClient({ url }).connect();
await other.set("copy", "1");
assert.equal(await r.get("copy"), "1");
await other.set("copy", "2");
const until = Date.now() + 5000;
while ((await r.get("copy")) !== "2" && Date.now() < until) await new Promise((go) => setTimeout(go, 5));
assert.equal(await r.get("copy"), "2");
r.destroy();
other.destroy();
