// memjs, which speaks the binary protocol.
import assert from "node:assert";
import memjs from "memjs";

const client = memjs.Client.create(`127.0.0.1:${process.env.MEMCACHED_PORT}`, { retries: 0, timeout: 5 });
const text = async (key) => {
  const { value } = await client.get(key);
  return value === null ? null : value.toString();
};

await client.flush();
assert(await client.set("a", "one", { expires: 100 }));
assert.equal(await text("a"), "one");
assert.equal(await text("absent"), null);
assert.equal(await client.add("a", "two", {}), false);
assert.equal(await client.replace("absent", "two", {}), false);
assert(await client.replace("a", "two", {}));
assert(await client.append("a", "+"));
assert.equal(await text("a"), "two+");
assert.equal((await client.increment("n", 5, { initial: 10, expires: 0 })).value, 10);
assert.equal((await client.increment("n", 5, { initial: 10, expires: 0 })).value, 15);
assert.equal((await client.decrement("n", 20, { initial: 0, expires: 0 })).value, 0);
assert(await client.touch("a", 100));
const bytes = Buffer.from(Array.from({ length: 200_000 }, (_, at) => at % 256));
assert(await client.set("bytes", bytes, {}));
assert((await client.get("bytes")).value.equals(bytes));
const keys = Array.from({ length: 500 }, (_, at) => `key:${at}`);
assert((await Promise.all(keys.map((key) => client.set(key, key, {})))).every(Boolean));
assert.deepEqual(await Promise.all(keys.map(text)), keys);
assert(await client.delete("a"));
assert.equal(await client.delete("a"), false);
await client.set("short", "x", { expires: 1 });
await new Promise((done) => setTimeout(done, 2100));
assert.equal(await text("short"), null);
const stats = await new Promise((done, failed) =>
  client.stats((error, server, stats) => (error ? failed(error) : done(stats))));
assert(Number(stats.curr_items) >= 500);
client.close();
